"""The experiment loop: a state machine over one checkout, its history, and what the tools answer."""

"""Processes that run code nobody trusts: started, confined, limited, and ended with all that they started."""

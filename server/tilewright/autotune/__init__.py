"""The search for a kernel's best config: its space, what is pruned and why, the race, and what is written."""

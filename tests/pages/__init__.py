"""Checks of what agents read: every figure has evidence, every snippet runs, every name exists."""

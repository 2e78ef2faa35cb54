"""Trustworthy evaluation: a referee that owns inputs, reference and comparison, and workers that run candidates."""

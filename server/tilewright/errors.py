"""The error that every layer may raise; each other error stands beside the code that raises it."""


class UsageError(Exception):
    """What a user did that cannot work, and what to do instead."""

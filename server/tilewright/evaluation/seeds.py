"""Seeds from one secret: the server draws the secret for a run, commits to its hash, and reveals it with the result."""

from __future__ import annotations

import hashlib
import secrets


def new_secret() -> str:
    """A fresh secret, 256 bits in hexadecimal."""
    return secrets.token_hex(32)


def commitment(secret: str) -> str:
    """What is put on record before the run."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Seeds:
    """The seeds that a secret stands for, in order; anyone who knows the secret can draw them again."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._count = 0

    def next(self) -> int:
        """The next seed, of 62 bits."""
        self._count += 1
        digest = hashlib.sha256(f"{self._secret}:{self._count}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 2

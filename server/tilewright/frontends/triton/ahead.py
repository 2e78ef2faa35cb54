"""What each process that compiles with Triton would work out anew."""

from __future__ import annotations


def get_ready() -> None:
    """The hash of all of Triton's files, a part of the names in its cache, takes a second, and is kept."""
    from triton.runtime.cache import triton_key

    triton_key()

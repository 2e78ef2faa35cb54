"""What each process that compiles with Triton would work out anew."""

from __future__ import annotations

import contextlib


def get_ready() -> None:
    """Make the hash of all of Triton's files, a part of the names in its cache. That takes a second, and is kept."""
    with contextlib.suppress(ImportError):
        from triton.runtime.cache import triton_key

        triton_key()

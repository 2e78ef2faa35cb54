"""Planned addresses: the process that captures a program and the process that replays it use the same ones.

Blocks follow one another from `BASE`, in steps of `GRAIN`, and an address is never used twice. So two captures that
allocate in the same order hold the same addresses, and nothing in a program has to be rewritten before it is replayed.
"""

from __future__ import annotations

BASE = 0x2000_0000_0000
"""Where the first block begins: in an address range that the driver leaves free."""
SPAN = 1 << 40
"""Bytes that are reserved from `BASE` on."""
GRAIN = 2 << 20
"""Bytes of the pages that a GPU maps."""


class OutOfAddresses(MemoryError):
    """The reserved range is used up."""


def rounded(size: int) -> int:
    """The bytes of the pages that a block of `size` bytes takes; an empty block takes a page too."""
    return max(GRAIN, -(-size // GRAIN) * GRAIN)


class Addresses:
    """Hands out the addresses of blocks."""

    def __init__(self) -> None:
        self._next = BASE

    def take(self, size: int) -> int:
        """The address of a new block of `size` bytes. Raises `OutOfAddresses`."""
        at = self._next
        if at + rounded(size) > BASE + SPAN:
            raise OutOfAddresses(
                f"{(at - BASE) >> 30} of {SPAN >> 30} GiB of addresses are used, and no address is used "
                "twice: allocate less often, or tune the kernel before it is captured"
            )
        self._next = at + rounded(size)
        return at

"""Planned addresses: the process that captures a program and the process that replays it use the same ones.

Blocks follow one another from the start of a zone, in steps of `GRAIN`, and an address is never used twice. So two
captures that allocate in the same order hold the same addresses, and nothing in a program has to be rewritten before it
is replayed. Each case has a zone of its own, and so has what is allocated before the first one, while a module is
imported say: the inputs of a case are always the first in its zone.
"""

from __future__ import annotations

BASE = 0x2000_0000_0000
"""Where the first zone begins: in an address range that the driver leaves free."""
ZONE = 1 << 40
"""Bytes of addresses for one case: half of them for its arguments and calls before the one that is captured."""
ZONES = 16
SPAN = ZONES * ZONE
"""Bytes that are reserved from `BASE` on."""
GRAIN = 2 << 20
"""Bytes of the pages that a GPU maps."""


class OutOfAddresses(MemoryError):
    """A zone is used up, or there is none left."""


def rounded(size: int) -> int:
    """The bytes of the pages that a block of `size` bytes takes; an empty block takes a page too."""
    return max(GRAIN, -(-size // GRAIN) * GRAIN)


class Addresses:
    """Hands out the addresses of blocks."""

    def __init__(self) -> None:
        self._zone = 0
        self._next = BASE

    def start_zone(self, zone: int) -> None:
        """Go on in a zone after the present one. Raises `OutOfAddresses`."""
        if not self._zone < zone < ZONES:
            raise OutOfAddresses(f"zone {zone} does not follow zone {self._zone}, or is over {ZONES - 1}")
        self._zone = zone
        self._next = BASE + self._zone * ZONE

    def start_capture(self) -> None:
        """Go on in the second half of the zone: what a captured call allocates has addresses that do not depend on how
        much was allocated before it, by a search for a config, say."""
        self._next = max(self._next, BASE + self._zone * ZONE + ZONE // 2)

    def take(self, size: int) -> int:
        """The address of a new block of `size` bytes. Raises `OutOfAddresses`."""
        at, end = self._next, BASE + (self._zone + 1) * ZONE
        if rounded(size) > ZONE:
            raise OutOfAddresses("it is larger than any GPU's memory")
        if at + rounded(size) > end:
            used = (at - (end - ZONE)) >> 30
            raise OutOfAddresses(
                f"{used} of {ZONE >> 30} GiB of a case's addresses are used, and no address is used twice: allocate "
                "less often, or tune the kernel before it is captured"
            )
        self._next = at + rounded(size)
        return at

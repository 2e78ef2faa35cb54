"""The sectors of memory in which the loads of a launch's blocks lie: what memory hands over, however little is used."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tilewright.gpu.specs import KIB, SECTOR_BYTES

LONG_RUN = 4 * SECTOR_BYTES
"""Bytes in a row of which hardly any sector is wasted, wherever they begin."""
WASTEFUL = 2
"""Bytes of the sectors of a load, as a multiple of its own, from which a block's next load may find them in L1."""
L1_BYTES = 256 * KIB
"""What a block's sectors are found again in, if it has an SM to itself."""
_PLACES = 1 << 43
"""More than there are sectors in a process's memory."""


def fills_sectors(sizes: Sequence[int], strides: Sequence[int], element_bytes: int) -> bool:
    """Whether a tile of a strided array lies in runs of at least `LONG_RUN` bytes, or in runs of whole sectors if the
    first begins with one; strides in elements."""
    run = 1
    apart: list[int] = []
    for stride, size in sorted(zip(strides, sizes, strict=True)):
        if size > 1 and (apart or stride != run):
            apart.append(stride)
        elif size > 1:
            run *= size
    whole = all(length * element_bytes % SECTOR_BYTES == 0 for length in (run, *apart))
    return run * element_bytes >= LONG_RUN or (whole and min(apart, default=run) >= run)


class Sectors:
    """The bytes of the sectors that blocks load, in `touched`. Where most of a load's sectors is wasted, those that the
    same block has touched before are not counted again, as far as L1 holds them."""

    def __init__(self) -> None:
        self.touched = 0
        self._held = torch.empty(0, dtype=torch.int64)

    def load(
        self, address: int, offset: torch.Tensor, inside: torch.Tensor | None, element_bytes: int, blocks: torch.Tensor
    ) -> None:
        """Count a load of the blocks of these numbers from a buffer: elements at `offset`, (blocks or 1, *tile), where
        they are `inside`, which is broadcast with it."""
        rows = offset if inside is None else offset.expand(torch.broadcast_shapes(offset.shape, inside.shape))
        chosen = rows.reshape(rows.shape[0], -1) * element_bytes
        which = None if inside is None else inside.expand(rows.shape).reshape(chosen.shape)
        each = _sectors(address, chosen, which, blocks[: len(chosen)])
        alike = len(blocks) // len(chosen)  # blocks that load the same
        loaded = (chosen.numel() if which is None else int(which.sum())) * element_bytes
        if len(each) * SECTOR_BYTES < WASTEFUL * loaded:
            self.touched += len(each) * SECTOR_BYTES * alike
            return
        if alike > 1:
            which = None if which is None else which.expand(len(blocks), -1)
            each = _sectors(address, chosen.expand(len(blocks), -1), which, blocks)
        held = torch.unique(torch.cat((self._held, each)))
        self.touched += (len(held) - len(self._held)) * SECTOR_BYTES
        full = len(held) * SECTOR_BYTES > L1_BYTES * len(torch.unique(held // _PLACES))
        self._held = held[:0] if full else held


def _sectors(address: int, chosen: torch.Tensor, which: torch.Tensor | None, blocks: torch.Tensor) -> torch.Tensor:
    """Every block's distinct sectors, as one number for each."""
    found = (address + chosen) // SECTOR_BYTES + (blocks % (1 << 19))[:, None] * _PLACES
    distinct: torch.Tensor = torch.unique(found if which is None else found[which])
    return distinct

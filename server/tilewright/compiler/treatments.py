"""Findings and the treatments that they name, as data: light enough for the server's start."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tilewright.wire.record import Record


class Treatment(StrEnum):
    """What to try: each has an entry of that name on a page `references/playbook-*.md`."""

    TILE_SHAPE = "tile-shape"
    SMALLER_TILES = "smaller-tiles"
    MORE_WORKER_WARPS = "more-worker-warps"
    TENSOR_CORE_DTYPE = "tensor-core-dtype"
    EIGHT_BIT_OPERANDS = "eight-bit-operands"
    ZERO_PADDING = "zero-padding"
    ALIGN_16_BYTES = "align-16-bytes"
    TMA_RULES = "tma-rules"
    TILES_FOR_GATHERS = "tiles-for-gathers"
    RAISE_OCCUPANCY = "raise-occupancy"
    FEWER_DIVISIONS = "fewer-divisions"
    WIDER_ACCESS = "wider-access"


DO = {
    Treatment.TILE_SHAPE: "larger tiles, while nothing spills",
    Treatment.SMALLER_TILES: "halve a tile dimension",
    Treatment.MORE_WORKER_WARPS: "replace_hints(num_worker_warps=8)",
    Treatment.TENSOR_CORE_DTYPE: "cast both operands of mma with .astype(ct.tfloat32), or use 16-bit inputs",
    Treatment.EIGHT_BIT_OPERANDS: "give mma's second operand as (N, K): transpose it once, in a kernel of its own",
    Treatment.ZERO_PADDING: "last of all, load with PaddingMode.ZERO and put the other value in with ct.where",
    Treatment.ALIGN_16_BYTES: "pad rows so that every stride but the last is a multiple of 16 bytes, matmuls first; "
    "where they cannot be padded, see rows of odd length in cutile-patterns",
    Treatment.TMA_RULES: "bring the load within TMA's rules",
    Treatment.TILES_FOR_GATHERS: "replace gather or scatter by a tile load or store where indices are regular",
    Treatment.RAISE_OCCUPANCY: "replace_hints with a higher occupancy (2, 4, 8), while nothing spills",
    Treatment.FEWER_DIVISIONS: "divide once and multiply by the reciprocal, or divide with rounding_mode APPROX",
    Treatment.WIDER_ACCESS: "make rows and their stride multiples of 16 elements",
}


DO_IN_TRITON = {
    Treatment.MORE_WORKER_WARPS: "launch with num_warps=8",
    Treatment.TENSOR_CORE_DTYPE: 'give tl.dot 16-bit operands, or float32 ones with input_precision="tf32"',
    Treatment.FEWER_DIVISIONS: "divide once and multiply by the reciprocal, or use a fast division of libdevice",
    Treatment.WIDER_ACCESS: "make rows and their stride multiples of 16, which Triton specialises for",
}
"""The same treatments in Triton's words, where they differ."""


def for_more_warps(limited_by: str) -> Treatment:
    """What gives an SM more to wait for, by what keeps a further CTA off it. A hint frees registers and a smaller tile
    frees shared memory, but an SM that is full of threads or of CTAs takes no more: each of them has to load more."""
    if "threads" in limited_by or "CTAs" in limited_by:
        return Treatment.TILE_SHAPE
    return Treatment.RAISE_OCCUPANCY if "registers" in limited_by else Treatment.SMALLER_TILES


class Finding(Record):
    """One thing that costs time."""

    treatment: Treatment
    where: str = Field("", description="source line")
    evidence: str
    do: str = Field(description="the treatment in a few words; the playbook says more")
    cost: float = Field(0.0, exclude=True, description="a guess at the slowdown, which orders findings")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.evidence} -> {self.treatment}: {self.do}"

"""A load that tileiras drops from a loop: a tile of one element that loop variables carry two turns ahead.

python benchmarks/lost_load.py     whether the PTX for sm_90 still loads it; on a GPU also which rows are wrong

The cuTile IR and the interpreter are right. Lost with tileiras 13.4.92; kept where the load is carried one turn ahead,
or where `opt_level=0`.
"""

from __future__ import annotations

import re

import cuda.tile as ct
import torch

from tilewright.compiler.cutile import compile_kernel
from tilewright.compiler.signature import signature_of

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
ROWS = 4096
BLOCKS = 256
SHAPES = ((1000, 1024), (1024, 1024), (1000, 2048))
"""Columns, and the tile's."""


@ct.kernel(num_worker_warps=8)
def scale_rows(x, factor, out, T: Size):
    first, stride, last = ct.bid(0), ct.num_blocks(0), x.shape[0] - 1
    now = ct.load(factor, (first,), (1,)).reshape((1, 1))
    later = ct.load(factor, (min(first + stride, last),), (1,)).reshape((1, 1))
    for row in range(first, x.shape[0], stride):
        a = ct.load(x, (row, 0), (1, T), padding_mode=ZERO, allow_tma=False).astype(ct.float32)
        f, now = now, later
        later = ct.load(factor, (min(row + 2 * stride, last),), (1,)).reshape((1, 1))
        ct.store(out, (row, 0), (a * f - ct.sum(a, axis=1, keepdims=True)).astype(out.dtype), allow_tma=False)


def arguments(columns: int, tile: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    x = torch.randn(ROWS, columns, device=device).bfloat16()
    factor = torch.arange(ROWS, device=device, dtype=torch.float32) + 1
    return x, factor, torch.empty(ROWS, columns, device=device), tile


def loads_in_loops(ptx: str) -> list[str]:
    """The global loads between a label and a later branch back to it."""
    lines = ptx.splitlines()
    labels = {match[1]: number for number, line in enumerate(lines) if (match := re.match(r"(\$L__BB\w+):", line))}
    loops = []
    for number, line in enumerate(lines):
        match = re.search(r"bra(?:\.uni)?\s+(\$L__BB\w+)", line)
        if match and labels.get(match[1], number) < number:
            loops.append((labels[match[1]], number))
    inside = [line.strip() for number, line in enumerate(lines) if any(a < number < b for a, b in loops)]
    return [line for line in inside if re.search(r"\bld\.\S*global", line)]


def wrong_rows(columns: int, tile: int) -> list[int]:
    """The rows that a GPU scales by another row's factor."""
    x, factor, out, _ = arguments(columns, tile, "cuda")
    ct.launch(torch.cuda.current_stream(), (BLOCKS,), scale_rows, (x, factor, out, tile))
    used = ((out + x.float().sum(1, keepdim=True)) / x.float()).median(1).values
    return [int(row) for row in ((used - factor).abs() > 1e-2 * factor).nonzero().flatten()]


def main() -> None:
    for columns, tile in SHAPES:
        made = compile_kernel(scale_rows, signature_of(scale_rows, arguments(columns, tile, "cpu")), "sm_90", 60)
        loads = loads_in_loops(made.ptx)
        single = [line for line in loads if re.search(r"global\S*\.[bfu]32\s", line) and ".v" not in line]
        said = f"{columns} columns, tile {tile}: {len(loads)} loads in the loop, {len(single)} of one element"
        if torch.cuda.is_available():
            wrong = wrong_rows(columns, tile)
            said += f"; {len(wrong)} of {ROWS} rows wrong" + (f", the first {wrong[0]}" if wrong else "")
        print(said, flush=True)


if __name__ == "__main__":
    main()

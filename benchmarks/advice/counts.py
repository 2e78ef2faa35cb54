"""The machine code behind single sentences of the playbook: instructions, shared memory, opcodes for sm_90. No GPU.

python -m benchmarks.advice.counts --json FILE    compile them all, and write what came out
"""

from __future__ import annotations

import argparse
import runpy
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.advice.playbook_kernels import PAGE as page
from benchmarks.advice.treatments import matmul
from benchmarks.recorded import header, write

from tilewright.compiler import sass
from tilewright.compiler.assembling import assemble
from tilewright.compiler.cutile import lower
from tilewright.compiler.signature import signature_of
from tilewright.compiler.tools import compiler_version

Size, Flag = ct.Constant[int], ct.Constant[bool]
ZERO = ct.PaddingMode.ZERO
ARCH = "sm_90"
OPCODES = ("BAR", "BRA", "LDG", "LDSM", "PRMT", "SHFL")
SLOW_S = 600.0


@ct.kernel
def row_sum(x, out, LATENCY: Size):
    total = ct.zeros((64, 64), ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(64, 64))):
        if LATENCY > 0:
            part = ct.load(x, (ct.bid(0), k), (64, 64), padding_mode=ZERO, latency=LATENCY)
        else:
            part = ct.load(x, (ct.bid(0), k), (64, 64), padding_mode=ZERO)
        total += part.astype(ct.float32)
    ct.store(out, (ct.bid(0),), ct.sum(total, axis=1).astype(out.dtype))


@ct.kernel
def kept_row(x, out, STEPS: Size, R: Size, T: Size, TMA: Flag):
    """x / sum(x) along rows, unrolled, with every tile of a row in registers."""
    tiles = ()
    total = ct.zeros((R, 1), ct.float32)
    for step in ct.static_iter(range(STEPS)):
        a = ct.load(x, (ct.bid(0), step), (R, T), padding_mode=ZERO, allow_tma=TMA)
        tiles = (*tiles, a)
        total += ct.sum(a, axis=1, keepdims=True)
    for step in ct.static_iter(range(STEPS)):
        ct.store(out, (ct.bid(0), step), tiles[step] / total, allow_tma=TMA)


@ct.kernel
def folded_row(x, out, STEPS: Size, T: Size, CHECK: Flag):
    """The sum of a row's tiles, unrolled, by plain loads."""
    total = ct.zeros((1, T), ct.float32)
    for step in ct.static_iter(range(STEPS)):
        if CHECK:
            total += ct.load(x, (ct.bid(0), step), (1, T), padding_mode=ZERO, allow_tma=False)
        else:
            total += ct.load(x, (ct.bid(0), step), (1, T), check_bounds=False, allow_tma=False)
    ct.store(out, (ct.bid(0), 0), total, check_bounds=CHECK, allow_tma=False)


@ct.kernel
def matmul_of_rows(a, b, out, M: Size, N: Size, K: Size):
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(ct.bid(0), k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(ct.bid(1), k), shape=(N, K), padding_mode=ZERO)
        total = ct.mma(left, right.transpose(), total)
    ct.store(out, index=(ct.bid(0), ct.bid(1)), tile=total.astype(out.dtype))


def made(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    return torch.zeros(shape or (4096, 4096), dtype=dtype)


def products(name: str, dtype: torch.dtype, kernels: tuple[Any, Any], out: torch.dtype, tile: tuple[int, ...]) -> Any:
    given = (made(dtype), made(dtype), made(out), *tile)
    return [
        (f"{name} {tile}, b {layout}", kernel.replace_hints(num_worker_warps=8), given)
        for layout, kernel in zip(("(K, N)", "(N, K)"), kernels, strict=True)
    ]


F32, I8, FP8, BF16 = torch.float32, torch.int8, torch.float8_e4m3fn, torch.bfloat16
BYTES, FLOATS = (page.int8_before, page.int8_after), (matmul, matmul_of_rows)
WANTED: list[tuple[str, Any, tuple[Any, ...]]] = [
    *((f"row_sum, latency {step or 'unset'}", row_sum, (made(BF16), made(BF16, 4096), step)) for step in (0, 1, 10)),
    *products("int8", I8, BYTES, torch.int32, (128, 128, 64)),
    *products("int8", I8, BYTES, torch.int32, (128, 256, 128)),
    *products("FP8", FP8, FLOATS, F32, (128, 128, 64)),
    *products("bf16", BF16, FLOATS, F32, (128, 128, 64)),
    *(
        (f"log_sum {tile}", page.log_sum.replace_hints(), (made(F32), made(F32, 4096, 1), *tile))
        for tile in ((1, 512), (4, 128), (4, 256))
    ),
    ("sums_before", page.sums_before.replace_hints(), (made(F32), made(F32), made(F32), 4096)),
    ("sums_after", page.sums_after.replace_hints(), (made(F32), made(F32), made(F32), 4096)),
    ("kept_row by TMA", kept_row, (made(F32), made(F32), 32, 4, 128, True)),
    ("kept_row by TMA, occupancy 4", kept_row.replace_hints(occupancy=4), (made(F32), made(F32), 32, 4, 128, True)),
    ("kept_row, plain", kept_row, (made(F32), made(F32), 32, 4, 128, False)),
    *(
        (f"folded_row, {what}", folded_row, (made(F32, 4096, 8192), made(F32, 4096, 512), 16, 512, checks))
        for what, checks in (("checked", True), ("unchecked", False))
    ),
    ("bf16 (512, 512, 64)", matmul, (made(BF16), made(BF16), made(BF16), 512, 512, 64)),
]


def wanted() -> Iterator[tuple[str, Any]]:
    """Each kernel as cuTile's front end lowers it."""
    for name, kernel, given in WANTED:
        yield name, lower(kernel, signature_of(kernel, given), ARCH)
    source = (Path(__file__).parents[1] / "kernels" / "int4_part.py").read_text()
    given = (
        made(BF16, 32, 8192), made(torch.int16, 4096, 4096), made(torch.int32, 2, 32, 4096), made(F32, 8, 4096, 32),
        0x000F000F, 32, 64, 8, 128,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:  # the front end reads sources from files
        for number, what in enumerate(("-(-pair)", "~(~pair)", "pair")):
            file = Path(folder) / f"kernel{number}.py"
            file.write_text(source.replace("pair = pair", f"pair = {what}"))
            kernel = runpy.run_path(str(file))["int4_part"]
            yield f"int4_part, {what}", lower(kernel, signature_of(kernel, given), ARCH)


def counted(one: tuple[str, Any]) -> dict[str, Any]:
    name, lowered = one
    started = time.monotonic()
    found = assemble(lowered, timeout_s=SLOW_S)
    seconds = time.monotonic() - started
    if found.resources is None:
        return {"name": name, "error": found.headline}
    opcodes = Counter(one.name for one in sass.instructions(found.sass))
    return {
        "name": name,
        "seconds": round(seconds, 1),
        "instructions": found.resources.instructions,
        "shared_bytes": found.resources.shared_bytes,
        "headline": found.headline,
        "spill_bytes": found.resources.spill_bytes,
        "opcodes": {opcode: opcodes[opcode] for opcode in OPCODES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    target = parser.parse_args().json
    with ThreadPoolExecutor(2) as threads:
        rows = list(threads.map(counted, wanted()))
    for row in rows:
        print(row)
    write(target, header("advice.counts --json FILE") | {"arch": ARCH, "compiler": compiler_version(), "rows": rows})


if __name__ == "__main__":
    main()

"""What the arguments of loads change in the machine code of a copy, a sum and a product. Needs no GPU.

python -m benchmarks.advice.arguments --json FILE    compile them all, and write what came out
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.recorded import header, write

from tilewright.compiler.assembling import assemble
from tilewright.compiler.cutile import lower
from tilewright.compiler.signature import signature_of
from tilewright.compiler.tools import compiler_version

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
ZERO = ct.PaddingMode.ZERO
Size, Flag = ct.Constant[int], ct.Constant[bool]


def tile(x, index, shape, CHECK, TMA, LATENCY):
    """A load as the variant has it; LATENCY 0 leaves the choice to the compiler, -1 asks for padding too."""
    if LATENCY > 0:
        found = ct.load(x, index, shape, padding_mode=ZERO, allow_tma=TMA, latency=LATENCY)
    elif CHECK:
        found = ct.load(x, index, shape, padding_mode=ZERO, allow_tma=TMA)
    elif LATENCY < 0:
        found = ct.load(x, index, shape, padding_mode=ZERO, check_bounds=False)
    else:
        found = ct.load(x, index, shape, check_bounds=False, allow_tma=TMA)
    return found


@ct.kernel
def copy(x, out, CHECK: Flag, TMA: Flag, LATENCY: Size):
    where = (ct.bid(0), ct.bid(1))
    ct.store(out, where, tile(x, where, (64, 64), CHECK, TMA, LATENCY), check_bounds=CHECK, allow_tma=TMA)


@ct.kernel
def total(x, out, CHECK: Flag, TMA: Flag, LATENCY: Size):
    found = ct.zeros((64, 64), ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(64, 64))):
        found += tile(x, (ct.bid(0), k), (64, 64), CHECK, TMA, LATENCY).astype(ct.float32)
    ct.store(out, (ct.bid(0), 0), found.astype(out.dtype))


@ct.kernel
def product(x, out, CHECK: Flag, TMA: Flag, LATENCY: Size):
    found = ct.zeros((128, 128), ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(128, 64))):
        left = tile(x, (ct.bid(0), k), (128, 64), CHECK, TMA, LATENCY)
        right = tile(x, (k, ct.bid(1)), (64, 128), CHECK, TMA, LATENCY)
        found = ct.mma(left, right, found)
    ct.store(out, (ct.bid(0), ct.bid(1)), found.astype(out.dtype))


VARIANTS = {
    "plain": (True, True, 0),
    "unchecked": (False, True, 0),
    "unchecked and padded": (False, True, -1),
    "without TMA": (True, False, 0),
    "latency 1": (True, True, 1),
    "latency 4": (True, True, 4),
    "latency 10": (True, True, 10),
}


def compiled(kernel: Any, variant: str, arch: str) -> dict[str, Any]:
    """The counts that an argument may change."""
    x = torch.empty(4096, 4096, dtype=torch.bfloat16)
    made = assemble(lower(kernel, signature_of(kernel, (x, x, *VARIANTS[variant])), arch), timeout_s=60)
    known = {"kernel": kernel._pyfunc.__name__, "variant": variant, "arch": arch}
    if made.resources is None:
        return known | {"error": made.error.splitlines()[0]}
    found = made.resources.model_dump(include={"instructions", "shared_bytes", "registers", "tma", "plain_loads"})
    return known | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    target = parser.parse_args().json
    wanted = [(kernel, variant, arch) for kernel in (copy, total, product) for variant in VARIANTS for arch in ARCHS]
    rows = [compiled(*one) for one in wanted]
    for row in rows:
        print(row)
    write(target, header("advice.arguments --json FILE") | {"compiler": compiler_version(), "rows": rows})


if __name__ == "__main__":
    main()

"""What functions of a tile of 1024 float32 compile to, exact, approximate and with subnormals flushed. Needs no GPU.

python -m benchmarks.advice.functions --json FILE    compile them all, and write what came out
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
T = 1024
APPROX, FULL = ct.RoundingMode.APPROX, ct.RoundingMode.FULL


@ct.kernel
def exp(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    a = ct.load(x, (0,), T)
    ct.store(out, (0,), ct.exp(a, rounding_mode=APPROX) if approx else ct.exp(a))


@ct.kernel
def exp2(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    ct.store(out, (0,), ct.exp2(ct.load(x, (0,), T), flush_to_zero=flush))


@ct.kernel
def tanh(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    a = ct.load(x, (0,), T)
    ct.store(out, (0,), ct.tanh(a, rounding_mode=APPROX) if approx else ct.tanh(a))


@ct.kernel
def sqrt(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    a = ct.load(x, (0,), T)
    ct.store(out, (0,), ct.sqrt(a, rounding_mode=APPROX, flush_to_zero=flush) if approx else ct.sqrt(a))


@ct.kernel
def rsqrt(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    ct.store(out, (0,), ct.rsqrt(ct.load(x, (0,), T), flush_to_zero=flush))


@ct.kernel
def divide(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    a = ct.load(x, (0,), T)
    quotient = ct.truediv(a, a + 1.5, rounding_mode=APPROX, flush_to_zero=flush) if approx else a / (a + 1.5)
    ct.store(out, (0,), quotient)


@ct.kernel
def divide_full(x, out, approx: ct.Constant[bool], flush: ct.Constant[bool]):
    a = ct.load(x, (0,), T)
    ct.store(out, (0,), ct.truediv(a, a + 1.5, rounding_mode=FULL))


WANTED = (
    (exp, False, False), (exp, True, False),
    (exp2, False, False), (exp2, False, True),
    (tanh, False, False), (tanh, True, False),
    (sqrt, False, False), (sqrt, True, False), (sqrt, True, True),
    (rsqrt, False, False), (rsqrt, False, True),
    (divide, False, False), (divide, True, False), (divide, True, True), (divide_full, False, False),
)  # fmt: skip


def compiled(kernel: Any, approx: bool, flush: bool, arch: str) -> dict[str, Any]:
    """The instructions that one function takes."""
    x = torch.empty(T)
    made = assemble(lower(kernel, signature_of(kernel, (x, x, approx, flush)), arch), timeout_s=60)
    assert made.resources is not None, made.error
    known = {"function": kernel._pyfunc.__name__, "approx": approx, "flush": flush, "arch": arch}
    return known | {"instructions": made.resources.instructions, "calls": sum(line.calls for line in made.mix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    target = parser.parse_args().json
    rows = [compiled(*one, arch) for one in WANTED for arch in ARCHS]
    for row in rows:
        print(row)
    write(target, header("advice.functions --json FILE") | {"compiler": compiler_version(), "rows": rows})


if __name__ == "__main__":
    main()

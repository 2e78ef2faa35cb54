"""Triton kernels on narrow floats, each compared with torch: run by `test_tritonfloats.py` in a process of its own."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

from tilewright.interpreter import tritonfloats

N = 256


@triton.jit
def computed(a, b, out, KIND: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, N)
    x, y = tl.load(a + place), tl.load(b + place)
    if KIND == "sum of two":
        z = x + y
    elif KIND == "quotient":
        z = x / y
    elif KIND == "negative":
        z = -x
    elif KIND == "chosen":
        z = tl.where(x > y, x, y * 2.0)
    elif KIND == "fma":
        z = tl.fma(x, y, x)
    elif KIND == "constant":
        z = x + tl.full((N,), 1.5, x.dtype)
    elif KIND == "total":
        z = x * 0 + tl.sum(x, axis=0)
    elif KIND == "largest":
        z = x * 0 + tl.max(x, axis=0)
    elif KIND == "whole number":
        z = x.to(tl.int32).to(x.dtype)
    elif KIND == "half":
        z = x.to(tl.float16).to(x.dtype)
    tl.store(out + place, z)


@triton.jit
def converted(a, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, N)
    tl.store(out + place, tl.load(a + place).to(out.dtype.element_ty))


@triton.jit
def bounded(a, out, KIND: tl.constexpr, NANS: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.load(a + tl.arange(0, N))
    if KIND == "maximum":
        x = tl.maximum(x, 0.5, propagate_nan=NANS)
    elif KIND == "minimum":
        x = tl.minimum(x, 0.5, propagate_nan=NANS)
    else:
        x = tl.clamp(x, 0.5, 0.75, propagate_nan=NANS)
    tl.store(out + tl.arange(0, N), x)


@triton.jit
def added(a, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, N)
    tl.atomic_add(out + place // 2, tl.load(a + place))


@triton.jit
def multiplied(a, b, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + place, tl.dot(tl.load(a + place), tl.load(b + place)))


def same(what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
    wide, right = found.float(), wanted.float()
    wrong = ~((wide == right) | (wide.isnan() & right.isnan()))
    assert not wrong.any(), f"{what}: {wide[wrong][:4]} instead of {right[wrong][:4]}"


def main() -> None:
    tritonfloats.install()
    source = torch.Generator().manual_seed(1)
    a, b = (torch.randn(N, generator=source).bfloat16() for _ in range(2))
    x, y = a.float(), b.float()
    wanted = {
        "sum of two": x + y, "quotient": x / y, "negative": -x, "chosen": torch.where(x > y, x, y * 2),
        "fma": x * y + x, "constant": x + 1.5, "total": x.sum().expand(N), "largest": x.max().expand(N),
        "whole number": x.int().float(), "half": a.half().float(),
    }  # fmt: skip
    for kind, right in wanted.items():
        out = torch.empty_like(a)
        computed[(1,)](a, b, out, KIND=kind, N=N)
        same(kind, out, right.bfloat16())
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.98, -1.98, 3.99, 448.0, 464.0, 465.0, 61440.0]
    spread = torch.randn(N - len(special), generator=source) * 10 ** torch.linspace(-6, 4, N - len(special))
    values = torch.cat([spread, torch.tensor(special)])
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16):
        most = torch.finfo(dtype).max
        right = (values.clamp(-most, most) if dtype.itemsize == 1 else values).to(dtype)
        narrow, wide = torch.empty(N, dtype=dtype), torch.empty(N)
        converted[(1,)](values, narrow, N=N)
        same(f"to {dtype}", narrow, right)
        converted[(1,)](right, wide, N=N)
        same(f"from {dtype}", wide, right)
    half, top = torch.full((N,), 0.5), torch.full((N,), 0.75)
    for dtype in (torch.float32, torch.bfloat16):
        some = values.to(dtype)
        for nans in (tl.PropagateNan.NONE, tl.PropagateNan.ALL):
            kept = torch.where(some.isnan(), some, 0) if nans == tl.PropagateNan.ALL else 0
            bounds = {
                "maximum": torch.fmax(some, half),
                "minimum": torch.fmin(some, half),
                "clamp": torch.fmin(torch.fmax(some, half), top),
            }
            for kind, bound in bounds.items():
                out = torch.empty_like(some)
                bounded[(1,)](some, out, KIND=kind, NANS=nans, N=N)
                same(f"{kind} of {dtype}, {nans}", out, bound + kept)
    sums = torch.zeros(N // 2, dtype=torch.bfloat16)
    added[(1,)](a, sums, N=N)
    same("atomics", sums, a[::2] + a[1::2])
    left, right = (torch.randint(-3, 4, (32, 32), generator=source).float() for _ in range(2))
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        products = torch.empty(32, 32)
        multiplied[(1,)](left.to(dtype), right.to(dtype), products, N=32)
        same(f"matmul of {dtype}", products, left @ right)


if __name__ == "__main__":
    main()
    print("all agree")

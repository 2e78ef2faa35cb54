"""Rotary position embedding in Triton, in place: one program for each position of a head."""

import triton
import triton.language as tl


@triton.jit
def rope_kernel(x, cos, sin, S, HALF: tl.constexpr):
    head = tl.program_id(0)
    place = tl.program_id(1)
    columns = tl.arange(0, HALF)
    start = x + (head * S + place) * 2 * HALF
    first = tl.load(start + columns).to(tl.float32)
    second = tl.load(start + HALF + columns).to(tl.float32)
    c = tl.load(cos + place * HALF + columns).to(tl.float32)
    s = tl.load(sin + place * HALF + columns).to(tl.float32)
    left = first * c - second * s
    right = second * c + first * s
    tl.store(start + columns, left.to(x.dtype.element_ty))
    tl.store(start + HALF + columns, right.to(x.dtype.element_ty))


def rope(x, cos, sin):
    heads, length, width = x.shape
    rope_kernel[(heads, length)](x, cos, sin, length, HALF=width // 2)

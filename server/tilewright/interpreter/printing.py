"""What `printf` in a kernel prints: each element of a tile by its conversion, as C formats it."""

from __future__ import annotations

import math
import re
from typing import Any

import torch

from tilewright.interpreter.numerics import DType, is_float

_CONVERSION = re.compile(r"%(?P<spec>[-+ #0]*\d*(?:\.\d*)?)(?:hh|h|ll|l|j|z|t|L|q)?(?P<kind>[diouxXeEfFgGaAc%])")


def printed(form: str, arguments: list[tuple[torch.Tensor, DType]]) -> str:
    """The text of a C format and its arguments: tiles of one block, and their dtypes. A tile of rank 1 or more is
    printed in brackets, an axis at a time."""
    left = iter(arguments)

    def convert(found: re.Match[str]) -> str:
        if found["kind"] == "%":
            return "%"
        value, dtype = next(left)
        return _nested(value.tolist(), found["spec"], found["kind"], dtype)

    return _CONVERSION.sub(convert, form)


def _nested(value: Any, spec: str, kind: str, dtype: DType) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_nested(item, spec, kind, dtype) for item in value)}]"
    return _one(value, spec, kind, dtype)


def _one(value: Any, spec: str, kind: str, dtype: DType) -> str:
    if kind in "aA":
        text = value.hex() if math.isfinite(value) else str(value)
        return f"%{spec.partition('.')[0]}s" % (text.upper() if kind == "A" else text)
    if is_float(dtype):
        return str(f"%{spec}{kind}" % value)
    bits = 64 if int(dtype.bitwidth) == 64 else 32  # C promotes what is smaller to int
    value = int(value) % (1 << bits)
    if kind in "di" and value >> (bits - 1):
        value -= 1 << bits
    return str(f"%{spec}{kind}" % value)

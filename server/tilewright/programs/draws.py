"""Contents of a program's inputs for whoever has no task that draws them."""

from __future__ import annotations

import numpy as np

from tilewright.programs.model import Program, Tensor

_FLOATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
_COMPLEX = {"complex32": np.float16, "complex64": np.float32, "complex128": np.float64}
_SMALL_FLOAT8 = 0x38
"""Bit patterns below it are, in every float8 format of torch, numbers of at most about one."""


def draws_of(program: Program, count: int, seed: int = 0) -> list[list[bytes]]:
    """Contents of the inputs, in their order, by draw. An example's elements are rotated by another distance each
    time, so that no draw is what the entry point saw; those of a constant input stay as they are. Without an example:
    normal values for floats, and zeros for whole numbers, which can be indices."""
    source = np.random.default_rng(seed)
    return [[_content(program, tensor, source) for tensor in program.layout.inputs] for _ in range(count)]


def examples_of(program: Program) -> list[bytes]:
    """Contents of the inputs as the entry point saw them, where the program has them, else drawn."""
    source = np.random.default_rng(0)
    return [program.examples.get(tensor.name) or _drawn(tensor, source) for tensor in program.layout.inputs]


def _content(program: Program, tensor: Tensor, source: np.random.Generator) -> bytes:
    example = program.examples.get(tensor.name)
    if not example:
        return _drawn(tensor, source)
    if tensor.name in program.constant:
        return example
    elements = np.frombuffer(example, np.dtype((np.void, tensor.spec.item_bytes)))
    return np.roll(elements, source.integers(1, max(len(elements), 2))).tobytes()


def _drawn(tensor: Tensor, source: np.random.Generator) -> bytes:
    dtype, span = tensor.spec.dtype, tensor.spec.span
    if dtype == "bfloat16":
        return (source.standard_normal(span, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    if dtype in _FLOATS:
        return source.standard_normal(span).astype(_FLOATS[dtype]).tobytes()
    if dtype in _COMPLEX:
        return source.standard_normal(2 * span).astype(_COMPLEX[dtype]).tobytes()
    if dtype.startswith("float8"):
        return source.integers(0, _SMALL_FLOAT8, span, np.uint8).tobytes()
    return bytes(tensor.size)

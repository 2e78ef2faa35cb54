"""Tensors between processes: a description in the message, the bytes in a buffer or in shared device memory."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field

from tilewright.gpu.memory import DeviceBuffer
from tilewright.records import Record

Scalar = int | float | str | bool | None

POISON = 0xFF
"""A byte that makes NaN in every float dtype when repeated, and an absurd number in every integer one."""


class TensorSpec(Record):
    """A tensor's dtype, shape and strides (in elements)."""

    dtype: str
    shape: list[int]
    stride: list[int]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        return cls(
            dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape), stride=list(tensor.stride())
        )

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"{self.dtype!r} is no torch dtype")
        return dtype

    @property
    def span(self) -> int:
        """Elements from the tensor's first to its last in memory, both counted."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))

    @property
    def span_bytes(self) -> int:
        return self.span * self.torch_dtype.itemsize

    def over(self, raw: torch.Tensor) -> torch.Tensor:
        """The tensor whose memory starts at the first byte of the uint8 tensor `raw`."""
        return raw[: self.span_bytes].view(self.torch_dtype).as_strided(self.shape, self.stride)


class Argument(Record):
    """One keyword argument of the entry point: a plain value, or a tensor and where its bytes are.

    A tensor's bytes are in the frame's buffer number `buffer`, or on the device behind `handle` (hexadecimal).
    """

    name: str
    value: Scalar = None
    special: Literal["", "inf", "-inf", "nan"] = Field("", description="a float that JSON has no number for")
    tensor: TensorSpec | None = None
    buffer: int | None = None
    handle: str | None = Field(None, max_length=256)
    offset: int = Field(0, ge=0, description="bytes from the start of the memory behind `handle`")
    whole: int = Field(0, ge=0, description="bytes behind `handle`; 0 where they are this tensor's alone")


def plain_argument(name: str, value: Scalar) -> Argument:
    """An argument that is no tensor."""
    if isinstance(value, float) and not math.isfinite(value):
        special: Literal["inf", "-inf", "nan"] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return Argument(name=name, special=special)
    return Argument(name=name, value=value)


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, from its first element to its last, as a contiguous uint8 tensor."""
    span = TensorSpec.of(tensor).span
    return torch.as_strided(tensor.detach(), (span,), (1,), tensor.storage_offset()).contiguous().view(torch.uint8)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same bytes."""
    return one.shape == other.shape and torch.equal(raw_bytes(one), raw_bytes(other))


def to_buffer(tensor: torch.Tensor) -> memoryview:
    """A CPU tensor's memory for a frame."""
    return memoryview(raw_bytes(tensor).numpy().data) if tensor.numel() else memoryview(b"")


def from_buffer(spec: TensorSpec, buffer: bytearray) -> torch.Tensor:
    """The CPU tensor that a frame's buffer holds. Raises ValueError where the buffer is of another size."""
    if len(buffer) != spec.span_bytes:
        raise ValueError(f"{spec.span_bytes} bytes were announced, {len(buffer)} came")
    if not buffer:
        return torch.empty(spec.shape, dtype=spec.torch_dtype)
    return spec.over(torch.frombuffer(buffer, dtype=torch.uint8))


def poison(tensor: torch.Tensor) -> None:
    """Fill a contiguous tensor with what no kernel means to leave."""
    tensor.reshape(-1).view(torch.uint8).fill_(POISON)


class SharedTensor:
    """A tensor in device memory of its own that a worker can open."""

    def __init__(self, spec: TensorSpec) -> None:
        self.spec = spec
        self._buffer = DeviceBuffer(spec.span_bytes)
        self.raw = self._buffer.tensor()
        self.tensor = spec.over(self.raw) if spec.span else torch.empty(spec.shape, dtype=spec.torch_dtype).cuda()

    def argument(self, name: str) -> Argument:
        return Argument(name=name, tensor=self.spec, handle=self._buffer.handle.hex())

    def fill_from(self, tensor: torch.Tensor) -> None:
        """Copy another tensor of the same spec, gaps between its elements included."""
        if self.spec.span:
            self.raw.copy_(raw_bytes(tensor))

    def copy(self) -> torch.Tensor:
        """A tensor of the same spec with the values of now, gaps between its elements included."""
        return self.spec.over(self.raw.clone()) if self.spec.span else self.tensor.clone()

    def poison(self) -> None:
        """Fill with what no kernel means to leave."""
        self.raw.fill_(POISON)


Memory = dict[str, DeviceBuffer]
"""Device memory that a worker has opened, by handle: one handle opens once."""


def opened(argument: Argument, buffers: list[bytearray], memory: Memory | None = None) -> Any:
    """The value of an argument as a worker gets it; `memory` holds what several arguments share."""
    if argument.special:
        return float(argument.special)
    if argument.tensor is None:
        return argument.value
    spec = argument.tensor
    if argument.handle is not None:
        if not spec.span:
            return torch.empty(spec.shape, dtype=spec.torch_dtype, device="cuda")
        if not argument.whole or memory is None:
            return spec.over(DeviceBuffer(spec.span_bytes, bytes.fromhex(argument.handle)).tensor())
        if argument.handle not in memory:
            memory[argument.handle] = DeviceBuffer(argument.whole, bytes.fromhex(argument.handle))
        return spec.over(memory[argument.handle].tensor()[argument.offset :])
    if argument.buffer is None:
        raise ValueError(f"argument {argument.name} has neither buffer nor handle")
    return from_buffer(spec, buffers[argument.buffer])

"""Tensors between processes: a description in the message, the bytes in a buffer or in shared device memory."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import Field

from tilewright.gpu.memory import DeviceBuffer
from tilewright.wire.channel import Received
from tilewright.wire.messages import CallArgument
from tilewright.wire.tensors import TensorSpec

POISON = 0xFF
"""A byte that makes NaN in every float dtype when repeated, and an absurd number in every integer one."""


GUARD = 4096
"""Bytes of a red zone before and after a checked argument, filled with POISON: a multiple of every alignment."""


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors that a function returned. Numbers and words beside them are not compared. Raises TypeError for
    anything else, whose tensors would be left out, and if there is no tensor."""
    found = list(result) if isinstance(result, tuple | list) else [result]
    strange = [one for one in found if not isinstance(one, torch.Tensor | int | float | str)]
    tensors = [one for one in found if isinstance(one, torch.Tensor)]
    if strange or not tensors:
        one = (strange or [result])[0]
        raise TypeError("returned nothing (None)" if one is None else f"returned a {type(one).__name__}")
    return tensors


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """What a tensor's bytes mean."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return TensorSpec(dtype=dtype, shape=list(tensor.shape), stride=list(tensor.stride()))


def dtype_of(spec: TensorSpec) -> torch.dtype:
    """Raises ValueError for what is no dtype of torch."""
    dtype = getattr(torch, spec.dtype, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{spec.dtype!r} is no torch dtype")
    return dtype


def over(spec: TensorSpec, raw: torch.Tensor) -> torch.Tensor:
    """The tensor whose memory starts at the first byte of the uint8 tensor `raw`."""
    return raw[: spec.span_bytes].view(dtype_of(spec)).as_strided(spec.shape, spec.stride)


class Argument(CallArgument):
    """A keyword argument of the entry point. A tensor whose bytes are in no buffer is on the device behind `handle`
    (hexadecimal); `before` bytes before them and `after` bytes after them are red zones."""

    handle: str | None = Field(None, max_length=256)
    before: int = Field(0, ge=0)
    after: int = Field(0, ge=0)


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor spans, from its first element to its last, as a contiguous uint8 tensor."""
    span = spec_of(tensor).span
    return torch.as_strided(tensor.detach(), (span,), (1,), tensor.storage_offset()).contiguous().view(torch.uint8)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have one shape and the same bytes."""
    return one.shape == other.shape and torch.equal(raw_bytes(one), raw_bytes(other))


def to_buffer(tensor: torch.Tensor) -> memoryview:
    """A CPU tensor's memory for a frame."""
    return memoryview(raw_bytes(tensor).numpy().data) if tensor.numel() else memoryview(b"")


def from_buffer(spec: TensorSpec, buffer: Received, before: int = 0, after: int = 0) -> torch.Tensor:
    """The CPU tensor that a frame's buffer holds; its storage ends where the tensor does. Raises ValueError where the
    buffer is of another size."""
    if len(buffer) != before + spec.span_bytes + after:
        raise ValueError(f"{before + spec.span_bytes + after} bytes were announced, {len(buffer)} came")
    if not spec.span:
        return torch.empty(spec.shape, dtype=dtype_of(spec))
    return over(spec, torch.frombuffer(buffer, dtype=torch.uint8, offset=before, count=spec.span_bytes))


def guarded(tensor: torch.Tensor, before: int, after: int) -> memoryview:
    """A CPU tensor's memory for a frame, between red zones."""
    zones = torch.full((before,), POISON, dtype=torch.uint8), torch.full((after,), POISON, dtype=torch.uint8)
    inner = raw_bytes(tensor) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
    return memoryview(torch.cat((zones[0], inner, zones[1])).numpy().data)


def trespass(raw: torch.Tensor, before: int, after: int) -> str:
    """Where a red zone of the uint8 tensor `raw` was written to, in words; empty where both are whole."""
    for zone, what in ((raw[:before].flip(0), "before its first"), (raw[len(raw) - after :], "behind its last")):
        hit = torch.nonzero(zone != POISON).reshape(-1)
        if len(hit):
            return f"{len(hit)} bytes changed from {int(hit[0])} bytes {what} element on"
    return ""


def poison(tensor: torch.Tensor) -> None:
    """Fill a contiguous tensor with what no kernel means to leave."""
    tensor.reshape(-1).view(torch.uint8).fill_(POISON)


class SharedTensor:
    """A tensor in device memory of its own that a worker can open, `before` bytes into it, `after` bytes from its end;
    those are red zones."""

    def __init__(self, spec: TensorSpec, before: int = 0, after: int = 0) -> None:
        self.spec = spec
        self._before, self._after = before, after
        self._buffer = DeviceBuffer(before + spec.span_bytes + after)
        self._whole = self._buffer.tensor()
        if before or after:
            self._whole.fill_(POISON)
        self.raw = self._whole[before : before + spec.span_bytes]
        self.tensor = over(spec, self.raw) if spec.span else torch.empty(spec.shape, dtype=dtype_of(spec)).cuda()

    def argument(self, name: str) -> Argument:
        handle = self._buffer.handle.hex()
        return Argument(name=name, tensor=self.spec, handle=handle, before=self._before, after=self._after)

    def trespass(self) -> str:
        """Where a red zone was written to, in words; empty where both are whole."""
        return trespass(self._whole, self._before, self._after)

    def fill_from(self, tensor: torch.Tensor) -> None:
        """Copy another tensor of the same spec, gaps between its elements included."""
        if self.spec.span:
            self.raw.copy_(raw_bytes(tensor))

    def copy(self) -> torch.Tensor:
        """A tensor of the same spec with the values of now, gaps between its elements included."""
        return over(self.spec, self.raw.clone()) if self.spec.span else self.tensor.clone()

    def poison(self) -> None:
        """Fill with what no kernel means to leave."""
        self.raw.fill_(POISON)


def opened(argument: Argument, buffers: list[Received]) -> Any:
    """The value of an argument as a worker gets it."""
    spec = argument.tensor
    if spec is None:
        return argument.said
    if argument.handle is not None:
        if not spec.span:
            return torch.empty(spec.shape, dtype=dtype_of(spec), device="cuda")
        size = argument.before + spec.span_bytes + argument.after
        raw = DeviceBuffer(size, bytes.fromhex(argument.handle)).tensor()
        return over(spec, raw[argument.before : argument.before + spec.span_bytes])
    return from_buffer(spec, buffers[argument.data], argument.before, argument.after)

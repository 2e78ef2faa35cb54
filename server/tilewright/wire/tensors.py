"""What a tensor's bytes mean, without torch."""

from __future__ import annotations

from pydantic import Field

from tilewright.wire.record import Record

ITEM_BYTES = {
    "bool": 1, "uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8,
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}  # fmt: skip
"""Bytes of an element, by torch's name of its dtype."""
MAX_DIMENSIONS = 64


class TensorSpec(Record):
    """A tensor's dtype (torch's name), shape and strides (in elements)."""

    dtype: str
    shape: list[int] = Field(max_length=MAX_DIMENSIONS)
    stride: list[int] = Field(max_length=MAX_DIMENSIONS)

    @property
    def span(self) -> int:
        """Elements from the tensor's first to its last in memory, both counted."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.stride, strict=True))

    @property
    def item_bytes(self) -> int:
        """Bytes of an element. Raises ValueError for a dtype that torch does not have."""
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"{self.dtype!r} is no torch dtype")
        return ITEM_BYTES[self.dtype]

    @property
    def span_bytes(self) -> int:
        return self.span * self.item_bytes

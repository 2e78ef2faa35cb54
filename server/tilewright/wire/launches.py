"""What a GPU was asked to do by one call, as a worker tells it and as a device program has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tilewright.wire.record import Record

MAX_SYMBOL = 8192
"""Characters of a kernel's symbol."""
MAX_LAUNCHES = 16384
"""Launches of one call; a device program has fewer."""
Count = Annotated[int, Field(ge=0, lt=1 << 32)]
Bytes = Annotated[int, Field(ge=0, lt=1 << 64)]
Sizes = Annotated[tuple[Count, Count, Count], Field(strict=False)]
"""Not strict: JSON has lists in place of tuples. The numbers in it are."""


class Part(Record):
    model_config = ConfigDict(strict=True)


class KernelLaunch(Part):
    """A kernel by its mangled symbol."""

    kind: Literal["kernel"] = "kernel"
    symbol: str = Field(min_length=1, max_length=MAX_SYMBOL)
    grid: Sizes


class MemsetLaunch(Part):
    """A memset by all the bytes that it sets."""

    kind: Literal["memset"] = "memset"
    size: Bytes


class CopyLaunch(Part):
    """A copy by its bytes, and from where to where it leads."""

    kind: Literal["copy"] = "copy"
    size: Bytes
    way: Literal["on the GPU", "to the GPU", "to the host", "elsewhere"] = "on the GPU"


Launch = Annotated[KernelLaunch | MemsetLaunch | CopyLaunch, Field(discriminator="kind")]

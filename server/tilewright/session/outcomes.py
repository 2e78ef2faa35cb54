"""What runs give that only look at candidates: dumps, modelled figures and races."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tilewright.compiler.compilation import Compilation
from tilewright.evaluation.results import Modelled, Raced, Status
from tilewright.roofline.model import HostWork
from tilewright.task import Case
from tilewright.wire.record import Record

Extent = Annotated[int, Field(ge=0, lt=2**63)]


class DumpedKernel(Record):
    """A kernel that a call launches, compiled for one architecture, and the grid of its first
    launch."""

    grid: list[Extent] = Field(max_length=3)
    made: Compilation


class Dumped(Record):
    """What a candidate's call launches, compiled; the torch operations of a torch task; or why that is not known."""

    status: Status
    message: str = ""
    case: str = ""
    kernels: list[DumpedKernel] = Field(default_factory=list)
    operations: list[HostWork] = Field(default_factory=list)


class ModelResult(Record):
    """What the model says of each variant, in their order, on `cases`."""

    status: Status
    message: str = ""
    cases: list[Case] = Field(default_factory=list)
    variants: list[Modelled] = Field(default_factory=list)


class RaceResult(Record):
    """How each variant did on each of `cases`, in their order."""

    status: Status
    message: str = ""
    cases: list[Case] = Field(default_factory=list)
    configs: list[list[Raced]] = Field(default_factory=list)

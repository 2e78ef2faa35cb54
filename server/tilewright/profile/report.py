"""What `profile` answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tilewright.evaluation.results import Status
from tilewright.profile.diagnosis import CaseDiagnosis
from tilewright.records import Record


class ProfileReport(Record):
    """What bounds the candidate."""

    summary: str = Field(description="what bounds the case that is furthest from its roofline")
    state: Literal["done", "running"] = Field("done", description="running: call the same tool again to go on waiting")
    status: Status | None = None
    message: str = ""
    device: str = ""
    modelled: bool = Field(False, description="no clock was read")
    cases: list[CaseDiagnosis] = Field(default_factory=list)
    counters: str = Field("", description="how counters were read, or why not; the evidence says what they show")
    would_add: str = Field("", description="what counters would tell beyond this")
    next: str = ""

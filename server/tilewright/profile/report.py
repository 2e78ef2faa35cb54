"""What `profile` answers."""

from __future__ import annotations

from pydantic import Field

from tilewright.evaluation.results import Status
from tilewright.profile.diagnosis import CaseDiagnosis
from tilewright.session.reports import RunState
from tilewright.wire.record import Record


class ProfileReport(Record):
    """What bounds the candidate."""

    summary: str = Field(description="about the case furthest from its roofline")
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    device: str = ""
    modelled: bool = Field(False, description="a model gave the latency")
    cases: list[CaseDiagnosis] = Field(default_factory=list)
    counters: str = Field("", description="how they were read, or why not")
    left_out: str = Field("", description="what was not looked at, and why")
    next: str = ""

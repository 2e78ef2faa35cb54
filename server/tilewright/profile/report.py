"""What `profile` answers."""

from __future__ import annotations

from pydantic import Field

from tilewright.evaluation.results import Status
from tilewright.profile.diagnosis import CaseDiagnosis
from tilewright.profile.kernels import CallKernels
from tilewright.session.dumptext import SHOWN_CHARACTERS
from tilewright.session.reports import RunState
from tilewright.wire.record import Record


class ProfileReport(Record):
    """What bounds the candidate."""

    summary: str = Field(description="of the case furthest from its roofline")
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    device: str = ""
    modelled: bool = Field(False, description="no clock was read")
    cases: list[CaseDiagnosis] = Field(default_factory=list)
    counters: str = Field("", description="how they were read, or why not")
    kernels: str = Field("", description="how those of a call were recorded, or why not")
    would_add: str = ""
    left_out: str = Field("", description="what was not looked at")
    next: str = ""

    def fitted(self) -> ProfileReport:
        """The same with as many rows in its tables of kernels as an answer has room for, else without the tables."""
        found = self
        for rows in (12, 8, 6, 4, 2, 1, 0):
            cases = [case.model_copy(update={"kernels": _of_rows(case.kernels, rows)}) for case in self.cases]
            found = self.model_copy(update={"cases": cases})
            if len(found.model_dump_json()) <= SHOWN_CHARACTERS:
                return found
        return found


def _of_rows(call: CallKernels | None, rows: int) -> CallKernels | None:
    """The table's `rows` that take most of a call, in their order; None for no rows: the evidence has the figures."""
    if call is None or not rows:
        return None
    dearest = sorted(call.kernels, key=lambda row: -row.launches * row.med_us)[:rows]
    kept = [row for row in call.kernels if row in dearest]
    return call.model_copy(update={"kernels": kept, "more_kernels": len(call.kernels) - len(kept)})

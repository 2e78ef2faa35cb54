"""What the tools answer: short, structured, the first line says it all. Full detail is in the journal."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainSerializer

from tilewright.evaluation.results import Level, Status
from tilewright.policy import Advice, Verdict
from tilewright.wire.record import Record

Figure = Annotated[float, PlainSerializer(lambda value: float(f"{value:.6g}"), return_type=float)]
"""Of which a reply has six digits; the journal has all."""
RunState = Literal["done", "running"]
"""`running`: the same call again waits for it."""


NAME_LIMIT = 120
"""Characters of an optimization's name in the table."""


class StatusReport(Record):
    """Where the loop stands; enough to go on from, without any memory of how it came here."""

    summary: str
    session: str = ""
    task: str = ""
    state: RunState = "done"
    backend: str = ""
    device: str = ""
    intensity: str = Field("", description="flops per byte, and what to try first")
    branch: str = ""
    phase: str = ""
    iteration: int = 0
    editable: list[str] = Field(default_factory=list)
    incumbent: str = Field("", description="what a candidate has to beat")
    pending: str = Field("", description="the candidate under way")
    tried: list[str] = Field(default_factory=list, description="every iteration: its row of the table, and why")
    budget: str = ""
    notes: list[str] = Field(default_factory=list, description="what the task leaves open")
    next: str = ""
    files: dict[str, str] = Field(default_factory=dict)


class IterationReport(Record):
    """A whole iteration, or a step of it."""

    summary: str
    state: RunState = "done"
    status: Status | None = Field(None, description="how check and benchmark ended: the first failure, if any")
    candidate: str | None = Field(None, description="SHA-256 over the files that were judged")
    verdict: Verdict | None = Field(
        None, description="keep, revert or crash, and the reason; absent until it is decided"
    )
    latency_ms: Figure | None = Field(None, description="geometric mean over the cases")
    speedup: Figure | None = Field(None, description="incumbent's time over candidate's, paired")
    interval: tuple[Figure, Figure] | None = Field(None, description="confidence interval of speedup")
    level: Level | None = Field(None, description="level of the least protected case")
    message: str | None = Field(None, description="where and how the candidate failed")
    output: str | None = Field(None, description="what the candidate printed last")
    cases: str | None = Field(
        None,
        description="how each case ended, failures first; of a measured candidate, what each gains or loses, how near "
        "it is to its ceiling, and what its figure does not say",
    )
    row: str | None = None
    advice: Advice | None = None
    commit: str | None = Field(None, description="of the kept edit")
    recovery: str | None = Field(None, description="ref that keeps the reverted files")
    next: str


class DumpReport(Record):
    """What the compiler made of the candidate."""

    summary: str = Field(description="a line for each kernel")
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    case: str = ""
    findings: list[str] = Field(
        default_factory=list,
        description="what costs time, of each kernel the dearest first: kernel, where, evidence, treatment, what to do",
    )
    text: str = Field("", description="the start of the stage asked for")
    file: str = Field("", description="file that holds all of it")
    next: str = ""

"""What a search found, as data: short for the tool's answer, whole in `sandbox/autotune/`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from tilewright.evaluation.results import Status
from tilewright.knobs import Value
from tilewright.policy import Ratio
from tilewright.session.reports import Figure, RunState
from tilewright.text import cut
from tilewright.wire.record import Record

Place = Literal["best", "measured", "modelled", "pruned", "failed"]


class Tried(Record):
    """One config: how it did, or why it was not tried further."""

    config: dict[str, Value] = Field(description="what it sets; empty for the original")
    place: Place
    why: str = Field("", description="why it was pruned or failed")
    ms: dict[str, Figure] = Field(default_factory=dict, description="latency by case")
    by_case: dict[str, Ratio] = Field(default_factory=dict, description="speedup over the original in each case")
    speedup: Ratio | None = Field(None, description="geometric mean over the cases")

    @property
    def line(self) -> str:
        parts = [self.place, str(self.speedup or ""), cut(self.why, 200)]
        return f"{label(self.config)}: {', '.join(filter(None, parts))}"


class SearchResult(Record):
    """A whole search. `tried` is ranked, the best first; the original is among them."""

    status: Status
    message: str = ""
    task: str
    space: str = Field("", description="how the space was come by")
    backend: str
    device: str = ""
    cases: list[str] = Field(default_factory=list)
    tried: list[Tried] = Field(default_factory=list)
    best: dict[str, Value] = Field(default_factory=dict, description="best over all cases; empty for the original")
    best_by_case: dict[str, dict[str, Value]] = Field(default_factory=dict)
    confirmed: Ratio | None = Field(None, description="of the best, measured anew against the original")
    confirmation: str = Field("", description="why the original stays")
    checked: list[dict[str, Value]] = Field(
        default_factory=list, description="configs whose results were compared with the reference, the original first"
    )
    seconds: float = 0.0


class AutotuneReport(Record):
    """What `autotune` answers."""

    summary: str
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    space: str = ""
    best: dict[str, Value] = Field(default_factory=dict, description="best config over all cases; empty: the original")
    best_by_case: dict[str, str] = Field(default_factory=dict, description="cases with another best config")
    configs: list[str] = Field(default_factory=list, description="best first; the rest is in the file")
    files: dict[str, str] = Field(default_factory=dict, description="what was written, or why not")
    next: str = ""


def label(config: Mapping[str, Value]) -> str:
    """A config as one short line."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "as it is"

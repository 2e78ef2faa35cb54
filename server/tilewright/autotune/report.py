"""What a search found, as data: short for the tool's answer, whole in `sandbox/autotune/`."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from tilewright.compiler.resources import Resources
from tilewright.evaluation.results import Status
from tilewright.knobs import Value
from tilewright.session.reports import Figure, RunState
from tilewright.wire.record import Record

LEAST_VALUES = 3
"""Of a knob, from which on the first and the last may be called an end: of two each is one."""
Place = Literal["best", "measured", "modelled", "pruned", "failed"]


class Speedup(Record):
    """A speedup over the original config, with its interval."""

    value: float
    low: float
    high: float


class Tried(Record):
    """One config: how it did, or why it was not tried further."""

    config: dict[str, Value] = Field(description="what it sets; empty for the original")
    place: Place
    why: str = Field("", description="why it was pruned or failed")
    ms: dict[str, float] = Field(default_factory=dict, description="latency by case; of the model where modelled")
    by_case: dict[str, Speedup] = Field(default_factory=dict, description="speedup over the original in each case")
    speedup: Speedup | None = Field(None, description="geometric mean over the cases")
    resources: Resources | None = Field(None, description="of the launch that takes longest")
    modelled_ms: float | None = Field(None, description="the model's geometric mean over the cases")

    @property
    def label(self) -> str:
        return label(self.config)


class SearchResult(Record):
    """A whole search. `tried` is ranked, the best first; the original is among them."""

    status: Status
    message: str = ""
    task: str
    space: str = Field("", description="how the space was come by")
    warning: str = ""
    backend: str
    device: str = ""
    toolkit: str = ""
    modelled: bool = False
    cases: list[str] = Field(default_factory=list)
    tried: list[Tried] = Field(default_factory=list)
    original: dict[str, Value] = Field(
        default_factory=dict, description="the searched parameters' values in the source"
    )
    best: dict[str, Value] = Field(default_factory=dict, description="best over all cases; empty for the original")
    best_by_case: dict[str, dict[str, Value]] = Field(default_factory=dict)
    loss: float = Field(0.0, description="what the one best config loses against the best of each case, as a share")
    launched: list[str] = Field(
        default_factory=list, description="the kernels that the cases launch, if a model saw it"
    )
    confirmed: Speedup | None = Field(None, description="of the best, measured anew against the original")
    confirmation: str = ""
    checked: list[dict[str, Value]] = Field(
        default_factory=list, description="configs whose results were compared with the reference, the original first"
    )
    seconds: float = 0.0

    @property
    def left_open(self) -> list[str]:
        """What the ranking does not settle, a line each: ties with the best, and knobs at an end of their values."""
        best = next((one for one in self.tried if one.place == "best"), None)
        if best is None or best.speedup is None:
            return []
        low = best.speedup.low
        equal = [one.label for one in self.tried if one is not best and one.speedup and one.speedup.high >= low]
        said = [f"not distinguished from the best: {', '.join(equal[:3])}{_more(len(equal) - 3)}"] if equal else []
        for name, value in (self.original | best.config).items():
            given = [(self.original | one.config).get(name) for one in self.tried]
            numbers = {one for one in given if isinstance(one, int)}
            if len(numbers) < LEAST_VALUES or value not in (min(numbers), max(numbers)):
                continue
            which = "largest" if value == max(numbers) else "smallest"
            said.append(f"{name}={value} is the {which} that was tried: the best may lie beyond it")
        return said


class ConfigReport(Record):
    """One line of the ranked table."""

    config: str
    place: Place
    speedup: Figure | None = None
    interval: tuple[Figure, Figure] | None = None
    resources: str = ""
    why: str = ""


class AutotuneReport(Record):
    """What `autotune` answers."""

    summary: str
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    space: str = ""
    warning: str = ""
    best: dict[str, Value] = Field(default_factory=dict, description="the one best config; empty for the original")
    best_by_case: dict[str, str] = Field(default_factory=dict, description="where it differs")
    configs: list[ConfigReport] = Field(default_factory=list, description="ranked; the rest is in the file")
    more_configs: int = 0
    left_open: list[str] = Field(default_factory=list, description="ties, and best values at an end")
    files: dict[str, str] = Field(default_factory=dict, description="what was written, or why not")
    next: str = ""


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""


def label(config: dict[str, Value]) -> str:
    """A config as one short line."""
    return " ".join(f"{name}={value}" for name, value in config.items()) or "as it is"


def geometric(speedups: list[Speedup]) -> Speedup:
    """The geometric mean of speedups of independent cases, with its interval."""
    count = len(speedups)
    mean = math.fsum(math.log(one.value) for one in speedups) / count
    low = math.sqrt(math.fsum(math.log(one.value / one.low) ** 2 for one in speedups)) / count
    high = math.sqrt(math.fsum(math.log(one.high / one.value) ** 2 for one in speedups)) / count
    return Speedup(value=math.exp(mean), low=math.exp(mean - low), high=math.exp(mean + high))


def occupied(resources: Resources) -> str:
    """What a config's kernel occupies, in a few words."""
    parts = [f"{resources.registers} registers"]
    if resources.spill_bytes:
        parts.append(f"spills {resources.spill_bytes} bytes")
    parts.append(f"{resources.shared_bytes / 1024:.0f} KiB shared")
    if resources.ctas_per_sm is not None:
        parts.append(f"{resources.warps_per_sm} warps a SM")
    return ", ".join(parts)

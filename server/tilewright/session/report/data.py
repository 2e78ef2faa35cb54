"""What a report shows, as data. The adapter makes it of a session's records; the renderers read nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tilewright.evaluation.results import KernelUse, Level, Sustained
from tilewright.policy import Ratio, Reason


class Outcome(StrEnum):
    """What became of an iteration."""

    BASELINE = "baseline"
    KEPT = "kept"
    REVERTED = "reverted"
    WRONG = "wrong"
    CRASHED = "crashed"


REASONS = {
    Reason.BASELINE: "The kernel as it was.",
    Reason.GAIN: "Significantly faster",
    Reason.INCONCLUSIVE: "No significant difference",
    Reason.REGRESSION: "Significantly slower",
    Reason.MEMORY: "It takes too much memory",
    Reason.SAME_PROGRAM: "It does the same on the GPU",
    Reason.NOT_REPLAYED: "Its call cannot be replayed",
    Reason.OTHER_LAUNCHES: "An ordinary call launches something else",
    Reason.INCORRECT: "Its results are wrong",
    Reason.CRASHED: "It gave no result",
    Reason.TIMEOUT: "It did not end",
    Reason.TAMPERED: "It did less work than the task requires",
    Reason.WITHDRAWN: "The agent took it back before a verdict",
}
"""The beginning of the sentence that says why an iteration ended so."""

LEVELS = {
    Level.REPLAYED: "The referee replayed what each version launches on the GPU. No Python of the kernel ran then.",
    Level.IN_PROCESS: "Timed in the kernel's own process. Its Python code may deceive the clock: read the diff.",
    Level.HARNESS: "The repository's own tests and benchmark judged it, and are trusted.",
    Level.MODELLED: "No GPU was used: a model of the GPU gave all latencies. Measure the kernel on a GPU.",
}
"""What the level of a measurement leaves to be believed."""


@dataclass(frozen=True)
class CaseFigures:
    """One case before and after. Percents are shares of the nearest ceiling; `rate` is what the call reaches."""

    label: str
    before_ms: float | None
    after_ms: float
    speedup: Ratio | None
    sustained: Sustained | None
    bound: str
    percent_before: float | None
    percent: float | None
    rate_before: str
    rate: str
    memory_before: int | None
    memory: int | None
    note: str


@dataclass(frozen=True)
class KernelChange:
    """What a kernel occupies before and after an iteration; None where it is not known or not launched."""

    name: str
    before: KernelUse | None
    after: KernelUse | None


@dataclass(frozen=True)
class Iteration:
    """One row. `speedup` is over the incumbent, `total` over the baseline; `doubts` say what not to trust."""

    number: int
    name: str
    outcome: Outcome
    reason: Reason
    detail: str
    latency: str
    speedup: Ratio | None
    total: Ratio | None
    sustained: Sustained | None
    doubts: tuple[str, ...]
    cases: tuple[CaseFigures, ...]
    kernels: tuple[KernelChange, ...]
    diff: str
    restore: str
    checked: str
    """What it was right on; empty where it was wrong, or was not checked."""

    @property
    def why(self) -> str:
        """The reason, in a sentence without its evidence."""
        return REASONS[self.reason]


@dataclass(frozen=True)
class Session:
    """A session. `speedup` compares what it kept last with its baseline: `direct`, in one run, or by the `product` of
    all keeps; `how` says which. `doubts` say what to know before its figures are trusted."""

    name: str
    task: str
    folder: str
    began: str
    until: str
    ended: str
    advice: str
    branch: str
    base: str
    device: str
    level: Level | None
    speedup: Ratio
    how: str
    product: Ratio
    direct: bool
    sustained: Sustained | None
    before_ms: float | None
    after_ms: float | None
    doubts: tuple[str, ...]
    cases: tuple[CaseFigures, ...]
    iterations: tuple[Iteration, ...]
    configs: tuple[tuple[str, str, str], ...]
    environment: tuple[tuple[str, str], ...]

    @property
    def modelled(self) -> bool:
        """Whether latencies come from a model, not from a clock."""
        return self.level is Level.MODELLED

    def count(self, outcome: Outcome) -> int:
        return sum(iteration.outcome == outcome for iteration in self.iterations)

    @property
    def ceiling(self) -> str:
        return "assumed ceiling" if self.modelled else "measured ceiling"

    @property
    def minutes(self) -> int:
        """From its first record to its last."""
        return round((datetime.fromisoformat(self.until) - datetime.fromisoformat(self.began)).total_seconds() / 60)

    @property
    def checked(self) -> str:
        """What the version that it ends with was right on."""
        kept = [row for row in self.iterations if row.outcome in (Outcome.BASELINE, Outcome.KEPT)]
        return kept[-1].checked if kept else ""

    @property
    def next_steps(self) -> list[tuple[str, str]]:
        """What can be done with the session, each with its command."""
        steps = [("what limits the kernel now", f"tilewright profile {self.folder}")]
        if self.gained:
            steps.append(("a clean branch of what was kept", f"tilewright finish {self.name}"))
            steps.append(("the text of its pull request", f"tilewright report {self.name} --pr"))
        return [*steps, ("go on", f"tilewright session start {self.folder}{' --resume' if self.ended else ''}")]

    @property
    def gained(self) -> bool:
        """Whether anything was kept."""
        return self.count(Outcome.KEPT) > 0


@dataclass(frozen=True)
class ReportData:
    """All sessions of a task, the latest first. `unread` names the journals that cannot be shown, each with why."""

    task: str
    sessions: tuple[Session, ...]
    unread: tuple[str, ...] = ()


def times(ratio: Ratio | Sustained, mark: str = "") -> str:
    """A speedup with its interval, in as many digits as the interval allows."""
    return f"{factor(ratio, mark)} ({interval(ratio)})"


def factor(ratio: Ratio | Sustained, mark: str = "") -> str:
    return f"{mark}{ratio.speedup:.{_digits(ratio)}f}×"


def interval(ratio: Ratio | Sustained) -> str:
    digits = _digits(ratio)
    return f"{ratio.low:.{digits}f} to {ratio.high:.{digits}f}"


def _digits(ratio: Ratio | Sustained) -> int:
    return 2 if ratio.high - ratio.low > 0.02 * ratio.speedup else 4 if ratio.high - ratio.low < 0.002 else 3

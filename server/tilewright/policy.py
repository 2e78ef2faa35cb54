"""The decision rules: what a result means for the candidate, and whether the session goes on. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from tilewright.evaluation.results import BenchmarkResult, CaseTiming, CorrectnessResult, Level, Status
from tilewright.rules import Rules
from tilewright.task import case_label
from tilewright.wire.record import Record


class VerdictKind(StrEnum):
    """What becomes of a candidate."""

    KEEP = "keep"
    REVERT = "revert"
    CRASH = "crash"


class Reason(StrEnum):
    """Why."""

    BASELINE = "baseline"
    GAIN = "gain"
    INCONCLUSIVE = "inconclusive"
    REGRESSION = "regression"
    MEMORY = "memory"
    SAME_PROGRAM = "same_program"
    NOT_REPLAYED = "not_replayed"
    OTHER_LAUNCHES = "other_launches"
    INCORRECT = "incorrect"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    TAMPERED = "tampered"
    WITHDRAWN = "withdrawn"


class Verdict(Record):
    """Keep, revert or crash, with its reason and one sentence of evidence."""

    kind: VerdictKind
    reason: Reason
    detail: str = ""

    @property
    def measured(self) -> bool:
        """Whether it rests on a measurement. An incorrect or crashed candidate's does not, nor does one on the same
        program as the incumbent."""
        return self.reason in (Reason.GAIN, Reason.INCONCLUSIVE, Reason.REGRESSION, Reason.MEMORY)


class Advice(Record):
    """Whether the loop goes on after an iteration, and why."""

    action: Literal["continue", "stop", "escalate"]
    reason: str


RootCause = Literal["memory", "compute", "latency", "launch", "scheduling", "unknown"]
"""What bounds a kernel, as a diagnosis names it."""
ESCALATED_CAUSES = ("scheduling", "unknown")


def verdict_of_check(result: CorrectnessResult | BenchmarkResult) -> Verdict | None:
    """The verdict that a run alone settles: none if it passed, or was void."""
    status, first = result.status, result.message.splitlines()[0] if result.message else ""
    detail = f"{status}: {first}" if first else str(status)
    if status.value in set(Reason):  # the reason says it already
        detail = first
    if status in (Status.TAMPERED, Status.NOT_REPLAYED, Status.OTHER_LAUNCHES):
        return Verdict(kind=VerdictKind.REVERT, reason=Reason(status.value), detail=detail)
    if status.is_incorrect:
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.INCORRECT, detail=detail)
    if status.is_crash:
        reason = Reason.TIMEOUT if status is Status.TIMEOUT else Reason.CRASHED
        return Verdict(kind=VerdictKind.CRASH, reason=reason, detail=detail)
    return None


def verdict_of_benchmark(result: BenchmarkResult, rules: Rules) -> Verdict | None:
    """The verdict on a measured candidate: a keep only for a significant gain without a significant loss anywhere."""
    if not result.passed:
        return verdict_of_check(result)
    if result.same:
        text = "the same program as the incumbent in every case: nothing was timed"
        if result.modelled:
            text = "the same machine code as the incumbent, launched in the same way in every case"
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.SAME_PROGRAM, detail=text)
    ratio = ratio_of(result)
    if ratio is None:
        return None
    mark = "~" if result.modelled else ""
    shown = f"{_percent(ratio.speedup, mark)} speed ({_percent(ratio.low, mark)} to {_percent(ratio.high, mark)})"
    for case in result.cases:
        if case.speedup is not None and case.speedup_high is not None and case.speedup_high < 1 - rules.regression:
            detail = f"{_percent(case.speedup, mark)} speed on {case_label(case.case)}"
            if len(result.cases) > 1:
                detail += f"; {shown} over all cases"
            return Verdict(kind=VerdictKind.REVERT, reason=Reason.REGRESSION, detail=detail)
        if case.sustained is not None and case.sustained.high < 1:
            detail = f"{shown}, but {case.sustained} on {case_label(case.case)}"
            return Verdict(kind=VerdictKind.REVERT, reason=Reason.REGRESSION, detail=detail)
        if text := _over_memory(case, rules):
            return Verdict(kind=VerdictKind.REVERT, reason=Reason.MEMORY, detail=text)
    gains, loses = _beyond(ratio, result.level, rules)
    if gains:
        return Verdict(kind=VerdictKind.KEEP, reason=Reason.GAIN, detail=shown)
    if loses:
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.REGRESSION, detail=shown)
    why = (result.message or "within the model's resolution") if result.modelled else "the interval holds zero"
    if ratio.low > 1 or ratio.high < 1:
        least = rules.floor if result.level is Level.REPLAYED else rules.resolution
        why = f"equal versions can differ by {100 * math.expm1(least):.2f}%"
    return Verdict(kind=VerdictKind.REVERT, reason=Reason.INCONCLUSIVE, detail=f"{shown}: {why}")


def _beyond(ratio: Ratio, level: Level | None, rules: Rules) -> tuple[bool, bool]:
    """Whether a speedup is a gain that counts, and whether it is a loss that does. Between replayed programs the gain
    itself has to reach the floor, elsewhere the whole interval has to lie beyond the resolution."""
    if level is Level.REPLAYED:
        least = math.exp(rules.floor)
        return ratio.low > 1 and ratio.speedup >= least, ratio.high < 1 and ratio.speedup <= 1 / least
    least = 1.0 if level is Level.MODELLED else math.exp(rules.resolution)
    return ratio.low > least, ratio.high < 1 / least


def _over_memory(case: CaseTiming, rules: Rules) -> str:
    """In which way a call breaks the rule on memory; empty where it does not."""
    if not rules.peak_memory_mib or case.level is Level.MODELLED:
        return ""
    allowed = f"the rule peak_memory_mib allows {rules.peak_memory_mib:g}"
    if case.peak_bytes is None:
        return f"what a call takes on {case_label(case.case)} is not known, since it is not replayed; {allowed}"
    if case.peak_bytes <= rules.peak_memory_mib * 2**20:
        return ""
    return f"a call takes {case.peak_bytes / 2**20:.1f} MiB of memory on {case_label(case.case)}; {allowed}"


def gains(first: BenchmarkResult, rules: Rules, alone: bool) -> bool:
    """Whether a first benchmark run is a gain, which is then checked on many hidden cases and confirmed. `alone`: the
    baseline's, which has nothing to win against."""
    verdict = None if alone else verdict_of_benchmark(first, rules)
    return first.passed and (alone or (verdict is not None and verdict.kind is VerdictKind.KEEP))


def settled(
    first: BenchmarkResult,
    sizes: CorrectnessResult | None,
    again: BenchmarkResult | None,
    rules: Rules,
    alone: bool = False,
) -> Verdict | None:
    """What a candidate's benchmark settles: nothing where a run of it was void, nor of the baseline. `sizes`: the check
    on many hidden cases of one that gains; `again`: its second run, in which the gain has to show, too."""
    if sizes is not None and not sizes.passed:
        return verdict_of_check(sizes)
    if alone:
        return None
    if first.modelled or not gains(first, rules, alone):
        return verdict_of_benchmark(first, rules)
    verdict = verdict_of_benchmark(again, rules) if again is not None else None
    if verdict is None or verdict.reason not in (Reason.GAIN, Reason.INCONCLUSIVE):
        return verdict
    detail = f"{verdict.detail}, confirmed" if verdict.reason is Reason.GAIN else f"not confirmed: {verdict.detail}"
    return verdict.model_copy(update={"detail": detail})


class Ratio(Record):
    """A speedup with its interval."""

    speedup: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.speedup:.4f}x ({self.low:.4f} to {self.high:.4f})"


def ratio_of(result: BenchmarkResult | CaseTiming) -> Ratio | None:
    """What a benchmark run, or a case of it, says of both versions. None where it does not compare them."""
    failed = isinstance(result, BenchmarkResult) and not result.passed
    if failed or result.speedup is None or result.speedup_low is None or result.speedup_high is None:
        return None
    return Ratio(speedup=result.speedup, low=result.speedup_low, high=result.speedup_high)


def product(keeps: Sequence[BenchmarkResult]) -> Ratio:
    """What the keeps of a session gain together."""
    return multiplied([ratio for ratio in map(ratio_of, keeps) if ratio is not None])


def multiplied(ratios: Sequence[Ratio]) -> Ratio:
    """The product of independent speedups: the half width of its interval is the root of the sum of their half widths'
    squares, in logarithms."""
    total = math.fsum(math.log(ratio.speedup) for ratio in ratios)
    half = math.hypot(*(math.log(ratio.high / ratio.low) / 2 for ratio in ratios))
    return Ratio(speedup=math.exp(total), low=math.exp(total - half), high=math.exp(total + half))


def mean_of(ratios: Sequence[Ratio]) -> Ratio:
    """The geometric mean of independent speedups."""
    total, share = multiplied(ratios), 1 / len(ratios)
    return Ratio(speedup=total.speedup**share, low=total.low**share, high=total.high**share)


def agree(direct: Ratio, multiplied: Ratio) -> bool:
    """Whether the intervals of both overlap."""
    return direct.low <= multiplied.high and multiplied.low <= direct.high


def _percent(ratio: float, mark: str = "") -> str:
    """A ratio as a gain. Of a model's, which is marked, no decimals are said above 100%: it does not know them."""
    percent = 100 * (ratio - 1)
    return f"{mark}{percent:+.{0 if mark and percent > 100 else 2}f}%"


def advise(
    verdict: Verdict,
    result: BenchmarkResult | None,
    earlier: Sequence[Verdict],
    iteration: int,
    rules: Rules,
    root_cause: str | None,
    ceilings_measured: bool,
) -> Advice:
    """Whether to go on after an iteration. `earlier` are the verdicts of the rows before it, oldest first."""
    if iteration >= rules.max_iterations:
        return Advice(action="stop", reason=f"{rules.max_iterations} iterations are done")
    reached = result.roofline_percent if result is not None and verdict.kind is VerdictKind.KEEP else None
    credible = result is not None and all((case.roofline_percent or 0.0) <= 100 for case in result.cases)
    if ceilings_measured and reached is not None and reached >= rules.ceiling_percent and credible:
        return Advice(
            action="stop", reason=f"{reached:.1f}% of the measured ceiling: the rest is not worth an iteration"
        )
    measured = [past for past in [*earlier, verdict] if past.measured]
    recent = measured[-rules.patience :]
    if len(recent) == rules.patience and not any(past.reason is Reason.GAIN for past in recent) and verdict.measured:
        return Advice(action="stop", reason=f"{rules.patience} measured iterations in a row without gain")
    if root_cause in ESCALATED_CAUSES:
        return Advice(action="escalate", reason=f"the root cause is {root_cause}: ask the user how to go on")
    if verdict.reason is Reason.GAIN:
        assert result is not None and result.speedup is not None
        return _after_gain(result.speedup - 1, rules)
    return Advice(action="continue", reason="try the next optimization")


def _after_gain(gain: float, rules: Rules) -> Advice:
    shown = f"a gain of {100 * gain:.1f}%"
    if gain >= rules.accept:
        return Advice(action="continue", reason=f"{shown}: go on from here")
    if gain >= rules.minor:
        return Advice(action="continue", reason=f"{shown}: this kind of change has lower priority next")
    if rules.stop_on_minor_gain:
        return Advice(action="stop", reason=f"{shown}, under {100 * rules.minor:g}%: gains have dried up")
    return Advice(action="continue", reason=f"{shown}; asked to go on")

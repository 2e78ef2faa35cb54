"""The decision rules: what a result means for the candidate, and whether the session goes on. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import Literal

from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Status
from tilewright.evaluation.statistics import contradicts, speedup_apart
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
        """Whether it rests on a measurement; an incorrect or crashed candidate's does not."""
        return self.reason in (Reason.GAIN, Reason.INCONCLUSIVE, Reason.REGRESSION)


class Advice(Record):
    """Whether the loop goes on after an iteration, and why."""

    action: Literal["continue", "stop", "escalate"]
    reason: str


INCUMBENT_DRIFT = 1.2
"""By how much an incumbent may be slower than when it was kept; clocks alone move by some 15%."""
HARNESS_DRIFT = 1.5
"""The same by a repository's own harness, whose clock may be a busy CPU's."""
STEADY = 1.01
"""By how much it may be slower, beyond what the SM's clock explains, where that makes up over half of a gain: at one
clock, runs of the same kernel were seen to differ by 0.2%, and single processes of one kernel by 1%."""
OUTER_BIAS = 0.03
"""A case's loss by the evaluator's own clock alone counts beyond this: at 3 us, processes of one kernel were seen to
differ by 2% on it."""
OUTER = " by the evaluator's own clock"
ROOT_CAUSES = ("memory", "compute", "latency", "launch", "scheduling", "unknown")
RootCause = Literal["memory", "compute", "latency", "launch", "scheduling", "unknown"]
"""What bounds a kernel, as a diagnosis names it."""
ESCALATED_CAUSES = ("scheduling", "unknown")


def verdict_of_failure(status: Status, message: str) -> Verdict | None:
    """The verdict on a candidate whose check or measurement did not pass; None where that was not its fault."""
    first = message.splitlines()[0] if message else ""
    detail = f"{status}: {first}" if first else str(status)
    if status.value in set(Reason):  # tampered, crashed, timeout: the reason says it already
        detail = first
    if status is Status.TAMPERED:
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.TAMPERED, detail=detail)
    if status.is_incorrect:
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.INCORRECT, detail=detail)
    if status.is_crash:
        reason = Reason.TIMEOUT if status is Status.TIMEOUT else Reason.CRASHED
        return Verdict(kind=VerdictKind.CRASH, reason=reason, detail=detail)
    return None


def verdict_of_check(result: CorrectnessResult) -> Verdict | None:
    """The verdict that a correctness run already settles: none if it passed, or was void."""
    return None if result.passed else verdict_of_failure(result.status, result.message)


def verdict_of_benchmark(result: BenchmarkResult, rules: Rules) -> Verdict | None:
    """The verdict on a measured candidate: a keep only for a significant gain without a significant loss anywhere."""
    if not result.passed:
        return verdict_of_failure(result.status, result.message)
    if result.speedup is None or result.speedup_low is None or result.speedup_high is None:
        return None
    mark = "~" if result.modelled else ""
    low, high = _percent(result.speedup_low, mark), _percent(result.speedup_high, mark)
    shown = f"{_percent(result.speedup, mark)} speed ({low} to {high})"
    for case in result.cases:
        if case.speedup is None:
            continue
        inner, outer = (math.inf if high is None else high for high in (case.speedup_high, case.outer_high))
        if inner < 1 - rules.regression or outer < 1 - max(rules.regression, OUTER_BIAS):
            by, text = (case.speedup, "") if inner < 1 - rules.regression else (case.outer_speedup, OUTER)
            detail = f"{_percent(by or case.speedup, mark)} speed on {case_label(case.case)}{text}"
            return Verdict(kind=VerdictKind.REVERT, reason=Reason.REGRESSION, detail=detail)
    resolvable = 1.0 if result.modelled else math.exp(rules.resolution)
    borne_out = result.modelled or result.harness or (result.outer_low is not None and result.outer_low > 1)
    if result.speedup_low > resolvable and borne_out:
        return Verdict(kind=VerdictKind.KEEP, reason=Reason.GAIN, detail=shown)
    if result.speedup_high < 1 / resolvable:
        return Verdict(kind=VerdictKind.REVERT, reason=Reason.REGRESSION, detail=shown)
    why = (result.message or "within the model's resolution") if result.modelled else "the interval holds zero"
    if result.speedup_low > resolvable:
        why = "the evaluator's own clock does not confirm the gain"
    elif result.speedup_low > 1 or result.speedup_high < 1:
        why = f"under {_percent(resolvable)}, the placement of buffers in memory can explain the difference"
    return Verdict(kind=VerdictKind.REVERT, reason=Reason.INCONCLUSIVE, detail=f"{shown}: {why}")


def confirmed(verdict: Verdict | None) -> Verdict | None:
    """The verdict of a second run, of a candidate that would be kept by the first: a gain has to show in both."""
    if verdict is None or verdict.reason not in (Reason.GAIN, Reason.INCONCLUSIVE):
        return verdict
    said = f"{verdict.detail}, confirmed" if verdict.reason is Reason.GAIN else f"not confirmed: {verdict.detail}"
    return verdict.model_copy(update={"detail": said})


def with_steady_incumbent(result: BenchmarkResult, kept: BenchmarkResult | None) -> BenchmarkResult:
    """The result; void where the incumbent ran far slower than in `kept`, the run that made it the incumbent, where it
    ran so much slower that over half of the gain comes from that, or where too little of the gain is left when each
    runs without the other about (`contradicts`).

    A kernel may find out that it is not the candidate this time, or wait for a later hour, or toss a coin in each
    process, and play slow so that the next one seems to win. A clock that is lower now excuses as much.
    """
    if result.modelled:
        return result
    if result.apart and result.speedup and contradicts(result.speedup, result.apart):
        return BenchmarkResult(
            status=Status.VOID,
            message=f"{_percent(result.speedup)} speed side by side, and {_percent(speedup_apart(result.apart))} where "
            "each ran without the other about: a comparison that says two things says nothing. Measure again once the "
            "GPU is calm; if it stays so, one of the two behaves otherwise when it is being compared",
            apart=result.apart,
            seconds=result.seconds,
            telemetry=result.telemetry,
        )
    before = {case_label(case.case): case.latency_ms for case in kept.cases} if kept is not None else {}
    then_mhz, now_mhz = _mean_clock(kept), _mean_clock(result)
    excused = max(1.0, then_mhz / now_mhz) if then_mhz and now_mhz else 1.0
    most = HARNESS_DRIFT if result.harness else INCUMBENT_DRIFT
    alone = kept is None or kept.speedup is None  # a baseline: at another clock and heat
    steady = math.inf if result.harness or alone else STEADY
    for case in result.cases:
        then = before.get(case_label(case.case))
        if not then or not case.incumbent_ms:
            continue
        drift = case.incumbent_ms / then
        slower, gain = drift / excused, case.speedup or 1.0
        if drift > most or (gain > 1 and slower > steady and slower - 1 > (gain - 1) / 2):
            return BenchmarkResult(
                status=Status.VOID,
                harness=result.harness,
                message=f"the incumbent takes {case.incumbent_ms:.6f} ms on {case_label(case.case)}, and took "
                f"{then:.6f} ms when it was kept: a comparison with it says nothing. Measure again once the GPU is "
                "calm; if it stays so, the incumbent behaves otherwise when it is not the candidate",
                seconds=result.seconds,
                telemetry=result.telemetry,
            )
    return result


def _mean_clock(result: BenchmarkResult | None) -> float | None:
    """The SM's mean clock in MHz over a run; None where it was not seen."""
    telemetry = result.telemetry if result is not None else None
    seen = [row[0] for row in telemetry.blocks if row[0]] if telemetry is not None else []
    return sum(seen) / len(seen) if seen else None


def settled(result: BenchmarkResult, rules: Rules, alone: bool, confirms: bool) -> Verdict | None:
    """What a benchmark run settles: nothing where it is a gain that waits for a second run. `alone`: the baseline's,
    which has nothing to win against; `confirms`: it is the second run."""
    verdict = None if alone else verdict_of_benchmark(result, rules)
    if confirms:
        verdict = confirmed(verdict)
    waits = verdict is not None and verdict.kind is VerdictKind.KEEP and not (confirms or result.modelled)
    return None if waits else verdict


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
    if ceilings_measured and reached is not None and reached >= rules.ceiling_percent:
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

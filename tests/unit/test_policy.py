"""The decision rules, one by one, and what no result may ever lead to."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tilewright.evaluation.results import BenchmarkResult, CaseTiming, CorrectnessResult, Level, Status, Sustained
from tilewright.policy import (
    Reason,
    Verdict,
    VerdictKind,
    advise,
    gains,
    settled,
    verdict_of_benchmark,
    verdict_of_check,
)
from tilewright.rules import Rules

RULES = Rules()
KEPT = Verdict(kind=VerdictKind.KEEP, reason=Reason.GAIN)
NOISE = Verdict(kind=VerdictKind.REVERT, reason=Reason.INCONCLUSIVE)
WRONG = Verdict(kind=VerdictKind.REVERT, reason=Reason.INCORRECT)


def measured(
    speedup: float,
    width: float = 0.005,
    cases: list[float] | None = None,
    roofline: float = 50.0,
    level: Level = Level.REPLAYED,
    peaks: Sequence[int | None] = (),
) -> BenchmarkResult:
    """A result with these speedups; `peaks` are the cases', by default 0."""
    return BenchmarkResult(
        status=Status.PASSED,
        level=level,
        latency_ms=1.0,
        speedup=speedup,
        speedup_low=speedup - width,
        speedup_high=speedup + width,
        cases=[
            CaseTiming(
                case={"N": number},
                level=level,
                latency_ms=1.0,
                speedup=value,
                speedup_low=value - width,
                speedup_high=value + width,
                roofline_percent=roofline,
                peak_bytes=peaks[number] if peaks else 0,
            )
            for number, value in enumerate(cases or [speedup])
        ],
    )


def verdict(result: BenchmarkResult, **rules: float) -> Verdict:
    """The verdict that a result has to have, by rules other than the default where some are given."""
    found = verdict_of_benchmark(result, Rules(**rules))  # type: ignore[arg-type]
    assert found is not None
    return found


IN_PROCESS, HARNESS, MODELLED = Level.IN_PROCESS, Level.HARNESS, Level.MODELLED
FLOOR, RESOLUTION = math.exp(RULES.floor), math.exp(RULES.resolution)


@pytest.mark.parametrize(
    ("result", "kind", "reason"),
    [
        (measured(1.30), VerdictKind.KEEP, Reason.GAIN),
        (measured(1.002, width=0.0015), VerdictKind.KEEP, Reason.GAIN),
        (measured(FLOOR + 1e-6, width=0.0005), VerdictKind.KEEP, Reason.GAIN),
        (measured(FLOOR - 1e-6, width=0.0005), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(1.02, width=0.03), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(0.999), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(1 / FLOOR + 1e-6, width=0.0005), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(1 / FLOOR - 1e-6, width=0.0005), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(0.98), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(1.30, cases=[1.7, 0.97]), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(1.30, cases=[1.4, 0.997]), VerdictKind.KEEP, Reason.GAIN),
    ],
)
def test_verdicts_of_replayed_programs(result: BenchmarkResult, kind: VerdictKind, reason: Reason) -> None:
    """The interval has to lie on one side of no change, and the difference itself to reach the floor."""
    found = verdict(result)
    assert (found.kind, found.reason) == (kind, reason)


@pytest.mark.parametrize("level", [IN_PROCESS, HARNESS])
@pytest.mark.parametrize(
    ("speedup", "width", "reason"),
    [
        (1.30, 0.005, Reason.GAIN),
        (1.01, 0.005, Reason.GAIN),
        (RESOLUTION + 0.001, 0.0009, Reason.GAIN),
        (RESOLUTION + 0.001, 0.0011, Reason.INCONCLUSIVE),
        (1.002, 0.0005, Reason.INCONCLUSIVE),
        (0.998, 0.0005, Reason.INCONCLUSIVE),
        (0.996, 0.0005, Reason.REGRESSION),
    ],
)
def test_verdicts_of_what_was_timed_in_its_own_process(
    level: Level, speedup: float, width: float, reason: Reason
) -> None:
    """The whole interval has to lie beyond the resolution."""
    assert verdict(measured(speedup, width, level=level)).reason is reason


def test_a_gain_under_what_equal_versions_differ_by_says_so() -> None:
    for level, least in ((Level.REPLAYED, "0.10%"), (IN_PROCESS, "0.25%")):
        found = verdict(measured(1.0008, width=0.0004, level=level))
        assert found.reason is Reason.INCONCLUSIVE
        assert found.detail.endswith(f": equal versions can differ by {least}")
    assert verdict(measured(1.0)).detail.endswith(": the interval holds zero")


def test_a_gain_that_is_a_loss_without_a_rest_is_none() -> None:
    def found(low: float, high: float) -> Verdict:
        result = measured(1.3)
        sustained = Sustained(speedup=(low + high) / 2, low=low, high=high, mhz=1455)
        return verdict(
            result.model_copy(update={"cases": [result.cases[0].model_copy(update={"sustained": sustained})]})
        )

    lost = found(0.97, 0.99)
    assert (lost.kind, lost.reason) == (VerdictKind.REVERT, Reason.REGRESSION)
    assert lost.detail.endswith(", but sustained -2.00% at 1455 MHz on N=0")
    assert found(0.97, 1.01).kind is found(1.01, 1.03).kind is VerdictKind.KEEP


def test_the_same_program_is_no_measurement_and_costs_no_patience() -> None:
    found = verdict(BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, same=True))
    assert (found.kind, found.reason) == (VerdictKind.REVERT, Reason.SAME_PROGRAM)
    assert found.detail == "the same program as the incumbent in every case: nothing was timed"
    assert not found.measured
    assert action(found, None, [NOISE]) == "continue"
    assert action(found, None, [found] * 5) == "continue"
    assert action(NOISE, measured(1.0), [KEPT, found, found]) == "continue"
    assert action(NOISE, measured(1.0), [NOISE, found]) == "stop"


@pytest.mark.parametrize("status", [Status.NOT_REPLAYED, Status.OTHER_LAUNCHES])
def test_a_candidate_that_is_not_what_it_was_captured_as_is_reverted_and_not_wrong(status: Status) -> None:
    found = verdict(BenchmarkResult(status=status, message="N=1: it waits for the host\nmore"))
    assert found == Verdict(kind=VerdictKind.REVERT, reason=Reason(status.value), detail="N=1: it waits for the host")
    assert not found.measured
    assert not status.is_incorrect
    assert not status.is_crash
    assert action(found, None, [NOISE]) == "continue"


MIB = 1 << 20


@pytest.mark.parametrize(
    ("result", "allowed", "detail"),
    [
        (measured(1.3, peaks=[64 * MIB]), 0, ""),
        (measured(1.3, peaks=[64 * MIB]), 64, ""),
        (
            measured(1.3, cases=[1.3, 1.3], peaks=[MIB, 65 * MIB]),
            64,
            "a call takes 65.0 MiB of memory on N=1; the rule peak_memory_mib allows 64",
        ),
        (
            measured(1.3, level=IN_PROCESS, peaks=[None]),
            64,
            "what a call takes on N=0 is not known, since it is not replayed; the rule peak_memory_mib allows 64",
        ),
        (measured(1.3, level=IN_PROCESS, peaks=[None]), 0, ""),
        (measured(1.3, level=MODELLED, peaks=[None]), 64, ""),
    ],
)
def test_a_call_may_take_as_much_memory_as_the_rules_allow(
    result: BenchmarkResult, allowed: float, detail: str
) -> None:
    found = verdict(result, peak_memory_mib=allowed)
    if detail:
        assert found == Verdict(kind=VerdictKind.REVERT, reason=Reason.MEMORY, detail=detail)
        assert found.measured
    else:
        assert found.reason is Reason.GAIN


@pytest.mark.parametrize("level", [Level.REPLAYED, IN_PROCESS, HARNESS])
def test_a_keep_needs_a_second_run(level: Level) -> None:
    gain, noise = measured(1.3, level=level), measured(1.0, level=level)
    assert settled(gain, None, None, RULES) is None
    kept = settled(gain, None, gain, RULES)
    assert kept is not None
    assert (kept.kind, kept.reason) == (VerdictKind.KEEP, Reason.GAIN)
    assert kept.detail == f"{verdict(gain).detail}, confirmed"
    lost = settled(gain, None, noise, RULES)
    assert lost is not None
    assert (lost.kind, lost.reason) == (VerdictKind.REVERT, Reason.INCONCLUSIVE)
    assert lost.detail == f"not confirmed: {verdict(noise).detail}"
    assert settled(noise, None, None, RULES) == verdict(noise)
    other = BenchmarkResult(status=Status.OTHER_LAUNCHES, message="launches other kernels")
    assert settled(gain, None, other, RULES) == verdict(other)
    assert settled(gain, None, None, RULES, alone=True) is None, "a baseline wins against nothing"


def test_a_gain_that_is_wrong_on_hidden_sizes_is_no_keep() -> None:
    gain = measured(1.3, level=Level.REPLAYED)
    wrong = settled(gain, CorrectnessResult(status=Status.WRONG_VALUES, message="N=3"), None, RULES)
    assert wrong is not None
    assert (wrong.kind, wrong.reason) == (VerdictKind.REVERT, Reason.INCORRECT)
    assert settled(gain, CorrectnessResult(status=Status.VOID), None, RULES) is None
    right = CorrectnessResult(status=Status.PASSED)
    assert settled(gain, right, gain, RULES) == settled(gain, None, gain, RULES)
    assert gains(gain, RULES, alone=False) and gains(measured(1.0), RULES, alone=True)
    assert not gains(measured(1.0), RULES, alone=False)


def test_a_model_is_not_asked_twice() -> None:
    """Its answer would be the same."""
    gain = measured(1.3, level=MODELLED)
    assert settled(gain, None, None, RULES) == verdict(gain)


def test_a_model_s_gain_has_no_decimals_that_it_does_not_know() -> None:
    details = [verdict(measured(speedup, level=MODELLED)).detail for speedup in (10.008, 1.5, 0.98)]
    assert details[:2] == ["~+901% speed (~+900% to ~+901%)", "~+50.00% speed (~+49.50% to ~+50.50%)"]
    assert details[2] == "~-2.00% speed on N=0"
    assert verdict(measured(10.008)).detail == "+900.80% speed (+900.30% to +901.30%)"


@given(
    st.floats(0.2, 5),
    st.floats(0, 1),
    st.lists(st.floats(0.2, 5), min_size=1, max_size=4),
    st.sampled_from(Level),
)
def test_a_keep_needs_an_interval_above_one_and_no_significant_loss(
    speedup: float, width: float, cases: list[float], level: Level
) -> None:
    assume(speedup - width > 0.01)
    found = verdict(measured(speedup, width, cases, level=level))
    if found.kind is VerdictKind.KEEP:
        assert speedup - width > 1
        assert all(case + width >= 1 - RULES.regression for case in cases)
    if speedup - width <= 1 <= speedup + width:
        assert found.kind is VerdictKind.REVERT


@pytest.mark.parametrize("status", list(Status))
def test_only_a_pass_can_be_kept_and_only_a_void_run_settles_nothing(status: Status) -> None:
    check = verdict_of_check(CorrectnessResult(status=status, message="first line\nsecond"))
    bench = verdict_of_benchmark(BenchmarkResult(status=status, message="first line\nsecond"), RULES)
    if status is Status.PASSED:
        assert check is None
    elif status is Status.VOID:
        assert check is None
        assert bench is None
    else:
        assert check == bench
        assert check is not None
        assert check.kind is (VerdictKind.CRASH if status.is_crash else VerdictKind.REVERT)
        said = check.reason == status.value  # the reason names the status already
        assert check.detail == ("first line" if said else f"{status}: first line")
        assert not check.measured


def test_every_status_is_of_one_class() -> None:
    for status in Status:
        neither = Status.PASSED, Status.VOID, Status.NOT_REPLAYED, Status.OTHER_LAUNCHES
        classes = [status.is_incorrect, status.is_crash, status in neither]
        assert sum(classes) == 1, status


def action(verdict: Verdict, result: BenchmarkResult | None, earlier: list[Verdict], **options: object) -> str:
    rules = options.pop("rules", RULES)
    assert isinstance(rules, Rules)
    cause = options.pop("root_cause", None)
    assert cause is None or isinstance(cause, str)
    iteration = options.pop("iteration", 3)
    assert isinstance(iteration, int)
    return advise(verdict, result, earlier, iteration, rules, cause, bool(options.pop("measured", True))).action


def test_large_and_small_gains_go_on_and_tiny_ones_stop_unless_asked() -> None:
    assert action(KEPT, measured(1.08), []) == "continue"
    assert action(KEPT, measured(1.03), []) == "continue"
    assert action(KEPT, measured(1.01), []) == "stop"
    assert action(KEPT, measured(1.01), [], rules=Rules(stop_on_minor_gain=False)) == "continue"


def test_two_measured_iterations_without_gain_stop_and_failures_do_not_count() -> None:
    assert action(NOISE, measured(1.0), [KEPT]) == "continue"
    assert action(NOISE, measured(1.0), [KEPT, NOISE]) == "stop"
    assert action(NOISE, measured(1.0), [NOISE, KEPT]) == "continue"
    assert action(NOISE, measured(1.0), [NOISE, WRONG]) == "stop"
    assert action(WRONG, None, [NOISE, WRONG, WRONG]) == "continue"
    assert action(NOISE, measured(1.0), [NOISE], rules=Rules(patience=3)) == "continue"


def test_the_budget_the_ceiling_and_an_unknown_cause_end_the_loop() -> None:
    assert action(WRONG, None, [], iteration=25) == "stop"
    assert action(KEPT, measured(1.08, roofline=96.0), []) == "stop"
    assert action(KEPT, measured(1.08, roofline=96.0), [], measured=False) == "continue"
    assert action(KEPT, measured(1.08, roofline=100.3), []) == "continue", "the ceiling is wrong"
    assert action(KEPT, measured(1.08), [], root_cause="unknown") == "escalate"
    assert action(NOISE, measured(1.0), [], root_cause="scheduling") == "escalate"
    assert action(KEPT, measured(1.08), [], root_cause="memory") == "continue"


@given(st.floats(1.0001, 3), st.integers(1, 24))
def test_a_kept_gain_never_escalates_by_itself(speedup: float, iteration: int) -> None:
    found = advise(KEPT, measured(speedup, 0.00001), [], iteration, RULES, None, True)
    assert found.action == (
        "continue" if speedup - 1 >= RULES.minor or math.isclose(speedup - 1, RULES.minor) else "stop"
    )


def test_the_sessions_rules_decide_and_not_the_default() -> None:
    result = measured(1.01, width=0.001, level=Level.REPLAYED)
    kinds = [verdict(result, **rules).kind for rules in ({}, {"floor": 0.02})]
    assert kinds == [VerdictKind.KEEP, VerdictKind.REVERT]
    assert action(KEPT, measured(1.10), [], rules=Rules(accept=0.2, minor=0.15)) == "stop"
    assert action(KEPT, measured(1.10), []) == "continue"

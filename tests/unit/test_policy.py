"""The decision rules, one by one, and what no result may ever lead to."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tilewright.evaluation.results import BenchmarkResult, CaseTiming, CorrectnessResult, Status
from tilewright.gpu.telemetry import Telemetry
from tilewright.policy import (
    Reason,
    Verdict,
    VerdictKind,
    advise,
    verdict_of_benchmark,
    verdict_of_check,
    with_steady_incumbent,
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
    outer: float | None = None,
) -> BenchmarkResult:
    return BenchmarkResult(
        status=Status.PASSED,
        latency_ms=1.0,
        speedup=speedup,
        speedup_low=speedup - width,
        speedup_high=speedup + width,
        outer_low=(speedup if outer is None else outer) - width,
        outer_high=(speedup if outer is None else outer) + width,
        cases=[
            CaseTiming(
                case={"N": number},
                latency_ms=1.0,
                speedup=value,
                speedup_low=value - width,
                speedup_high=value + width,
                roofline_percent=roofline,
            )
            for number, value in enumerate(cases or [speedup])
        ],
    )


def test_a_harness_that_is_trusted_has_no_second_clock_to_bear_it_out() -> None:
    lone = measured(1.30).model_copy(update={"outer_low": None, "outer_high": None})
    assert verdict_of_benchmark(lone, RULES) != (kept := verdict_of_benchmark(measured(1.30), RULES))
    assert verdict_of_benchmark(lone.model_copy(update={"harness": True}), RULES) == kept
    noise = lone.model_copy(update={"harness": True, "speedup_low": 0.99})
    assert (verdict := verdict_of_benchmark(noise, RULES)) is not None and verdict.reason is Reason.INCONCLUSIVE


@pytest.mark.parametrize(("harness", "drift", "status"), [
    (False, 1.15, Status.PASSED), (False, 1.25, Status.VOID), (True, 1.25, Status.PASSED), (True, 1.55, Status.VOID),
])  # fmt: skip
def test_an_incumbent_that_runs_far_slower_than_when_it_was_kept_voids(
    harness: bool, drift: float, status: Status
) -> None:
    kept, now = measured(1.0), measured(1.3)
    slow = [case.model_copy(update={"incumbent_ms": drift}) for case in now.cases]
    found = with_steady_incumbent(now.model_copy(update={"cases": slow, "harness": harness}), kept)
    assert (found.status, found.harness) == (status, harness)


@pytest.mark.parametrize(("gain", "drift", "clocks", "status"), [
    (1.15, 1.15, (), Status.VOID), (1.02, 1.02, (), Status.VOID), (1.10, 1.06, (), Status.VOID),
    (1.10, 1.04, (), Status.PASSED), (1.01, 1.009, (), Status.PASSED), (0.99, 1.05, (), Status.PASSED),
    (1.05, 1.04, (1980, 1904), Status.PASSED), (1.05, 1.04, (1904, 1980), Status.VOID), (1.05, 0.95, (), Status.PASSED),
])  # fmt: skip
def test_an_incumbent_that_lends_the_candidate_half_of_its_gain_voids(
    gain: float, drift: float, clocks: tuple[int, ...], status: Status
) -> None:
    """By getting slower than it was when it was kept, unless the clock did, as a time bomb or a coin in it would."""
    kept, now = (
        one.model_copy(update={"telemetry": Telemetry(blocks=[(clock, 40, 300.0, 0)] * 8)})
        for one, clock in zip((measured(1.2), measured(gain)), clocks or (1980, 1980), strict=True)
    )
    slow = [case.model_copy(update={"incumbent_ms": drift}) for case in now.cases]
    assert with_steady_incumbent(now.model_copy(update={"cases": slow}), kept).status is status
    baseline = kept.model_copy(update={"speedup": None})
    assert with_steady_incumbent(now.model_copy(update={"cases": slow}), baseline).passed


@pytest.mark.parametrize("share", [0.02, 0.10, 0.19])
def test_a_coin_in_each_process_earns_no_session_a_keep(share: float) -> None:
    """A kernel without a gain that draws in each process whether it does more work, 25 experiments a session."""
    draw = random.Random(1)

    def run(apart: bool) -> BenchmarkResult:
        mine, other = (1 + share * (draw.random() < 0.5) for _ in range(2))
        made = measured(other / mine, width=0.001)
        cases = [case.model_copy(update={"latency_ms": mine, "incumbent_ms": other}) for case in made.cases]
        alone = tuple(1 + share * (draw.random() < 0.5) for _ in range(2))
        return made.model_copy(update={"cases": cases, "apart": [alone] if apart else []})

    def kept(before: BenchmarkResult | None) -> BenchmarkResult | None:
        """What a session keeps, if anything: a gain, and then its confirmation."""
        for apart in (False, True):
            result = with_steady_incumbent(run(apart), before)
            verdict = verdict_of_benchmark(result, RULES)
            if verdict is None or verdict.kind is not VerdictKind.KEEP:
                return None
        return result

    honest = measured(1.2)
    fast = honest.model_copy(update={"cases": [case.model_copy(update={"latency_ms": 1.0}) for case in honest.cases]})
    assert not any(kept(fast) for _ in range(200 * 25))


def test_a_case_s_loss_by_the_evaluator_s_clock_alone_has_to_be_beyond_what_that_is_off_by() -> None:
    for outer, reason in ((0.985, Reason.GAIN), (0.95, Reason.REGRESSION)):
        made = measured(1.10, cases=[1.2, 1.002])
        bounds = {"outer_speedup": outer, "outer_low": outer - 0.002, "outer_high": outer + 0.002}
        cases = [made.cases[0], made.cases[1].model_copy(update=bounds)]
        verdict = verdict_of_benchmark(made.model_copy(update={"cases": cases}), RULES)
        assert verdict is not None and verdict.reason is reason
        assert reason is Reason.GAIN or verdict.detail == "-5.00% speed on N=1 by the evaluator's own clock"


@pytest.mark.parametrize(("speedup", "apart", "status"), [
    (1.30, None, Status.PASSED), (1.30, 1.28, Status.PASSED), (1.30, 1.10, Status.VOID), (1.30, 1.00, Status.VOID),
    (1.10, 1.00, Status.VOID), (1.01, 1.008, Status.PASSED), (1.01, 1.003, Status.VOID), (1.01, 1.00, Status.VOID),
    (2.00, 1.40, Status.VOID),
    (1.01, 1.03, Status.VOID), (1.30, 1.50, Status.VOID), (1.30, 1.40, Status.PASSED),
])  # fmt: skip
def test_a_gain_that_half_goes_when_neither_knows_of_the_other_voids(
    speedup: float, apart: float | None, status: Status
) -> None:
    pairs = [(1.0, apart)] * 3 if apart is not None else []
    found = with_steady_incumbent(measured(speedup).model_copy(update={"apart": pairs}), None)
    assert (found.status, found.apart) == (status, pairs)


@pytest.mark.parametrize(
    ("result", "kind", "reason"),
    [
        (measured(1.30), VerdictKind.KEEP, Reason.GAIN),
        (measured(1.01), VerdictKind.KEEP, Reason.GAIN),
        (measured(1.004), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(1.002, width=0.0005), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(1.30, outer=1.001), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(0.999), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(0.998, width=0.0005), VerdictKind.REVERT, Reason.INCONCLUSIVE),
        (measured(0.996, width=0.0005), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(0.98), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(1.30, cases=[1.7, 0.97]), VerdictKind.REVERT, Reason.REGRESSION),
        (measured(1.30, cases=[1.4, 0.997]), VerdictKind.KEEP, Reason.GAIN),
    ],
)
def test_verdicts_of_measurements(result: BenchmarkResult, kind: VerdictKind, reason: Reason) -> None:
    verdict = verdict_of_benchmark(result, RULES)
    assert verdict is not None
    assert (verdict.kind, verdict.reason) == (kind, reason)


def test_a_model_s_gain_has_no_decimals_that_it_does_not_know() -> None:
    modelled = {speedup: measured(speedup).model_copy(update={"modelled": True}) for speedup in (10.008, 1.5, 0.98)}
    details = [(verdict_of_benchmark(result, RULES) or KEPT).detail for result in modelled.values()]
    assert details[:2] == ["~+901% speed (~+900% to ~+901%)", "~+50.00% speed (~+49.50% to ~+50.50%)"]
    assert details[2] == "~-2.00% speed on N=0"
    assert (verdict_of_benchmark(measured(10.008), RULES) or KEPT).detail == "+900.80% speed (+900.30% to +901.30%)"


@given(st.floats(0.2, 5), st.floats(0, 1), st.lists(st.floats(0.2, 5), min_size=1, max_size=4))
def test_a_keep_needs_an_interval_above_one_and_no_significant_loss(
    speedup: float, width: float, cases: list[float]
) -> None:
    assume(speedup - width > 0.01)
    result = measured(speedup, width, cases)
    verdict = verdict_of_benchmark(result, RULES)
    assert verdict is not None
    if verdict.kind is VerdictKind.KEEP:
        assert speedup - width > 1
        assert all(case + width >= 1 - RULES.regression for case in cases)
    if speedup - width <= 1 <= speedup + width:
        assert verdict.kind is VerdictKind.REVERT


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
        classes = [status.is_incorrect, status.is_crash, status in (Status.PASSED, Status.VOID)]
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
    result = measured(1.01, width=0.001)
    kinds = [(verdict_of_benchmark(result, rules) or NOISE).kind for rules in (RULES, Rules(resolution=0.02))]
    assert kinds == [VerdictKind.KEEP, VerdictKind.REVERT]
    assert action(KEPT, measured(1.10), [], rules=Rules(accept=0.2, minor=0.15)) == "stop"
    assert action(KEPT, measured(1.10), []) == "continue"

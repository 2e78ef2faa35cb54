"""What an answer leaves out, and that it says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tilewright.evaluation.ordinary import Ordinary
from tilewright.evaluation.results import BenchmarkResult, CaseCheck, CaseTiming, CorrectnessResult, Level, Status
from tilewright.session import show
from tilewright.session.records import Checked, Started
from tilewright.session.rows import notes_of
from tilewright.session.state import State
from tilewright.session.steps import not_now
from tilewright.text import few

ENVIRONMENT = SimpleNamespace(unprotected="")
STARTED = cast(
    Started,
    SimpleNamespace(session="scale-1", harness=False, modelled=False, environment=ENVIRONMENT, baseline="0" * 40),
)


def report(statuses: list[Status], **more: Any) -> Any:
    """The answer on cases that ended so, of which each had a larger error than the one before it."""
    cases = [
        CaseCheck(case={"N": number}, hidden=False, status=status, rel_l2_error=number / 1000)
        for number, status in enumerate(statuses)
    ]
    status = next((status for status in statuses if status is not Status.PASSED), Status.PASSED)
    result = CorrectnessResult(status=status, cases=cases, **more)
    state = State(STARTED)
    state.apply(Checked(candidate="0" * 64, secret="s", result=result))
    return show.judged(state, "next")


def test_cases_that_are_left_out_are_counted_and_failures_come_first() -> None:
    found = report([Status.PASSED] * 20 + [Status.WRONG_VALUES] * 2 + [Status.PASSED] * 5)
    shown = found.cases.split("; ")
    assert shown[:3] == [
        "N=21: wrong_values, error 0.021",
        "N=20: wrong_values, error 0.02",
        "N=26: passed, error 0.026",
    ]
    assert shown[8:] == ["19 more in the journal, none of which failed"]
    many = report([Status.WRONG_VALUES] * 12 + [Status.PASSED])
    assert many.cases.endswith("; 5 more in the journal, 4 of which failed")
    assert "more" not in report([Status.PASSED] * 8).cases


def test_hidden_sizes_that_passed_are_counted_and_not_named() -> None:
    cases = [
        CaseCheck(case={"N": 64}, hidden=False, status=Status.PASSED),
        CaseCheck(case={"N": 977}, hidden=True, status=Status.PASSED),
        CaseCheck(case={"N": 1013}, hidden=True, status=Status.PASSED),
    ]
    state = State(STARTED)
    state.apply(
        Checked(candidate="0" * 64, secret="s", result=CorrectnessResult(status=Status.PASSED, cases=cases, seconds=1))
    )
    found = show.judged(state, "next")
    assert found.summary == "PASS: 3 runs, 2 of them on hidden cases, in 1.0 s"
    assert not any(size in found.model_dump_json() for size in ("977", "1013"))
    cases[1] = cases[1].model_copy(update={"status": Status.WRONG_VALUES})
    state.apply(
        Checked(candidate="0" * 64, secret="s", result=CorrectnessResult(status=Status.WRONG_VALUES, cases=cases))
    )
    assert show.judged(state, "next").cases == "N=977: wrong_values; N=64: passed"


def test_a_refusal_names_only_what_comes_before_the_refused_tool() -> None:
    then = "call revert, then append_result"
    assert not_now("append_result", then) == "append_result does not come now: call revert"
    assert not_now("run_benchmark", then) == f"run_benchmark does not come now: {then}"


def test_a_long_text_keeps_its_telling_end() -> None:
    found = report([Status.RAISED], message="m " * 5000, output="o" * 5000 + "!")
    assert len(found.message) <= show.MESSAGE_LIMIT and found.message.endswith("…")
    assert len(found.output) <= show.OUTPUT_LIMIT + 2 and found.output.startswith("…") and found.output.endswith("!")
    assert found.summary.endswith("…")
    assert len(found.summary) <= show.SUMMARY_LIMIT


def test_names_that_are_left_out_are_counted() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_an_iteration_says_what_each_case_gains() -> None:
    def timing(size: int, speedup: float | None, same: bool = False, wide: float = 0.001) -> CaseTiming:
        case = {"M": 64, "N": size}
        return CaseTiming(
            case=case,
            level=Level.REPLAYED,
            latency_ms=1.0,
            speedup=speedup,
            same=same,
            bound="memory",
            roofline_percent=61.4,
            speedup_low=speedup and speedup - wide,
            speedup_high=speedup and speedup + wide,
        )

    cases = [timing(128, 1.226), timing(256, 1.0, same=True, wide=0.0), timing(512, 0.946), timing(64, 1.01, wide=0.1)]
    text = show._by_case(BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, cases=cases))
    ceiling, choice = "61% of its ceiling (memory)", "a choice by shape could have the gains without the losses"
    some = ("N=512: -5.4%", "N=256: no change", "N=64: no change", "N=128: +22.6%")
    same = ", the same program as the incumbent"
    assert text == "; ".join([*(f"{one}, 1 ms, {ceiling}{same * ('256' in one)}" for one in some), choice])
    gains = show._by_case(BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, cases=cases[:2]))
    assert choice not in gains
    alone = BenchmarkResult(status=Status.PASSED, level=Level.MODELLED, cases=[timing(128, None)])
    assert show._by_case(alone) == f"~{ceiling}"


def test_a_case_says_what_its_figure_does_not() -> None:
    plain = CaseTiming(case={"N": 1}, level=Level.REPLAYED, latency_ms=1.0, note="eager")
    assert notes_of(plain) == ["eager"]
    more = {
        "weight": 3.0,
        "steady": False,
        "mhz": 1410,
        "same_bytes": True,
        "error_used": 0.314,
        "ordinary": Ordinary(us=10.0, replayed_us=10.0, host_us=42.0),
    }
    case = plain.model_copy(update=more)
    assert "; ".join(notes_of(case)) == (
        "weight 3; clock not steady (1410 MHz); the incumbent's bytes; 31% of the error allowed; "
        "host-bound: 42 us on the host; eager"
    )

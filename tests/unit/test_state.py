"""The fold of a session's records: what each of them makes of the ones before it."""

from __future__ import annotations

from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Level, Status
from tilewright.policy import Advice, Reason, Verdict, VerdictKind
from tilewright.rules import Rules
from tilewright.session.records import Begun, Checked, Measured, Row, RunKind, Settled, Started
from tilewright.session.state import Phase, State
from tilewright.task import Backend

STARTED = Started.model_construct(session="s", baseline="0" * 40, rules=Rules(), sizes=0, backend=Backend.CUDA)


def begun(candidate: str, run: RunKind = "check") -> Begun:
    return Begun(run=run, candidate=candidate, commit=candidate * 40, secret_sha256="")


def checked(candidate: str, status: Status = Status.PASSED) -> Checked:
    return Checked(candidate=candidate, secret="", result=CorrectnessResult(status=status))


def measured(candidate: str, speedup: float) -> Measured:
    figures = {"speedup": speedup, "speedup_low": speedup - 0.01, "speedup_high": speedup + 0.01}
    result = BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, latency_ms=1.0, **figures)
    again = result if speedup > 1.02 else None
    return Measured(secret="", first=result, again=again)


def row(state: State, candidate: str, reason: Reason, commit: str = "") -> Row:
    kind = VerdictKind.KEEP if commit or not state.rows else VerdictKind.REVERT
    return Row(
        iteration=state.iteration, candidate=candidate, optimization="x", latency_ms=1.0, modelled=False, passed=True,
        verdict=Verdict(kind=kind, reason=reason), advice=Advice(action="continue", reason=""), commit=commit,
    )  # fmt: skip


def measured_baseline() -> State:
    state = State(STARTED)
    for entry in (begun("a"), checked("a"), begun("a", "benchmark"), measured("a", 1.0)):
        state.apply(entry)
    state.apply(row(state, "a", Reason.BASELINE))
    return state


def test_each_record_leads_to_the_next_phase() -> None:
    state = measured_baseline()
    seen = [state.phase]
    for entry in (begun("b"), checked("b"), begun("b", "benchmark"), measured("b", 1.3), Settled(commit="f" * 40)):
        state.apply(entry)
        seen.append(state.phase)
    assert seen == [
        Phase.READY, Phase.READY, Phase.CHECKED, Phase.CHECKED, Phase.MEASURED, Phase.RESOLVED
    ]  # fmt: skip
    assert (state.incumbent_commit, state.moved_from) == ("f" * 40, "0" * 40)
    state.apply(row(state, "b", Reason.GAIN, "e" * 40))
    assert (state.incumbent_commit, state.moved_from) == ("e" * 40, "f" * 40)
    state.apply(begun("c"))
    assert (state.incumbent_commit, state.moved_from, state.versions) == ("e" * 40, "", ["0" * 40, "e" * 40])


def test_a_check_that_was_broken_off_is_not_the_one_whose_result_counts() -> None:
    """What is kept is what was judged, whatever a later check began with."""
    state = measured_baseline()
    for entry in (begun("b"), checked("b"), begun("c"), begun("b", "benchmark"), measured("b", 1.3)):
        state.apply(entry)
    assert state.attempt.begun is not None
    assert (state.phase, state.attempt.begun.commit) == (Phase.MEASURED, "b" * 40)


def test_void_runs_take_no_time() -> None:
    state = measured_baseline()
    for entry in (begun("b"), checked("b", Status.VOID), begun("b")):
        state.apply(entry)
    assert (state.phase, state.attempt.seconds) == (Phase.READY, 0.0)
    assert state.attempt.running is not None


def test_what_was_withdrawn_may_be_tried_again_and_what_lost_may_not() -> None:
    state = measured_baseline()
    for candidate, reason in (("b", Reason.WITHDRAWN), ("c", Reason.REGRESSION)):
        for entry in (begun(candidate), checked(candidate), Settled()):
            state.apply(entry)
        state.apply(row(state, candidate, reason))
    assert state.tried.keys() == {"a", "c"}


def test_a_version_that_a_later_check_shows_to_be_wrong_is_revoked() -> None:
    state = measured_baseline()
    for entry in (begun("b"), checked("b"), begun("b", "benchmark"), measured("b", 1.3), Settled(commit="f" * 40)):
        state.apply(entry)
    state.apply(row(state, "b", Reason.GAIN, "e" * 40))
    wrong = CorrectnessResult.model_validate(
        {"status": "wrong_values", "faulty": 1, "cases": [{"case": {"N": 3}, "hidden": True, "status": "wrong_values"}]}
    )
    state.apply(begun("c"))
    state.apply(Checked(candidate="c", secret="", result=wrong))
    assert (state.incumbent_commit, state.moved_from) == ("0" * 40, "e" * 40)
    assert (state.rows[1].passed, state.rows[1].verdict.reason) == (False, Reason.INCORRECT)
    assert state.tried["b"].detail.startswith("revoked in iteration 2")


def test_what_lost_against_a_version_that_is_revoked_may_be_tried_again() -> None:
    state = measured_baseline()
    for entry in (begun("b"), checked("b"), begun("b", "benchmark"), measured("b", 1.3), Settled(commit="f" * 40)):
        state.apply(entry)
    state.apply(row(state, "b", Reason.GAIN, "e" * 40))
    for candidate, reason in (("c", Reason.REGRESSION), ("d", Reason.INCORRECT)):
        for entry in (begun(candidate), checked(candidate), Settled()):
            state.apply(entry)
        state.apply(row(state, candidate, reason))
    wrong = CorrectnessResult.model_validate(
        {"status": "wrong_values", "faulty": 1, "cases": [{"case": {"N": 3}, "hidden": True, "status": "wrong_values"}]}
    )
    state.apply(begun("g"))
    state.apply(Checked(candidate="g", secret="", result=wrong))
    assert state.tried.keys() == {"a", "b", "d"}

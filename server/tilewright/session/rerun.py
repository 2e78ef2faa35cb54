"""`tilewright rerun`: one iteration's check again with its revealed secret, and a fresh benchmark beside the logged.

Changes nothing in the session or its ledger: the runs have their own evaluator, and files come from commits alone.
"""

from __future__ import annotations

import math
from functools import partial

from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.evaluation.snapshot import content_id
from tilewright.policy import agree, ratio_of
from tilewright.repository import Files
from tilewright.rules import DEFAULT, Rules
from tilewright.session.beginning import usable_backend
from tilewright.session.checkout import Checkout, EditableFiles
from tilewright.session.jobs import Progress, attended
from tilewright.session.records import Started, replayed_in
from tilewright.session.runs import runs_of
from tilewright.session.state import SAME_SYNTAX, Attempt, State
from tilewright.text import Line, Mark


def attempt_of(state: State, iteration: int) -> Attempt:
    """What is on record of an iteration. Raises `UsageError` where nothing was checked in it."""
    attempt = state.attempts[iteration] if iteration < len(state.attempts) else None
    if attempt is None or attempt.checked is None:
        last = state.iteration - (state.checked is None)  # the one under way has its number before its first check
        raise UsageError(
            f"iteration {iteration} has no check on record; the session has iterations 0 to {max(last, 0)}"
        )
    return attempt


async def rerun(checkout: Checkout, iteration: int, session: str, progress: Progress) -> list[Line]:
    """Run an iteration's check and benchmark again, and compare. Raises `UsageError` where that cannot be done here."""
    return await attended(partial(_rerun, checkout, iteration, session), progress)


async def _rerun(checkout: Checkout, iteration: int, session: str, tell: Tell) -> list[Line]:
    state = State.of(checkout.journal(checkout.session_folder(session)).entries)
    attempt, started = attempt_of(state, iteration), state.started
    checked, measured, begun = attempt.checked, attempt.measured, attempt.begun
    assert checked is not None and begun is not None
    candidate = _content(checkout, started, begun.commit, checked.candidate, f"the candidate of iteration {iteration}")
    lines = [Line("candidate", Mark.OK, f"commit {begun.commit[:12]} holds content {checked.candidate[:16]}")]
    if checked.same:
        return [*lines, Line("check", Mark.WARN, f"no run was made: {SAME_SYNTAX}")]
    incumbent = _files(checkout, started, attempt.incumbent) if measured is not None and iteration > 0 else None
    usable_backend(started.backend)
    runs = runs_of(started, checkout.repository)
    try:
        here = await runs.environment()
        if here.device != started.environment.device:
            raise UsageError(f"the session ran on {started.environment.device}, this is {here.device}: rerun it there")
        for name in ("driver", "torch", "cuda_tile", "compiler", "python"):
            then, now = getattr(started.environment, name), getattr(here, name)
            if then != now:
                lines.append(Line(name, Mark.WARN, f"{then} when it was logged, {now} here"))
        limit = 60 * started.rules.iteration_minutes
        versions = [] if started.harness else [_files(checkout, started, commit) for commit in attempt.versions]
        again = await runs.correctness(candidate, checked.secret, limit, tell, begun.known, versions)
        lines.append(compare_checks(checked.result, again))
        if measured is not None and measured.sizes is not None:
            drawn = f"{measured.secret}-sizes"
            again = await runs.widely(candidate, drawn, tell, versions, limit, replayed_in(measured.first))
            lines.append(compare_checks(measured.sizes, again, "sizes"))
        if measured is not None:
            confirms = measured.again is not None
            fresh = await runs.benchmark(candidate, incumbent, new_secret(), limit, tell, confirms)
            lines += compare_benchmarks(measured.result, fresh, started.rules)
    finally:
        await runs.close()
    return lines


def compare_checks(logged: CorrectnessResult, again: CorrectnessResult, what: str = "check") -> Line:
    """The logged check and the one of now: the same status on the same inputs, which follow from the secret. Of
    many sizes, one may get further than the other in the time that they have."""
    if again.status is Status.VOID:
        return Line(what, Mark.FAIL, f"could not be made again: {again.message}")
    same = logged.status is again.status and (what == "sizes" or len(logged.cases) == len(again.cases))
    shown = f"logged {logged.status} over {len(logged.cases)} cases, now {again.status} over {len(again.cases)}"
    return Line(what, _mark(same), shown)


def compare_benchmarks(logged: BenchmarkResult, fresh: BenchmarkResult, rules: Rules = DEFAULT) -> list[Line]:
    """The logged benchmark, and a fresh one on other seeds."""
    if logged.status is not fresh.status:
        return [Line("benchmark", Mark.FAIL, f"logged {logged.status}, now {fresh.status}: {fresh.message}")]
    if not logged.passed or logged.latency_ms is None or fresh.latency_ms is None:
        return [Line("benchmark", Mark.OK, f"{logged.status} then and now")]
    if logged.modelled:
        lines = []
        pairs = [("latency", logged.latency_ms, fresh.latency_ms), ("speedup", logged.speedup, fresh.speedup)]
        for name, before, here in pairs:
            if before and here:
                near = math.isclose(before, here, rel_tol=rules.model_resolution)
                lines.append(Line(f"modelled {name}", _mark(near), f"logged ~{before:.6g}, now ~{here:.6g}"))
        return lines
    then, now = ratio_of(logged), ratio_of(fresh)
    if then is None or now is None:
        shown = f"{logged.latency_ms:.6f} ms then, {fresh.latency_ms:.6f} ms now; without a pair there is no interval"
        return [Line("benchmark", Mark.WARN if then == now else Mark.FAIL, shown)]
    overlap = agree(then, now)
    shown = f"speedup {then} logged, {now} now: the intervals {'overlap' if overlap else 'do not overlap'}"
    return [Line("benchmark", _mark(overlap), shown)]


def _mark(good: object) -> Mark:
    return Mark.OK if good else Mark.FAIL


def _content(checkout: Checkout, started: Started, commit: str, wanted: str, what: str) -> Files:
    """The editable files of a commit. Raises `UsageError` where it is not there, or holds other content."""
    if checkout.repository.resolve(commit) is None:
        raise UsageError(
            f"{what}, commit {commit[:12]}, is not in this repository: its ref was deleted and git dropped it; fetch "
            "it from a copy of the repository, or import the session from its export"
        )
    files = _files(checkout, started, commit)
    if (found := content_id(files)) != wanted:
        raise UsageError(f"{what}, commit {commit[:12]}, holds content {found}, but {wanted} is on record")
    return files


def _files(checkout: Checkout, started: Started, commit: str) -> Files:
    return EditableFiles(checkout.repository, started).at(commit)

"""Makes a session's part of the report: the one place that knows how journal, repository and programs are kept."""

from __future__ import annotations

import shlex
from pathlib import Path

from tilewright.evaluation.results import geometric_mean
from tilewright.ledger import Journal
from tilewright.policy import Reason, VerdictKind, multiplied, product, ratio_of
from tilewright.repository import Files, Repository
from tilewright.session import whole
from tilewright.session.export import carried
from tilewright.session.records import ENTRY, Row
from tilewright.session.report.data import Iteration, Outcome, Session
from tilewright.session.report.figures import cases_of, changes, checked_on, configs, diff, sustained_of, together
from tilewright.session.rows import shown_latency
from tilewright.session.state import Attempt, State

OUTCOMES = {VerdictKind.KEEP: Outcome.KEPT, VerdictKind.CRASH: Outcome.CRASHED}


def session_of(path: Path, repository: Repository | None) -> Session:
    """A session; without a repository its diffs and configs are left out. Raises `JournalAltered`."""
    journal = Journal(path, ENTRY)
    state = State.of(journal.entries)
    started = state.started
    editable = tuple(started.editable)
    last, environment = state.incumbent_result, started.environment
    speedup, how = whole.total(state)
    direct = state.ended.direct if state.ended is not None and whole.direct_of(state) is not None else None
    total = direct or together(state.keeps, state.baseline_result)
    cases = total.cases if total else []
    firsts, weights = [case.incumbent_ms or case.latency_ms for case in cases], [case.weight for case in cases]
    return Session(
        name=started.session,
        task=started.task_name,
        folder=started.task,
        began=journal.times[0],
        until=journal.times[-1],
        ended=state.ended.reason if state.ended is not None else "",
        advice=f"{state.rows[-1].advice.action}: {state.rows[-1].advice.reason}" if state.rows else "",
        branch=started.branch,
        base=started.baseline,
        device=environment.device.removesuffix(" (modelled)"),
        level=last.level if last is not None else None,
        speedup=speedup,
        how=how,
        product=product(state.keeps),
        direct=direct is not None,
        sustained=sustained_of(total),
        before_ms=geometric_mean(firsts, weights) if firsts else None,
        after_ms=total.latency_ms if total else None,
        doubts=(*carried(path.parent), *([] if whole.agrees(state) else whole.told(state)), *state.notes),
        cases=tuple(cases_of(total, state.baseline_result, environment.ceilings)),
        iterations=tuple(
            _iteration(row, attempt, state, path.parent / "programs", repository)
            for row, attempt in zip(state.rows, state.attempts, strict=False)  # the last has no row yet
        ),
        configs=configs(*(_files(repository, at, editable) for at in (started.baseline, state.incumbent_commit))),
        environment=tuple((name, value) for name, value in environment if isinstance(value, str) and value),
    )


def _iteration(row: Row, attempt: Attempt, state: State, programs: Path, repository: Repository | None) -> Iteration:
    editable = tuple(state.started.editable)
    kept = [one for one in state.attempts if one.is_kept and one.commit in attempt.versions]
    keeps = [one.result for one in kept if one.result is not None]
    before = keeps[-1] if keeps else state.baseline_result if row.iteration else None
    commit = attempt.begun.commit if attempt.begun is not None else ""
    result = attempt.measured.result if attempt.measured is not None and row.latency_ms is not None else None
    speedup = None if result is None else ratio_of(result)
    figures = ("", result.sustained if result is not None else "")
    right = row.passed or row.verdict.reason is Reason.WITHDRAWN
    outcome = OUTCOMES.get(row.verdict.kind, Outcome.REVERTED if right else Outcome.WRONG)
    return Iteration(
        number=row.iteration,
        name=row.optimization,
        outcome=outcome if row.iteration else Outcome.BASELINE,
        reason=row.verdict.reason,
        detail=row.verdict.detail,
        latency=shown_latency(row.latency_ms, row.modelled),
        speedup=speedup,
        total=None if speedup is None else multiplied([product(keeps), speedup]),
        sustained=sustained_of(result),
        doubts=tuple(text for text in [*row.trust.split("; "), *attempt.remarks] if text not in figures),
        cases=tuple(cases_of(result, before, state.started.environment.ceilings)),
        kernels=tuple(changes(before, result, programs)),
        diff=diff(*(_files(repository, at, editable) for at in (attempt.incumbent, commit))),
        checked=checked_on(attempt, state.started) if row.passed else "",
        restore=f"git restore --source={commit[:12]} -- {shlex.join(editable)}" if commit else "",
    )


def _files(repository: Repository | None, commit: str, names: tuple[str, ...]) -> Files:
    """The files of a commit; none where it is not there."""
    there = repository is not None and commit and repository.resolve(commit) is not None
    return repository.files(commit, names) if repository is not None and there else {}

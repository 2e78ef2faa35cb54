"""What the tools answer, made from a session's state: the first line answers, the rest explains, all of it short."""

from __future__ import annotations

from typing import Any

from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult
from tilewright.policy import Verdict, VerdictKind, product, ratio_of
from tilewright.session import whole
from tilewright.session.jobs import Job
from tilewright.session.records import Measured, Row, Started
from tilewright.session.reports import IterationReport, StatusReport
from tilewright.session.rows import HARNESS_TRUSTED, notes_of, render_row, shown_latency
from tilewright.session.state import Attempt, Phase, State
from tilewright.task import case_label
from tilewright.text import cut

FINISH = (
    "`tilewright finish` (a clean branch of what was kept), `tilewright report --pr` (the body of its pull request)"
)
RESUME = "start_session with resume=true takes this session up again"

SUMMARY_LIMIT = 400
MESSAGE_LIMIT = 1500
FAILURE_LIMIT = 600
OUTPUT_LIMIT = 800
CASES_SHOWN = 8
STEP = "run_iteration"
"""The tool that takes an edit to its row. The tools of its stages go on with what it left, and it with theirs."""


def said(summary: str, started: Started) -> str:
    """The first line of an answer. Where the machine does not confine a worker, or not in all, that line says so."""
    unprotected = started.environment.unprotected
    return f"{summary} [{unprotected}]" if unprotected else summary


def no_session() -> StatusReport:
    """The status before any session."""
    return StatusReport(
        summary="no session yet in this checkout",
        phase="none",
        next="call start_session with the path of the task's folder",
    )


def starting(job: Job, state: State | None) -> StatusReport:
    """A session whose baseline is not measured yet."""
    session = state.started.session if state is not None else ""
    summary = f"starting: {job.message}"
    return StatusReport(summary=summary, session=session, state="running", phase=Phase.BASELINE, next=job.again)


def waiting(job: Job, state: State) -> IterationReport:
    """The answer of a run that is not over."""
    summary = said(f"still running: {job.message}", state.started)
    return IterationReport(summary=summary, state="running", next=job.again)


def status(state: State, then: str, job: Job | None, wrong: str, holder: str = "") -> StatusReport:
    """Where a session stands, which `job` is under way, and what comes `then`: enough to go on without any memory of
    it. `wrong` says how many results of the entry point were wrong; `holder` is the other process that works on it."""
    started, rules = state.started, state.started.rules
    doing = f"; {job.what} is running: {job.message}" if job is not None else _broken_off(state, bool(holder))
    keeps = sum(row.verdict.kind is VerdictKind.KEEP for row in state.rows[1:])
    where = f"{started.task_name} on {started.backend} ({started.environment.device})"
    mark = "~" if started.modelled and keeps else ""
    done = max(len(state.rows) - 1, 0)
    so_far = f"{keeps} of {done} kept, {mark}{product(state.keeps).speedup:.3f}x the baseline"
    if state.phase is Phase.ENDED:
        open_end = f"; the last candidate has no row ({_pending(state)})" if state.rows and state.checked else ""
        reason = state.ended.reason if state.ended is not None else ""
        summary = whole.beside(state, f"ended: {reason}. {where}{f': {so_far}' if state.rows else ''}{open_end}")
    else:
        pending = f"; pending: {state.verdict.kind}, {state.phase}" if state.verdict is not None else ""
        summary = f"{where}: iteration {state.iteration}{pending}; {so_far}{doing}"
    if holder:
        summary = f"{summary}. (only looking: this checkout is in use by {holder})"
    minutes = max(rules.iteration_minutes - state.attempt.seconds / 60, 0)
    left = max(rules.max_iterations - state.spent, 0)
    return StatusReport(
        summary=said(summary, started),
        session=started.session,
        task=started.task,
        state="running" if job is not None else "done",
        backend=started.backend,
        device=f"{started.environment.device}, {started.arch}",
        intensity=f"{started.intensity:.1f} flops per byte: {started.intensity_class}"
        if started.intensity
        else started.intensity_class,
        branch=started.branch if state.rows or state.phase is not Phase.ENDED else "",  # a failed baseline leaves none
        phase=state.phase,
        iteration=state.iteration if state.phase is not Phase.ENDED else done,
        editable=started.editable,
        incumbent=_incumbent(state),
        pending=_pending(state) if state.phase is not Phase.ENDED else "",
        tried=[_row(row, state) for row in state.rows],
        budget=f"{left} of {rules.max_iterations} iterations left; "
        f"{minutes:.1f} of {rules.iteration_minutes:g} minutes of evaluation left in this one; "
        f"{wrong} wrong results of this entry point so far",
        notes=state.notes,
        next=then if job is None else job.again,
        files={
            "table": "sandbox/perf_results.md",
            "report": "sandbox/report.html",
            "journal": _journal(started),
        },
    )


def judged(state: State, then: str) -> IterationReport:
    """What is known of the candidate under way: its check, and its measurement if there is one."""
    checked, measured = state.checked, state.measured
    assert checked is not None
    result, sizes = (measured.result, measured.sizes) if measured is not None else (None, None)
    runs = [checked.result, *(run for run in (result, sizes) if run is not None)]
    last = next((run for run in runs if not run.passed), result or checked.result)
    if checked.same:
        summary = _headline(state.verdict)
    elif not last.passed:
        summary = cut(f"{last.status.upper()}: {last.message.partition(chr(10))[0]}", SUMMARY_LIMIT)
    else:
        summary = _right(checked.result, state.started) if measured is None else _fast(state, measured)
    return IterationReport(
        summary=said(summary, state.started),
        status=last.status,
        candidate=checked.candidate,
        verdict=state.verdict,
        **_figures(result),
        message=cut(last.message, MESSAGE_LIMIT) or None,
        output=_end(last.output, OUTPUT_LIMIT) or None if isinstance(last, CorrectnessResult) else None,
        cases=(_checked(checked.result) if result is None else _by_case(result)) or None,
        next=then,
    )


def _right(result: CorrectnessResult, started: Started) -> str:
    """What a check that passed was made of."""
    passed = sum(case.status == "passed" for case in result.cases)
    if started.harness:
        skipped = f", {len(result.cases) - passed} skipped as on the baseline" if passed < len(result.cases) else ""
        ran = f"{passed} tests passed{skipped}" if result.cases else "the command ended with 0"
        return f"PASS [{HARNESS_TRUSTED}]: {ran}, in {result.seconds:.1f} s"
    hidden = sum(case.hidden for case in result.cases)
    unseen = f"; {result.all_unseen}" if result.all_unseen else ""
    return f"PASS: {passed} runs, {hidden} of them on hidden cases, in {result.seconds:.1f} s{unseen}"


def _fast(state: State, measured: Measured) -> str:
    """What a measurement says, and the check on many sizes that a gain has to pass."""
    result, sizes = measured.result, measured.sizes
    summary, mark = _headline(state.verdict), "~" if result.modelled else ""
    if not result.same:
        summary += f": {shown_latency(result.latency_ms, result.modelled)} ms"
    if result.speedup is not None:
        summary += f", {mark}{result.speedup:.4f}x the incumbent's speed"
    if result.harness:
        summary += f" [{HARNESS_TRUSTED}]"
    elif result.level is not None and not result.modelled:
        summary += f" [{result.level}]"
    if result.roofline_percent is not None:
        summary += f", {mark}{result.roofline_percent:.1f}% of the roofline"
    if sizes is not None and sizes.wanted:
        right = measured.sizes_right
        summary += f"; right on {right} more hidden sizes{f' of {sizes.wanted}' if right < sizes.wanted else ''}"
    checks = [sizes, state.checked.result if state.checked is not None else None]
    notes = [note for check in checks if check is not None for note in check.notes]
    return "; ".join([summary, *dict.fromkeys(notes)])


def _figures(result: BenchmarkResult | None) -> dict[str, Any]:
    """What a measurement has in figures."""
    ratio = ratio_of(result) if result is not None else None
    return {
        "latency_ms": result.latency_ms if result is not None else None,
        "speedup": ratio.speedup if ratio is not None else None,
        "interval": (ratio.low, ratio.high) if ratio is not None else None,
        "level": result.level if result is not None else None,
    }


def closed(state: State, number: int, then: str, job: Job | None = None) -> IterationReport:
    """An iteration whose row is on record; of the last one, `then` says how to go on. `job` ends the session."""
    row, attempt = state.rows[number], state.attempts[number]
    result = attempt.measured.result if attempt.measured is not None else None
    text = f"iteration {number}: {_headline(row.verdict)}"
    if row.verdict.kind is VerdictKind.KEEP and result is not None and result.roofline_percent is not None:
        text += f"; {'~' if row.modelled else ''}{result.roofline_percent:.1f}% of the roofline"
    text = cut("; ".join([text, *attempt.remarks]), SUMMARY_LIMIT)
    if row.advice.action == "stop":
        text += f"; stop: {row.advice.reason}"
        text += f"; kept {len(state.kept)}: {gain(state)}, on {state.started.branch}" if state.kept else ""
        then = f"stop: show the user the table, and say: {next_of(state)}"
    elif row.advice.action == "escalate":
        then = f"ask the user how to go on; then edit, and call {STEP} with go_on=true"
    if job is not None:
        text, then = f"{text}; the row is on record; still running: {job.message}", job.again
    return IterationReport(
        summary=said(whole.beside(state, text), state.started),
        state="done" if job is None else "running",
        verdict=row.verdict.model_copy(update={"detail": ""}),  # the summary has it
        row=render_row(row),
        advice=row.advice,
        message=_failure(attempt),
        cases=_by_case(result) or None if result is not None and not result.same else None,
        next=then,
    )


def _by_case(result: BenchmarkResult) -> str:
    """What each case gains or loses, the largest loss first, its latency if there are others, and its share of the
    nearest ceiling. A case is named by what not all have in common."""
    cases, mark = sorted(result.cases, key=lambda case: case.speedup or 1.0), "~" if result.modelled else ""
    lines = []
    for case in cases if len(cases) <= CASES_SHOWN else [*cases[: CASES_SHOWN // 2], *cases[-CASES_SHOWN // 2 :]]:
        own = {name: value for name, value in case.case.items() if any(one.case.get(name) != value for one in cases)}
        speed = f"{mark}{case.speedup - 1:+.1%}" if case.speedup is not None else ""
        if (case.speedup_low or 2.0) <= 1 <= (case.speedup_high or 0.0):
            speed = "no change"
        share = f"{mark}{case.roofline_percent:.0f}% of its ceiling ({case.bound})" if case.roofline_percent else ""
        latency = f"{mark}{case.latency_ms:.4g} ms" if len(cases) > 1 else ""
        said = ", ".join(filter(None, (speed, latency, share, *notes_of(case))))
        lines.append(": ".join(filter(None, (case_label(own), said))))
    if len(cases) > CASES_SHOWN:
        lines.append(f"{len(cases) - CASES_SHOWN} more between these, in the journal")
    if any((case.speedup_high or 1.0) < 1 for case in cases) and any((case.speedup_low or 1.0) > 1 for case in cases):
        lines.append("a choice by shape could have the gains without the losses")
    return "; ".join(lines)


def _checked(result: CorrectnessResult) -> str:
    """How the cases ended: failures first, then the largest errors. Hidden cases that passed are not named."""
    cases = [case for case in result.cases if not case.hidden or case.status != "passed"]
    cases.sort(key=lambda case: (case.status == "passed", -(case.rel_l2_error or 0.0)))
    lines = [
        f"{case.label}: {case.status}" + ("" if case.rel_l2_error is None else f", error {case.rel_l2_error:.2g}")
        for case in cases
    ]
    if left := cases[CASES_SHOWN:]:
        failed = sum(case.status != "passed" for case in left)
        lines[CASES_SHOWN:] = [f"{len(left)} more in the journal, {failed or 'none'} of which failed"]
    return "; ".join(lines)


def _failure(attempt: Attempt) -> str | None:
    """How a candidate failed, beyond the first line, which the verdict has."""
    results = [attempt.checked.result] if attempt.checked is not None else []
    results += [attempt.measured.sizes] if attempt.measured is not None and attempt.measured.sizes is not None else []
    failed = [result for result in results if not result.passed]
    return cut(failed[0].message.partition("\n")[2].strip(), FAILURE_LIMIT) or None if failed else None


def _end(text: str, limit: int) -> str:
    """The end of a text, with an ellipsis where its start is missing."""
    return text if len(text) <= limit else f"… {text[-limit:]}"


def _journal(started: Started) -> str:
    return f"sandbox/{started.session}/journal.jsonl"


def _headline(verdict: Verdict | None) -> str:
    return "measured" if verdict is None else f"{verdict.kind.upper()} ({verdict.reason}: {verdict.detail})"


def _broken_off(state: State, elsewhere: bool) -> str:
    """What to say of a last run that has no result. It is under way if `elsewhere`, in the process that holds the
    checkout; else it was broken off."""
    run = state.attempt.running
    return "" if run is None or elsewhere else f"; the last run ({run.run}) was broken off and counts for nothing"


def _row(row: Row, state: State) -> str:
    reason = f"{row.verdict.reason}: {cut(row.verdict.detail, 160)}" if row.verdict.detail else row.verdict.reason
    return f"{render_row(row)} {'; '.join([reason, *state.attempts[row.iteration].remarks])}"


def _incumbent(state: State) -> str:
    result = state.incumbent_result
    if result is None:
        return ""
    share = f", {result.roofline_percent:.1f}% of the roofline" if result.roofline_percent is not None else ""
    return f"{state.incumbent_commit[:12]}: {shown_latency(result.latency_ms, result.modelled)} ms{share}"


def _pending(state: State) -> str:
    if state.checked is None:
        return ""
    verdict = f", {_headline(state.verdict)}" if state.verdict is not None else ""
    return f"candidate {state.checked.candidate[:16]}: {state.phase}{verdict}"


def gain(state: State) -> str:
    """How much faster what was kept last is than the baseline, with the interval."""
    mark = "~" if state.started.modelled else ""
    ratio, how = whole.total(state)
    return f"{mark}{ratio.speedup:.4f}x the baseline's speed ({mark}{ratio.low:.4f} to {mark}{ratio.high:.4f}; {how})"


def left_behind(state: State) -> list[str]:
    """What was kept, the gain, the branch, and what to do next: a line each."""
    started, tried = state.started, max(len(state.rows) - 1, 0)
    names = [f"{state.rows[keep.iteration].optimization} (iteration {keep.iteration})" for keep in _with_rows(state)]
    if not names:
        kept = [f"nothing was kept of {tried} iteration{'' if tried == 1 else 's'}"]
    else:
        kept = [f"kept {len(names)} of {tried}: {', '.join(names)}", f"gain: {gain(state)}"]
    return [*kept, f"branch: {started.branch}", f"next: {next_of(state)}"]


def next_of(state: State) -> str:
    """What a user can do with a session that has ended."""
    return "; ".join([*([FINISH] if _with_rows(state) else []), RESUME])


def _with_rows(state: State) -> list[Attempt]:
    return [keep for keep in state.kept if keep.iteration < len(state.rows)]

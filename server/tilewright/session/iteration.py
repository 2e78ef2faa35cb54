"""A whole iteration in one call: check, measurement, keep or revert, row.

It takes the steps of the loop, and knows nothing of its own: each call begins at the stage on record. It stops where
somebody has to decide.
"""

from __future__ import annotations

import asyncio

from tilewright.errors import UsageError
from tilewright.session import show
from tilewright.session.checkout import EditableFiles
from tilewright.session.jobs import UNATTENDED_S, WAIT_S, Progress
from tilewright.session.loop import Loop
from tilewright.session.reports import IterationReport
from tilewright.session.rows import named
from tilewright.session.show import STEP
from tilewright.session.state import Phase, State
from tilewright.session.steps import what_next
from tilewright.text import cut

AGAIN = f"call {STEP} again, the same way"
GO_ON = f"call {STEP} with go_on=true"


async def run_iteration(
    loop: Loop,
    optimization: str,
    progress: Progress,
    root_cause: str | None = None,
    go_on: bool = False,
    wait_s: float = WAIT_S,
) -> IterationReport:
    """Take the edited files to their row, from the stage on record. `go_on`: what the last answer stopped for is
    decided."""
    name = named(optimization)
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_s
    state = loop.state()
    number = state.iteration
    tree = EditableFiles(loop.checkout.repository, state.started)
    stop = _decision(tree, state)
    if stop is not None and not go_on:
        return _stopped(state, *stop)
    gives_up = stop is not None and state.phase is not Phase.READY
    has_row = state.iteration > 1 and state.rows[-1].optimization == name and tree.are_kept(state)
    if state.phase is Phase.READY and not state.stops and has_row:  # a call was cancelled, and nobody was answered
        return show.closed(state, number - 1, what_next(loop.checkout, state))
    while True:
        state = loop.state()
        if state.iteration > number:  # a call beside this one closed it
            return show.closed(state, number, what_next(loop.checkout, state))
        if state.phase is Phase.RESOLVED or state.stops:
            closed = await loop.append_result(name, progress, root_cause, deadline - clock())
            return closed if closed.state == "done" else closed.model_copy(update={"next": AGAIN})
        if gives_up or state.phase is Phase.FAILED:
            loop.revert()
        elif state.phase is Phase.MEASURED:
            loop.checkpoint()
        else:
            edited = state.phase is not Phase.CHECKED or not tree.are_checked(state)
            run = loop.run_correctness if edited else loop.run_benchmark
            try:
                report = await run(progress, deadline - clock())
            except UsageError:
                if loop.state().iteration == number:
                    raise
                continue
            if report.state == "running":
                again = f"{AGAIN}, to go on waiting; work that no call waits for ends after {UNATTENDED_S:g} s"
                return IterationReport(summary=report.summary, state="running", next=again)
            if (after := loop.state()).phase is Phase.ENDED:
                return IterationReport(summary=report.summary, message=report.message, next=report.next)
            if (stop := _decision(tree, after, ran=True)) is not None:
                return _stopped(after, *stop)


def _decision(tree: EditableFiles, state: State, ran: bool = False) -> tuple[str, str] | None:
    """Why the iteration stands until somebody decides, and what there is to choose. `ran`: it began in this call."""
    attempt = state.attempt
    gives_up = f"{GO_ON} to take the edit back with its row"
    given_up = state.phase is Phase.FAILED and tree.are_kept(state)  # by a revert that was broken off
    if state.phase in (Phase.FAILED, Phase.MEASURED) and not given_up and not tree.are_checked(state):
        assert attempt.begun is not None
        back = f"`git restore --source={attempt.begun.commit[:12]} -- {' '.join(state.started.editable)}`"
        how = f"bring back with {back} what was judged, then {AGAIN}. Or {gives_up}: what the files hold is kept, too"
        return "the editable files changed since they were judged", how
    if state.phase is Phase.CHECKED:
        if state.measured is None or state.verdict is not None:
            return None
        sizes = state.measured.sizes
        text = state.measured.result.message if sizes is None or sizes.passed else sizes.message
        return f"the benchmark is void: {text}", f"{AGAIN}, to measure again when nothing disturbs it. Or {gives_up}"
    if state.phase is not Phase.READY:
        return None
    if ran:  # READY after a check: it was void
        text = state.checked.result.message if state.checked is not None else "it has no result"
        return f"the check is void: {text}", f"{AGAIN}: the evaluation failed, not the kernel"
    last = state.rows[-1].advice
    if last.action != "escalate":
        return None
    return f"this session waits for its user: {last.reason}", f"ask the user how to go on; then {GO_ON}"


def _stopped(state: State, why: str, how: str) -> IterationReport:
    summary = cut(f"DECIDE: iteration {state.iteration}: {why}", show.SUMMARY_LIMIT)
    return IterationReport(summary=show.said(summary, state.started), next=how)

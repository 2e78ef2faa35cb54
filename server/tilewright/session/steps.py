"""What to do now: the sentence that every answer of the loop ends with."""

from __future__ import annotations

from tilewright.errors import UsageError
from tilewright.session.checkout import Checkout, EditableFiles
from tilewright.session.show import STEP, next_of
from tilewright.session.state import Phase, State
from tilewright.session.wrong import used_up, wrong_results


def what_next(checkout: Checkout, state: State) -> str:
    """What to do now, with an eye on the working tree."""
    if state.phase is Phase.ENDED:
        return next_step(state) + checkout.not_kept(state)
    if state.stops:
        reason = state.rows[-1].advice.reason
        return f"stop and report the table to the user: the loop's next call ends the session ({reason})"
    if there := checkout.elsewhere(state):
        return there
    tree = EditableFiles(checkout.repository, state.started)
    if state.phase is Phase.READY and (changed := tree.protected_changes()):
        return f"protected files differ from the baseline's: {tree.how_to_restore(changed)}"
    if state.phase is Phase.READY and (text := used_up(wrong_of(checkout, state), state.started.rules.wrong_results)):
        return text
    return next_step(state, not tree.are_kept(state), tree.are_checked(state))


def not_now(tool: str, then: str) -> str:
    """Why a tool is refused, and what to do instead: only what comes before that tool's own turn."""
    return f"{tool} does not come now: {then.removesuffix(f', then {tool}')}"


def run_key(state: State, identity: str) -> str:
    """What identifies a run of a candidate: in another iteration it is another run."""
    return f"{state.iteration} {identity}"


def refuse_repeats(state: State, identity: str) -> None:
    """Raises `UsageError` for a candidate whose verdict is known."""
    if identity == state.incumbent_candidate:
        raise UsageError("nothing was edited: the editable files equal the incumbent's")
    if (verdict := state.tried.get(identity)) is not None:
        raise UsageError(
            f"this very content was tried before and ended as {verdict.kind} ({verdict.reason}: {verdict.detail}); "
            "another try would measure the same thing. Change something, or revert"
        )


def wrong_of(checkout: Checkout, state: State) -> int:
    """Wrong results of the session's entry point, in all sessions of the repository."""
    return wrong_results(checkout.repository, state.started.entry, state.started.backend).count


def next_step(state: State, edited: bool = False, checked: bool = True) -> str:
    """What to do now, in one sentence. `edited`: the editable files differ from the incumbent's; `checked`: they are
    the pending candidate's."""
    match state.phase:
        case Phase.ENDED:
            if not state.rows:
                return "tell the user what the summary says; when it is fixed and committed, call start_session again"
            return f"the session has ended; show the user sandbox/report.html, and say: {next_of(state)}"
        case Phase.BASELINE:
            return "call start_session again: the baseline is not measured yet"
        case Phase.READY:
            if edited:
                return f"call {STEP} on the edited files"
            go_on = f"apply ONE optimization to {', '.join(state.started.editable)}, then call {STEP}"
            if state.rows[-1].advice.action == "escalate":
                return f"stop here and ask the user how to go on: {state.rows[-1].advice.reason}. Then {go_on}"
            return go_on
        case Phase.CHECKED:
            return "call run_benchmark" if checked else "the files changed since they passed: call run_correctness"
        case Phase.FAILED:
            return "call revert, then append_result"
        case Phase.MEASURED:
            if not checked:
                return "the files changed since they were measured: bring that state back, or call revert"
            return "call git_checkpoint, then append_result"
        case Phase.RESOLVED:
            kept = "kept" if state.attempt.is_kept else "reverted"
            return f"call append_result: the candidate is {kept}, and its row is missing"

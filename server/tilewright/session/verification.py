"""`tilewright verify`: whether everything that a session left is what it wrote. Reads, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import commitment
from tilewright.evaluation.snapshot import content_id
from tilewright.ledger import JournalAltered
from tilewright.policy import VerdictKind
from tilewright.repository import Repository
from tilewright.session import whole
from tilewright.session.checkout import Checkout
from tilewright.session.programs import named, not_as_timed, programs_folder
from tilewright.session.records import Begun, Checked, Ended, Entry, Measured, Row, Settled, Started
from tilewright.session.rows import close_iteration
from tilewright.session.state import State
from tilewright.text import Line, Mark


def verify(checkout: Checkout, session: str = "") -> list[Line]:
    """Check a session whole: one line for each kind of thing. Raises `UsageError` where there is no such session."""
    folder = checkout.session_folder(session)
    try:
        journal = checkout.journal(folder)
    except JournalAltered as error:
        return [Line("journal", Mark.FAIL, str(error))]
    if not journal.entries:
        raise UsageError(f"the journal of {folder.name} is empty")
    state = State.of(journal.entries)
    chain = f"{len(journal.entries)} records, each continues the chain; the last is {journal.head[:12]}"
    lines = [Line("journal", Mark.OK, chain)]
    lines += _first_to_last(state)
    repository = checkout.repository
    for what, good, found in (
        ("anchors", "the commits name records of this journal", _anchors(checkout, folder.name, journal.hashes)),
        ("commits", "candidates and kept commits hold what was judged", _commits(repository, state)),
        ("secrets", "every revealed secret is the one committed to before its run", _secrets(journal.entries)),
        ("verdicts", "the recorded results give the recorded rows", _verdicts(journal.entries)),
    ):
        failures = [Line(what, Mark.FAIL, text) for text in found]
        lines += failures or [Line(what, Mark.OK, good)]
    return [*lines, *_branch(checkout, state), *_programs(checkout, state)]


def _branch(checkout: Checkout, state: State) -> Iterator[Line]:
    """What became of the session's branch. On that of a session that has ended, its user goes on."""
    if state.ended is None:
        if text := checkout.branch_moved(state):
            yield Line("branch", Mark.FAIL, text)
        return
    repository, name, kept = checkout.repository, state.started.branch, state.incumbent_commit
    branch = f"refs/heads/{name}"
    if repository.resolve(branch) is None or repository.since(branch, kept):
        again = f"`git branch {name}-kept {kept[:12]}` gives it a name again"
        text = f"branch {name} no longer holds {kept[:12]}, which the session kept last; {again}"
        yield Line("branch", Mark.FAIL, text)
    elif later := repository.since(kept, branch):
        what = "1 commit" if len(later) == 1 else f"{len(later)} commits"
        yield Line("branch", Mark.WARN, f"{name} has {what} after {kept[:12]}, which the session kept last: not judged")


def _programs(checkout: Checkout, state: State) -> list[Line]:
    """None for a session without device programs."""
    programs, folder = named(state), programs_folder(checkout.sandbox, state.started.session)
    found = not_as_timed(folder, programs)
    lines = [Line("programs", Mark.WARN if is_known else Mark.FAIL, text) for text, is_known in found]
    if programs and not lines:
        lines.append(Line("programs", Mark.OK, f"{len(programs)} device programs are those that were timed"))
    return lines


def _first_to_last(state: State) -> list[Line]:
    """What became of the comparison of the first program with the last, where one belongs to the session."""
    direct = state.ended.direct if state.ended is not None else None
    mark = Mark.OK if whole.agrees(state) else Mark.WARN
    if direct is not None and not direct.passed and direct.status is not Status.VOID:
        mark = Mark.FAIL  # what was kept last is wrong, or fails
    return [Line("first to last", mark, text) for text in whole.told(state)]


def _anchors(checkout: Checkout, session: str, hashes: list[str]) -> Iterator[str]:
    try:
        checkout.need_anchors(session, hashes)
    except JournalAltered as error:
        yield str(error)


def _commits(repository: Repository, state: State) -> Iterator[str]:
    for number, attempt in enumerate(state.attempts):
        if attempt.begun is None:
            continue
        for what, commit in (("candidate", attempt.begun.commit), ("kept", attempt.commit)):
            where = f"iteration {number}, {what}: commit {commit[:12]}"
            if commit and repository.resolve(commit) is None:
                yield f"{where} is not in this repository"
            elif commit:
                held, wanted = content_id(repository.files(commit, state.started.editable)), attempt.begun.candidate
                if held != wanted:
                    yield f"{where} holds content {held[:16]}, not {wanted[:16]}"


def _secrets(entries: list[Entry]) -> Iterator[str]:
    drawn: Begun | None = None
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, Begun):
            drawn = entry
        elif isinstance(entry, Checked | Measured) or (isinstance(entry, Ended) and entry.direct is not None):
            run = {"checked": "check", "measured": "benchmark", "ended": "end"}[entry.kind]
            if drawn is None or drawn.run != run or (isinstance(entry, Checked) and drawn.candidate != entry.candidate):
                yield f"record {number}: this run ({run}) was not committed to before it was made"
            elif commitment(entry.secret) != drawn.secret_sha256:
                yield f"record {number}: the secret of this run ({run}) is not the one that was committed to"
            drawn = None


def _verdicts(entries: list[Entry]) -> Iterator[str]:
    started = entries[0]
    assert isinstance(started, Started)
    state = State(started)
    for number, entry in enumerate(entries[1:], 2):
        where = f"record {number}, iteration {state.iteration}"
        if isinstance(entry, Settled) and entry.commit and not _keeps(state):
            yield f"{where}: a candidate was kept that no verdict keeps"
        if isinstance(entry, Row):
            if state.checked is None:
                yield f"{where}: a row without a check"
                return
            row = close_iteration(state, entry.optimization, entry.root_cause)
            row = row.model_copy(update={"commit": entry.commit})
            if bool(entry.commit) is not state.attempt.is_kept:
                yield f"{where}: the row's commit does not follow from the records before it"
            elif entry != row:
                names = [name for name in Row.model_fields if getattr(entry, name) != getattr(row, name)]
                yield f"{where}: the row's {', '.join(names)} do not follow from the records before it"
        state.apply(entry)


def _keeps(state: State) -> bool:
    verdict = state.verdict if state.rows and state.measured is not None else None
    return verdict is not None and verdict.kind is VerdictKind.KEEP

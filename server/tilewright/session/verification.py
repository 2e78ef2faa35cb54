"""`tilewright verify`: whether everything that a session left is what it wrote. Reads, and changes nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import commitment
from tilewright.heads import HeadStore
from tilewright.policy import settled, verdict_of_check
from tilewright.session import integrity, trailers, whole
from tilewright.session.checkout import Checkout, EditableFiles, Forged
from tilewright.session.history import (
    RUN_OF,
    Checked,
    Committed,
    Ended,
    Interrupted,
    Kept,
    Measured,
    Row,
    SizesChecked,
    Started,
    State,
    WholeCompared,
)
from tilewright.session.integrity import Chain
from tilewright.session.programs import missing_or_altered, named, not_written, programs_folder
from tilewright.session.rows import close_iteration
from tilewright.text import few


class Mark(StrEnum):
    """How one thing that was checked stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Line:
    """One thing that was checked."""

    what: str
    mark: Mark
    detail: str


def session_folder(checkout: Checkout, session: str) -> Path:
    """The folder of a session, by default the current one. Raises `UsageError` where there is none."""
    if not session:
        folder = checkout.current_folder()
        if folder is None:
            raise UsageError("there is no session in this checkout; name one, as in `ls sandbox`")
        return folder
    folder = checkout.sandbox / session
    if Path(session).name != session or not (folder / "journal.jsonl").is_file():
        raise UsageError(f"there is no session {session} in sandbox/")
    return folder


def verify(checkout: Checkout, session: str = "") -> list[Line]:
    """Check a session whole: one line for each kind of thing. Raises `UsageError` where there is no such session."""
    folder = session_folder(checkout, session)
    try:
        chain = checkout.read(folder)
    except Forged as error:
        return [Line("journal", Mark.FAIL, str(error))]
    if not chain.entries:
        raise UsageError(f"the journal of {folder.name} is empty")
    state = State.of(chain.entries)
    lines = [
        Line("journal", Mark.OK, f"{len(chain.entries)} records, each continues the chain; the last is "
             f"{chain.hashes[-1][:12]}"),
        *_outside(folder, chain, state),
    ]  # fmt: skip
    if not session and (later := _begun_later(checkout, folder)):
        lines.append(Line("sessions", Mark.WARN, f"begun later than this one, in sandbox/: {', '.join(later)}"))
    differing = ", ".join(state.started.rules.differences())
    lines.append(Line("rules", Mark.OK, differing or "all of them are the default"))
    if state.started.eased:
        lines.append(Line("rules", Mark.WARN, f"eased by an argument: {', '.join(state.started.eased)}"))
    if unprotected := state.started.environment.unprotected:
        lines.append(Line("workers", Mark.WARN, f"{unprotected}: {state.started.environment.isolation}"))
    for number, said in state.remarks.items():
        if said:
            lines.append(Line("runs", Mark.WARN, f"iteration {number}: {'; '.join(said)}"))
    lines += _first_to_last(state)
    aspects: list[tuple[str, str, Callable[[], Iterator[str]]]] = [
        ("commits", "candidates and kept commits hold what was judged", lambda: _commits(checkout, chain)),
        ("trailers", "the commits' trailers name records of this journal", lambda: _trailers(checkout, chain)),
        (
            "refs",
            "the branch holds what was kept last, and refs stand where the session left them",
            lambda: _refs(checkout, chain, state),
        ),
        ("secrets", "every secret that was revealed is the one committed to before its run", lambda: _secrets(chain)),
        ("verdicts", "the recorded results give the recorded verdicts and rows", lambda: _verdicts(chain)),
        ("table", "perf_results.md is the journal's rows", lambda: _table(checkout, folder, state)),
        ("protected", "protected files are the baseline's", lambda: _protected(checkout, state)),
    ]
    for what, good, check in aspects:
        found = list(check())
        lines += [Line(what, Mark.FAIL, text) for text in found] or [Line(what, Mark.OK, good)]
    if text := _later(checkout, state):
        lines.append(Line("branch", Mark.WARN, text))
    return [*lines, *_programs(checkout, chain, state)]


def _programs(checkout: Checkout, chain: Chain, state: State) -> list[Line]:
    """None for a session without device programs."""
    programs, folder = named(chain.entries), programs_folder(checkout.sandbox, state.started.session)
    lines = [Line("programs", Mark.FAIL, text) for text in missing_or_altered(folder, programs)]
    if text := not_written(folder, programs):
        lines.append(Line("programs", Mark.WARN, text))
    if programs and not lines:
        whole = sum(program.whole for program in programs.values())
        good = f"{len(programs)} device programs are those that were timed; {whole} of them can be replayed"
        lines.append(Line("programs", Mark.OK, good))
    return lines


def _first_to_last(state: State) -> list[Line]:
    """What became of the comparison of the first program with the last, where one belongs to the session."""
    found = whole.told(state)
    if not found and state.ended is not None and not isinstance(whole.pairs(state), str):
        found = ["the session ended, and its first program was never compared with its last"]
    replayed = all(
        timing.program for run in (state.baseline_result, state.incumbent_result) if run for timing in run.cases
    )
    mark = Mark.WARN if state.whole is not None or replayed else Mark.OK
    if state.whole is not None and state.whole.agrees is not None:
        mark = Mark.OK if state.whole.agrees else Mark.FAIL
    elif state.whole is not None and state.whole.result.status is not Status.VOID:
        mark = Mark.FAIL  # what was kept last is wrong, or fails
    return [Line("first to last", mark, text) for text in found]


def _begun_later(checkout: Checkout, folder: Path) -> list[str]:
    """The sessions of this checkout that began after the one that is taken for the current one."""
    begun = {}
    for journal in checkout.sandbox.glob("*/journal.jsonl"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), journal.open(encoding="utf-8") as file:
            begun[journal.parent.name] = str(json.loads(file.readline())["time"])
    return sorted(name for name, time in begun.items() if time > begun.get(folder.name, ""))


def _outside(folder: Path, chain: Chain, state: State) -> Iterator[Line]:
    for notice in state.notices:
        mark = Mark.FAIL if notice.what == "head missing" else Mark.WARN
        yield Line("outside head", mark, f"on record: {notice.what}: {notice.detail}")
    store = HeadStore(folder.name)
    head = store.read()
    if head is not None:
        yield Line("outside head", Mark.OK, f"{store.path} names record {head.seq + 1} of this chain")
    elif chain.missing_head:
        yield Line("outside head", Mark.FAIL, integrity.missing_head_text(chain.missing_head))


def _commits(checkout: Checkout, chain: Chain) -> Iterator[str]:
    repository, started = checkout.repository, chain.entries[0]
    assert isinstance(started, Started)
    state = State(started)
    for number, entry in integrity.by_iteration(chain.entries):
        incumbent = state.incumbent_commit
        if not isinstance(entry, Started):
            state.apply(entry)
        if not isinstance(entry, Checked | Kept):
            continue
        what = f"iteration {number}, {entry.kind}"
        if repository.resolve(entry.commit) is None:
            yield f"{what}: commit {entry.commit[:12]} is not in this repository"
            continue
        if text := integrity.content_problem(repository, started, entry.commit, entry.candidate):
            yield f"{what}: {text}"
        if (parent := repository.parent(entry.commit)) != incumbent:
            yield f"{what}: commit {entry.commit[:12]} stands on {(parent or 'nothing')[:12]}, not on {incumbent[:12]}"


def _trailers(checkout: Checkout, chain: Chain) -> Iterator[str]:
    repository = checkout.repository
    started = chain.entries[0]
    assert isinstance(started, Started)
    for number, entry in integrity.by_iteration(chain.entries):
        if not isinstance(entry, Checked | Kept) or repository.resolve(entry.commit) is None:
            continue
        where = f"commit {entry.commit[:12]} of iteration {number}"
        said = trailers.parse(repository.message(entry.commit))
        if text := integrity.trailers_problem(said, started.session, chain.hashes, where):
            yield text
        elif said.seq < 0:
            yield f"{where} names no record of the journal"
        elif (said.iteration, said.candidate) != (str(number), entry.candidate):
            yield f"{where} names iteration {said.iteration} and candidate {said.candidate}, not {entry.candidate}"


def _refs(checkout: Checkout, chain: Chain, state: State) -> Iterator[str]:
    repository, branch = checkout.repository, f"refs/heads/{state.started.branch}"
    yield from integrity.refs_changed(repository, chain)
    if state.ended is None:
        if (text := checkout.branch_moved(state)) and checkout.unrecorded(state, chain.hashes) is None:
            yield text
    elif state.rows and not repository.is_ancestor(state.incumbent_commit, branch):
        yield (
            f"branch {state.started.branch} no longer holds {state.incumbent_commit[:12]}, which the session kept "
            f"last; `git branch {state.started.branch}-kept {state.incumbent_commit[:12]}` gives it a name again"
        )


def _later(checkout: Checkout, state: State) -> str:
    """The commits on an ended session's branch that are not its own."""
    branch = f"refs/heads/{state.started.branch}"
    if state.ended is None or checkout.repository.resolve(branch) is None:
        return ""
    if not (found := checkout.repository.since(state.incumbent_commit, branch)):
        return ""
    what, them = ("1 commit", "it") if len(found) == 1 else (f"{len(found)} commits", "them")
    kept = state.incumbent_commit[:12]
    return f"{state.started.branch} has {what} after {kept}, which the session kept last; nobody judged {them}"


def _secrets(chain: Chain) -> Iterator[str]:
    drawn: Committed | None = None
    for number, entry in enumerate(chain.entries, 1):
        if isinstance(entry, Committed):
            drawn = entry
        if not isinstance(entry, Checked | Measured | SizesChecked | WholeCompared | Interrupted):
            continue
        run = entry.run if isinstance(entry, Interrupted) else RUN_OF[type(entry)]
        if drawn is None or (drawn.run, drawn.candidate) != (run, entry.candidate):
            yield f"record {number}: this {run} run was not committed to before it was made"
        elif entry.secret is not None and commitment(entry.secret) != drawn.secret_sha256:
            yield f"record {number}: the secret of this {run} run is not the one that was committed to"
        drawn = None


def _verdicts(chain: Chain) -> Iterator[str]:
    started = chain.entries[0]
    assert isinstance(started, Started)
    state = State(started)
    for number, entry in enumerate(chain.entries[1:], 2):
        where = f"record {number}, iteration {state.iteration}"
        if isinstance(entry, Checked | SizesChecked) and entry.verdict != (wanted := verdict_of_check(entry.result)):
            yield f"{where}: the check's verdict is {_said(entry.verdict)}, its result gives {_said(wanted)}"
        if isinstance(entry, Measured):
            wanted = settled(entry.result, started.rules, entry.incumbent is None, entry.confirms)
            if entry.verdict != wanted:
                yield f"{where}: the benchmark's verdict is {_said(entry.verdict)}, its result gives {_said(wanted)}"
        if isinstance(entry, WholeCompared) and not whole.follows(entry, state):
            yield f"{where}: what is said of the first program and the last does not follow from the records before it"
        if isinstance(entry, Kept) and (
            state.measured is None or state.verdict is None or state.verdict.kind != "keep" or state.rows == []
        ):
            yield f"{where}: a candidate was kept that no verdict keeps"
        if isinstance(entry, Row):
            if state.checked is None:
                yield f"{where}: a row without a check"
            elif entry != (row := close_iteration(state, entry.optimization, entry.root_cause)):
                names = [name for name in Row.model_fields if getattr(entry, name) != getattr(row, name)]
                yield f"{where}: the row's {', '.join(names)} do not follow from the records before it"
        if state.ended is not None and not isinstance(entry, Ended) and entry.kind != "noticed":
            yield f"{where}: a record after the end of the session"
        state.apply(entry)


def _said(verdict: object) -> str:
    return "none" if verdict is None else f"{getattr(verdict, 'kind', '')} ({getattr(verdict, 'reason', '')})"


def _table(checkout: Checkout, folder: Path, state: State) -> Iterator[str]:
    if text := integrity.table_changed(folder, checkout.sandbox, state):
        yield text
    if state.rows and not (folder / "perf_results.md").is_file():
        yield f"sandbox/{folder.name}/perf_results.md is gone; the session's next call renders it from the journal"


def _protected(checkout: Checkout, state: State) -> Iterator[str]:
    if state.ended is not None or checkout.elsewhere(state):
        return
    tree = EditableFiles(checkout.repository, state.started)
    if changed := tree.protected_changes():
        yield f"changed: {few(changed)}; {tree.how_to_restore(changed)}"

"""The report of a task's sessions: a page, and the same facts as Markdown. Both are derived and never read."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tilewright.files import write_atomically
from tilewright.ledger import JournalAltered
from tilewright.repository import Repository
from tilewright.session.report import adapter, html, markdown
from tilewright.session.report.data import ReportData, Session

FILES = ("report.html", "report.md")


def report_of(sandbox: Path, session: str, repository: Repository | None) -> ReportData:
    """A session, and after it the other sessions of its task, the latest first. Raises `JournalAltered`."""
    first = adapter.session_of(sandbox / session / "journal.jsonl", repository)
    others, unread = sessions_in(sandbox, repository, session)
    return ReportData(first.task, (first, *(other for other in others if other.task == first.task)), tuple(unread))


def sessions_in(sandbox: Path, repository: Repository | None, but: str = "") -> tuple[list[Session], list[str]]:
    """The sessions of a checkout, the latest first, and why others cannot be shown."""
    sessions: list[Session] = []
    unread = []
    for journal in sorted(sandbox.glob("*/journal.jsonl")):
        if journal.parent.name == but:
            continue
        try:
            sessions.append(adapter.session_of(journal, repository))
        except JournalAltered as error:
            unread.append(f"{journal.parent.name}: {error.problem.removeprefix(f'{journal}:')}")
        except Exception as error:  # its hashes may be right, but its records do not belong together
            unread.append(f"{journal.parent.name}: no session ({type(error).__name__}: {error})")
    return sorted(sessions, key=lambda session: session.began, reverse=True), unread


def write(sandbox: Path, session: str, repository: Repository | None, current: bool = True) -> bool:
    """Write both files into the session's folder, and into the sandbox if the session is the `current` one. A report
    must not stop a session: where these cannot be written, there are none, since stale ones would mislead. Returns
    whether they were written."""
    folders = (sandbox / session, sandbox) if current else (sandbox / session,)
    try:
        data = report_of(sandbox, session, repository)
        texts = (html.render(data), markdown.render(data))
        for folder in folders:
            for name, text in zip(FILES, texts, strict=True):
                write_atomically(folder / name, text)
        return True
    except Exception:
        for path in (folder / name for folder in folders for name in FILES):
            with contextlib.suppress(OSError):
                path.unlink()
        return False

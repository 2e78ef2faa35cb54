"""Tables for a terminal: a session's log, and the list of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tilewright.session.checkout import Checkout
from tilewright.session.report import sessions_in
from tilewright.session.report.data import Iteration, Outcome, Session, factor
from tilewright.text import cut, printable

COLOURS = {
    Outcome.BASELINE: "dim", Outcome.KEPT: "green", Outcome.REVERTED: "yellow", Outcome.WRONG: "red",
    Outcome.CRASHED: "red",
}  # fmt: skip
WHY_LIMIT = 160
"""Characters of a reason in the table; `show` has all."""


def log_table(session: Session) -> Table:
    """Each iteration: what was tried, what became of it, its latency, its speed against the baseline's, and why."""
    mark = "~" if session.modelled else ""
    table = Table(box=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("latency, ms", justify="right", no_wrap=True)
    table.add_column("total", justify="right", no_wrap=True)
    table.add_column("optimization and reason", overflow="fold")
    for row in session.iterations:
        name, why = Text(printable(row.name)), Text(printable(cut(_why(row), WHY_LIMIT)), "dim")
        total = factor(row.total, mark) if row.total is not None else "-"
        table.add_row(
            str(row.number), Text(row.outcome, COLOURS[row.outcome]), row.latency, total, Text("\n").join([name, why])
        )
    return table


def _why(row: Iteration) -> str:
    doubts = f" [{'; '.join(row.doubts)}]" if row.doubts else ""
    return f"{row.why}{f': {row.detail}' if row.detail else ''}{doubts}"


@dataclass(frozen=True)
class ListedSession:
    """A session, in a line."""

    name: str
    task: str
    began: str
    iterations: int
    kept: int
    speedup: str
    state: str
    current: bool


def sessions_of(checkout: Checkout) -> tuple[list[ListedSession], list[str]]:
    """The sessions of a checkout, the latest first, and why others cannot be shown."""
    current = checkout.current_folder()
    sessions, unread = sessions_in(checkout.sandbox, None)
    return [_listed(session, current is not None and session.name == current.name) for session in sessions], unread


def _listed(session: Session, current: bool) -> ListedSession:
    return ListedSession(
        name=session.name,
        task=session.task,
        began=session.began[:16].replace("T", " "),
        iterations=max(len(session.iterations) - 1, 0),
        kept=session.count(Outcome.KEPT),
        speedup=factor(session.speedup, "~" if session.modelled else "") if session.gained else "-",
        state=f"ended: {session.ended}" if session.ended else "under way",
        current=current,
    )


def sessions_table(sessions: list[ListedSession]) -> Table:
    """Each session. No name is cut: a command may take it."""
    table = Table("", box=None, pad_edge=False)
    table.add_column("session", overflow="fold", min_width=max(len(one.name) for one in sessions))
    for column in ("begun, UTC", "kept", "total"):
        table.add_column(column)
    for one in sessions:
        name, state, kept = Text(one.name), Text(printable(one.state), "dim"), f"{one.kept} of {one.iterations}"
        table.add_row("*" if one.current else "", Text("\n").join([name, state]), one.began, kept, one.speedup)
    return table

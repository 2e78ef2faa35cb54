"""Tables for a terminal: a session's log, and the list of sessions."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

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


def sessions_table(sessions: list[Session], current: str) -> Table:
    """Each session, of which `current` is marked. No name is cut: a command may take it."""
    table = Table("", box=None, pad_edge=False)
    table.add_column("session", overflow="fold", min_width=max(len(one.name) for one in sessions))
    for column in ("begun, UTC", "kept", "total"):
        table.add_column(column)
    for one in sessions:
        state = Text(printable(f"ended: {one.ended}" if one.ended else "under way"), "dim")
        kept = f"{one.count(Outcome.KEPT)} of {max(len(one.iterations) - 1, 0)}"
        total = factor(one.speedup, "~" if one.modelled else "") if one.gained else "-"
        name, began = Text("\n").join([Text(one.name), state]), one.began[:16].replace("T", " ")
        table.add_row("*" if one.name == current else "", name, began, kept, total)
    return table

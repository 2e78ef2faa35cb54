"""A session's log for a terminal: the table, one iteration, and the list of sessions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from tilewright.evaluation.results import KernelUse
from tilewright.ledger import JournalAltered
from tilewright.roofline.bounds import bounded_by
from tilewright.session.checkout import Checkout
from tilewright.session.report import adapter
from tilewright.session.report.data import Iteration, Outcome, Session, factor, times
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


def iteration_lines(row: Iteration, session: Session) -> Iterator[str | Table]:
    """All that is known of one iteration. The diff is a command of its own."""
    mark = "~" if session.modelled else ""
    yield f"iteration {row.number} of {session.name}: {row.name}"
    yield f"{row.outcome}: {_why(row)}"
    if row.speedup is not None:
        total = f", {times(row.total, mark)} the baseline's" if row.total is not None else ""
        yield f"{row.latency} ms, {times(row.speedup, mark)} the speed of the version before{total}"
    if row.sustained is not None:
        yield f"sustained, without rests: {times(row.sustained)} at {row.sustained.mhz} MHz"
    if row.cases:
        table = Table("case", box=None, pad_edge=False)
        for name in ("before, ms", "after, ms", "speed", "of the ceiling"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("bound")
        for case in row.cases:
            before = "-" if case.before_ms is None else f"{mark}{case.before_ms:.6f}"
            speed = factor(case.speedup, mark) if case.speedup is not None else "-"
            share = "-" if case.percent is None else f"{case.percent:.1f}%"
            table.add_row(
                printable(case.label),
                before,
                f"{mark}{case.after_ms:.6f}",
                speed,
                share,
                bounded_by(case.bound, case.percent),
            )
        yield table
        yield from (f"{case.label}: {case.note}" for case in row.cases if case.note)
    for change in row.kernels:
        sides = [_occupied(use) for use in (change.before, change.after) if use is not None]
        figures = (" -> ".join(dict.fromkeys(values)) for values in zip(*sides, strict=True))
        yield f"{change.name}: {', '.join(filter(None, figures))}"
    if row.diff:
        yield f"what it changed: tilewright diff {row.number}"
    if row.restore:
        yield f"bring it back: {row.restore}"


def _occupied(use: KernelUse) -> list[str]:
    """What a kernel occupies: a text for each figure, empty where it is not known."""
    warps = "" if use.warps_per_sm is None else f"{use.warps_per_sm} of {use.max_warps_per_sm} warps an SM"
    limit = f"limited by {use.limited_by}" if use.limited_by else ""
    sizes = (f"{use.registers} registers", f"{use.stack_bytes} B of stack", f"{use.shared_bytes} B of shared memory")
    return [*sizes, warps, limit]


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
    current, sessions, unread = checkout.current_folder(), list[ListedSession](), list[str]()
    for journal in sorted(checkout.sandbox.glob("*/journal.jsonl")):
        try:
            session = adapter.session_of(journal, None)
        except (JournalAltered, OSError) as error:
            unread.append(f"{journal.parent.name}: {getattr(error, 'problem', error)}")
            continue
        sessions.append(
            ListedSession(
                name=session.name,
                task=session.task,
                began=session.began[:16].replace("T", " "),
                iterations=max(len(session.iterations) - 1, 0),
                kept=session.count(Outcome.KEPT),
                speedup=factor(session.speedup, "~" if session.modelled else "") if session.gained else "-",
                state=f"ended: {session.ended}" if session.ended else "under way",
                current=journal.parent == current,
            )
        )
    return sorted(sessions, key=lambda session: session.began, reverse=True), unread


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

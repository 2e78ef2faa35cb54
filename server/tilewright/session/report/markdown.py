"""The report as Markdown for a terminal, and the body of a pull request. A text that an agent or a task may have
written stands in a code span, where nothing of it is a link, a mention, a tag or the end of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilewright.evaluation.results import KernelUse
from tilewright.roofline.bounds import bounded_by
from tilewright.session.report.data import (
    LEVELS,
    Iteration,
    KernelChange,
    Outcome,
    ReportData,
    Session,
    factor,
    interval,
    times,
)
from tilewright.text import printable

VERSIONS = ("driver", "torch", "cuda_tile", "compiler")
"""What of the environment a pull request names."""


def code(text: str) -> str:
    """A text as one code span, which cannot end before its end."""
    plain = " ".join(printable(text).replace("`", "'").replace("|", "¦").split())
    return f"`{plain}`" if plain else "-"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns of numbers are aligned right."""
    rows = [*rows]
    numbers = [all(row[place][:1] in "~-–[0123456789" for row in rows) for place in range(len(columns))]
    lines = [columns, ["--:" if right else ":--" for right in numbers], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def headline(session: Session) -> str:
    """What got faster, by how much, at which level and on which GPU, in one sentence."""
    where = f"{session.level or 'level unknown,'} on {code(session.device)}"
    if not session.gained:
        return f"{code(session.task)}: nothing was kept; {where}"
    mark = "~" if session.modelled else ""
    return f"{code(session.task)} is {times(session.speedup, mark)} as fast; {session.how}; {where}"


def render(data: ReportData) -> str:
    """All sessions of a task."""
    parts = [f"# {code(data.task)}: Tilewright report", *(_session(session) for session in data.sessions)]
    parts += [f"Not shown: {code(text)}" for text in data.unread]
    return "\n\n".join(parts) + "\n"


def _session(session: Session) -> str:
    state = f"ended: {code(session.ended)}" if session.ended else f"under way, {session.advice}"
    time = f"{session.began[:16]} UTC, {session.minutes} min"
    parts = [f"## {headline(session)}", f"Session {code(session.name)}, begun {time}, {state}."]
    if session.sustained is not None:
        parts.append(f"Sustained, without rests: {times(session.sustained)} at {session.sustained.mhz} MHz.")
    if session.level is not None:
        parts.append(LEVELS[session.level])
    if session.checked:
        parts.append(f"Checked: {session.checked}.")
    doubts = [
        *session.doubts,
        *(f"iteration {row.number}: {text}" for row in session.iterations for text in row.doubts),
    ]
    if doubts:
        parts += ["### Before you trust the figures", "\n".join(f"- {code(text)}" for text in doubts)]
    rows = [
        [str(row.number), code(row.name), row.outcome, *_ratios(row, session.modelled), row.latency]
        for row in session.iterations
    ]
    columns = ["iteration", "optimization", "outcome", "over the version before", "over the baseline", "latency, ms"]
    parts += ["### Iterations", table(columns, rows)]
    parts += ["#### " + "\n\n".join(iteration(row, session)) for row in session.iterations[1:]]
    parts += ["### Cases, first version to last", _cases(session)]
    if session.configs:
        parts += ["### Configs", _configs(session)]
    environment = [[name, code(value)] for name, value in session.environment]
    parts += ["### Environment", table(["", "here"], environment)]
    again = [
        f"tilewright verify {session.name}", f"tilewright rerun N --session {session.name}",
        f"git diff {session.base[:12]}...{session.branch}",
    ]  # fmt: skip
    then = [f"- {what}: {code(command)}" for what, command in session.next_steps]
    parts += ["### What next", "\n".join(then), "### Check it again"]
    return "\n\n".join([*parts, "\n".join(f"- {code(command)}" for command in again)])


def _ratios(row: Iteration, modelled: bool) -> list[str]:
    mark = "~" if modelled else ""
    return [times(ratio, mark) if ratio is not None else "-" for ratio in (row.speedup, row.total)]


def iteration(row: Iteration, session: Session) -> Iterator[str]:
    """All that is known of one iteration, a paragraph each. The diff is a command of its own."""
    mark = "~" if session.modelled else ""
    yield f"{row.number}. {code(row.name)}: {row.outcome}"
    yield f"{row.why}{f': {code(row.detail)}' if row.detail else ''}"
    if row.speedup is not None:
        total = f", {times(row.total, mark)} the baseline's" if row.total is not None else ""
        yield f"{row.latency} ms, {times(row.speedup, mark)} the speed of the version before{total}"
    if row.sustained is not None:
        yield f"Sustained, without rests: {times(row.sustained)} at {row.sustained.mhz} MHz"
    yield from (f"Note: {code(text)}" for text in row.doubts if text)
    if row.checked:
        yield f"Checked: {row.checked}."
    yield from map(_kernel, row.kernels)
    for one in row.cases:
        bound = bounded_by(one.bound, one.percent)
        share = f"bound by {bound}, {_percent(one.percent)} of the {session.ceiling}" if bound else ""
        speed = f"{factor(one.speedup, mark)} the speed" if one.speedup is not None else ""
        before = "" if one.before_ms is None else _ms(one.before_ms, mark)
        figures = [f"{_arrow(before, _ms(one.after_ms, mark))} ms", speed, share]
        yield f"Case {code(one.label)}: {'; '.join(filter(None, figures))}{f'; {code(one.note)}' if one.note else ''}"
    if row.diff:
        yield f"What it changed: {code(f'tilewright diff {row.number} --session {session.name}')}"
    if row.restore:
        yield f"Bring the file back as it was then: {code(row.restore)}"


def _kernel(change: KernelChange) -> str:
    sides = [_occupied(use) for use in (change.before, change.after) if use is not None]
    figures = (" -> ".join(dict.fromkeys(values)) for values in zip(*sides, strict=True))
    return f"Kernel {code(change.name)}: {', '.join(filter(None, figures))}"


def _occupied(use: KernelUse) -> list[str]:
    """What a kernel occupies: a text for each figure, empty where it is not known."""
    warps = "" if use.warps_per_sm is None else f"{use.warps_per_sm} of {use.max_warps_per_sm} warps an SM"
    limit = f"limited by {use.limited_by}" if use.limited_by else ""
    sizes = (f"{use.registers} registers", f"{use.stack_bytes} B of stack", f"{use.shared_bytes} B of shared memory")
    return [*sizes, warps, limit]


def _cases(session: Session) -> str:
    mark = "~" if session.modelled else ""
    rows = [
        [
            code(one.label), _ms(one.before_ms, mark), _ms(one.after_ms, mark),
            f"{factor(one.speedup, mark)} [{interval(one.speedup)}]" if one.speedup else "-",
            _arrow(one.rate_before, one.rate), _arrow(_percent(one.percent_before), _percent(one.percent)),
            bounded_by(one.bound, one.percent) or "-",
        ]
        for one in session.cases
    ]  # fmt: skip
    columns = ["case", "before, ms", "after, ms", "speedup", "rate", f"of the {session.ceiling}", "bound"]
    return table(columns, rows)


def _ms(value: float | None, mark: str) -> str:
    return "-" if value is None else f"{mark}{value:.6f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}%"


def _arrow(before: str, after: str) -> str:
    return " → ".join(filter(None, [before, after])) or "-"


def _configs(session: Session) -> str:
    return table(["", "before", "after"], [[code(name), code(old), code(new)] for name, old, new in session.configs])


def pr_body(session: Session, closes: int | None = None, compared: str = "") -> str:
    """The body of a pull request: tables, and what they rest on. `compared`: those of `tilewright compare`, which times
    torch, too."""
    parts = [compared] if compared else [_cases(session), _basis(session)]
    if not compared and session.configs:
        parts.append(_configs(session))
    doubts = [text for row in session.iterations if row.outcome is Outcome.KEPT for text in row.doubts]
    if known := [*session.doubts, *dict.fromkeys(doubts)]:
        parts.append(f"Notes: {', '.join(map(code, known))}")
    parts += [f"Closes #{closes}"] if closes is not None else []
    return "\n\n".join(parts) + "\n"


def _basis(session: Session) -> str:
    """Where and how the figures of a session were taken."""
    versions = ", ".join(f"{name} {code(value)}" for name, value in session.environment if name in VERSIONS)
    slowed = f"; sustained {times(session.sustained)} at {session.sustained.mhz} MHz" if session.sustained else ""
    right = f". Checked: {session.checked}" if session.checked else ""
    return f"{session.level or 'level unknown,'} on {code(session.device)}; {session.how}{slowed}; {versions}{right}"

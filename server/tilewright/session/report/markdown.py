"""The report as Markdown for a terminal, and the body of a pull request. A text that an agent or a task may have
written stands in a code span, where nothing of it is a link, a mention, a tag or the end of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    keeps = session.count(Outcome.KEPT)
    how = "last program against first" if session.direct else f"product of {keeps} keeps" if keeps > 1 else "1 keep"
    mark = "~" if session.modelled else ""
    return f"{code(session.task)} is {times(session.speedup, mark)} as fast; {how}; {where}"


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
    parts += [_iteration(row, session) for row in session.iterations[1:]]
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


def _iteration(row: Iteration, session: Session) -> str:
    lines = [f"#### {row.number}. {code(row.name)}: {row.outcome}", f"{row.why}: {code(row.detail)}"]
    lines += [f"Checked: {row.checked}."] if row.checked else []
    lines += [_kernel(change) for change in row.kernels]
    for one in row.cases:
        if bound := bounded_by(one.bound, one.percent):
            lines.append(f"Bound by {bound}; {_percent(one.percent)} of the {session.ceiling}: {code(one.label)}")
    return "\n\n".join([*lines, f"Bring the file back as it was then: {code(row.restore)}"] if row.restore else lines)


def _kernel(change: KernelChange) -> str:
    sides = [
        f"{use.registers} registers, {use.stack_bytes} B stack, {use.shared_bytes} B shared, "
        f"{use.warps_per_sm} of {use.max_warps_per_sm} warps"
        for use in (change.before, change.after) if use is not None
    ]  # fmt: skip
    return f"Kernel {code(change.name)}: {' -> '.join(dict.fromkeys(sides))}"


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
    how = "last program against first, in one run" if session.direct else "product of the keeps' paired comparisons"
    versions = ", ".join(f"{name} {code(value)}" for name, value in session.environment if name in VERSIONS)
    slowed = f"; sustained {times(session.sustained)} at {session.sustained.mhz} MHz" if session.sustained else ""
    right = f". Checked: {session.checked}" if session.checked else ""
    return f"{session.level or 'level unknown,'} on {code(session.device)}; {how}{slowed}; {versions}{right}"

"""The report as one HTML file: no script, no network, and every text of an agent escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.roofline.bounds import bounded_by
from tilewright.session.report.data import LEVELS, Outcome, ReportData, factor, interval, times
from tilewright.session.report.plot import plot
from tilewright.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

WIDE, NARROW = 880, 348
"""Widths of the two plots, of which the page's width picks one."""
WORDS = {
    Outcome.BASELINE: "your kernel as it was",
    Outcome.KEPT: "faster, committed",
    Outcome.REVERTED: "right, but not faster",
    Outcome.WRONG: "wrong or not allowed",
    Outcome.CRASHED: "no result",
}


def render(data: ReportData) -> str:
    """The page."""
    return _environment().get_template("report.html.j2").render(data=data)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("tilewright.session.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.globals.update(
        plot=plot, widths=(WIDE, NARROW), levels=LEVELS, words=WORDS, times=times, factor=factor, interval=interval,
        marks=_marks, bounded_by=bounded_by,
    )  # fmt: skip
    return made


def _shown(value: Any) -> Any:
    """A text without what turns the direction of writing, or shows nothing."""
    return printable(value) if type(value) is str else value


def _marks(line: str) -> str:
    """The class of a line of a diff."""
    return "at" if line[:4] in ("--- ", "+++ ") else {"+": "add", "-": "del", "@": "at"}.get(line[:1], "same")

"""The log on a terminal, at the widths that terminals have."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tilewright.evaluation.results import KernelUse
from tilewright.interface.logtable import WHY_LIMIT, log_table, sessions_table
from tilewright.policy import Ratio, Reason
from tilewright.session.report import markdown
from tilewright.session.report.data import CaseFigures, Iteration, KernelChange, Outcome, Session

GAIN = Ratio(speedup=3.58, low=3.5, high=3.66)
CASE = CaseFigures("N=4", 2.0, 1.0, GAIN, None, "memory", 40.0, 80.0, "", "", None, None, "waits for loads")
USE = KernelUse(
    name="scale",
    registers=40,
    stack_bytes=0,
    shared_bytes=0,
    warps_per_sm=48,
    max_warps_per_sm=64,
    limited_by="registers",
)
CHANGE = KernelChange(
    "scale", USE, USE.model_copy(update={"registers": 32, "shared_bytes": 1024, "limited_by": "threads"})
)


def iteration(number: int, name: str, outcome: Outcome, reason: Reason, detail: str = "") -> Iteration:
    ratio = GAIN if outcome is Outcome.KEPT else None
    cases = (CASE,) if ratio else ()
    return Iteration(
        number, name, outcome, reason, detail, "1.000000" if ratio else "-", ratio, ratio, None, ("harness-trusted",),
        cases, (CHANGE,) if ratio else (), "+a", "git restore --source=0123456789ab -- kernel.py", "",
    )  # fmt: skip


SESSION = Session(
    name="scale-1", task="scale", folder="scale", began="", until="", advice="",
    ended="", branch="", base="", device="", level=None, speedup=GAIN, how="1 keep",
    product=GAIN, direct=False, sustained=None, before_ms=2.0, after_ms=1.0, doubts=(), cases=(), configs=(),
    environment=(),
    iterations=(
        iteration(0, "baseline", Outcome.BASELINE, Reason.BASELINE),
        iteration(1, "one tile for the whole row, so that each row is read once", Outcome.KEPT, Reason.GAIN, "+258%"),
        iteration(2, "adds\u202e" + "x" * 60, Outcome.WRONG, Reason.INCORRECT, "word " * 100),
    ),
)  # fmt: skip


def printed(what: object, width: int, colour: bool = False) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=colour, markup=False, highlight=False,
        _environ={} if colour else {"NO_COLOR": "1"},
    )  # fmt: skip
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_log_fits_its_terminal(width: int) -> None:
    lines = printed(log_table(SESSION), width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert "1 kept 1.000000 3.58×" in text
    assert "Significantly faster: +258%" in text
    assert "\u202e" not in text
    assert text.count("word") < WHY_LIMIT / 4


@pytest.mark.parametrize("width", [40, 80, 140])
def test_no_session_has_its_name_cut(width: int) -> None:
    names = [f"fused_scaled_softmax-2026-11-27-{end}" for end in ("a1b2c3", "a1b2c4")]
    about = {"began": "2026-11-27T03:11:00", "ended": "2 measured iterations in a row without gain"}
    sessions = [replace(SESSION, name=name, **about) for name in names]
    text = "\n".join(printed(sessions_table(sessions, ""), width))
    assert [word for word in text.split() if word.startswith("fused")] == names
    assert "".join(text.split()).count("gain") == 2


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    assert "\x1b[" in "".join(printed(log_table(SESSION), 80, colour=True))
    assert "\x1b[" not in "".join(printed(log_table(SESSION), 80))


def test_one_keep_is_no_product() -> None:
    assert "3.58× (3.50 to 3.66) as fast; 1 keep; " in markdown.headline(SESSION)


def test_one_iteration_says_what_why_figures_and_how_to_bring_it_back() -> None:
    texts = list(markdown.iteration(SESSION.iterations[1], SESSION))
    assert texts == [
        "1. `one tile for the whole row, so that each row is read once`: kept",
        "Significantly faster: `+258%`",
        "1.000000 ms, 3.58× (3.50 to 3.66) the speed of the version before, 3.58× (3.50 to 3.66) the baseline's",
        "Note: `harness-trusted`",
        "Kernel `scale`: 40 registers -> 32 registers, 0 B of stack, 0 B of shared memory -> 1024 B of shared memory, "
        "48 of 64 warps an SM, limited by registers -> limited by threads",
        "Case `N=4`: 2.000000 → 1.000000 ms; 3.58× the speed; bound by memory, 80.0% of the measured ceiling; "
        "`waits for loads`",
        "What it changed: `tilewright diff 1 --session scale-1`",
        "Bring the file back as it was then: `git restore --source=0123456789ab -- kernel.py`",
    ]
    assert "word " * 50 in list(markdown.iteration(SESSION.iterations[2], SESSION))[1]

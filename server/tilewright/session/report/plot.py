"""The geometry of a session's plot: its speedup over the baseline, iteration by iteration, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewright.session.report.data import Iteration, Outcome, Session, factor

LEFT, RIGHT, TOP, BOTTOM, LANE, HEIGHT = 56, 18, 26, 52, 34, 290
"""Margins around the plot, and the height of the lane below it for iterations without a figure."""
LABEL = 52
"""Least distance between two labels."""
STEPS = (1, 2, 5)
FLOOR = 0.7
"""The least speedup on the axis: a slower edit is drawn at its foot, with its figure, so that gains stay apart."""


@dataclass(frozen=True)
class Point:
    """An iteration; `low` and `high` are the ends of its interval. `y` is in the lane if it has no figure, and at the
    foot of the axis if it is slower than that shows. `label` is the figure beside it, if there is room for one."""

    iteration: Iteration
    x: float
    y: float
    low: float
    high: float
    label: str = ""


@dataclass(frozen=True)
class Plot:
    """`steps` is the path of the incumbent's speedup; `ticks` are heights with their labels; `one` is the baseline."""

    width: int
    height: int
    points: tuple[Point, ...]
    steps: str
    ticks: tuple[tuple[float, str], ...]
    one: float
    lane: float


def plot(session: Session, width: int) -> Plot:
    """The plot of a session that has rows."""
    shown = [row.total for row in session.iterations if row.total is not None]
    least, most = max(min([1.0, *(total.low for total in shown)]), FLOOR), max([1.0, *(total.high for total in shown)])
    room = max(0.08 * math.log(most / least), 0.01)
    low, high = math.log(least) - room, math.log(most) + room
    bottom = HEIGHT - BOTTOM - LANE

    def y(value: float) -> float:
        return round(bottom - (max(math.log(value), low) - low) / (high - low) * (bottom - TOP), 1)

    count = max(len(session.iterations) - 1, 1)
    lane = bottom + LANE
    points, steps, incumbent = [], "", y(1.0)
    for row in session.iterations:
        x = round(LEFT + 14 + row.number * (width - LEFT - RIGHT - 28) / count, 1)
        if row.number == 0:
            points.append(Point(row, x, incumbent, incumbent, incumbent))
            steps = f"M{x} {incumbent}"
        elif row.total is None:
            points.append(Point(row, x, lane, lane, lane))
            steps += f"H{x}"
        else:
            points.append(Point(row, x, y(row.total.speedup), y(row.total.low), y(row.total.high), _label(row, low)))
            incumbent = points[-1].y if row.outcome is Outcome.KEPT else incumbent
            steps += f"H{x}V{incumbent}"
    return Plot(width, HEIGHT, _uncrowded(points), steps, _ticks(math.exp(low), math.exp(high), y), y(1.0), lane)


def _label(row: Iteration, low: float) -> str:
    """The figure of what was kept, and of what is too slow for the axis, which begins at `low`."""
    if row.total is None or (row.outcome is not Outcome.KEPT and math.log(row.total.speedup) >= low):
        return ""
    return f"{'' if row.outcome is Outcome.KEPT else '↓ '}{factor(row.total)}"


def _uncrowded(points: list[Point]) -> tuple[Point, ...]:
    """The points without the labels that another one to the right would cover."""
    kept: list[Point] = []
    covered = dict.fromkeys((False, True), math.inf)
    for point in reversed(points):
        foot = point.label.startswith("↓")
        crowded = covered[foot] - point.x < LABEL
        kept.append(replace(point, label="") if crowded else point)
        covered[foot] = point.x if kept[-1].label else covered[foot]
    return tuple(reversed(kept))


def _ticks(low: float, high: float, y: Callable[[float], float]) -> tuple[tuple[float, str], ...]:
    """About five round values from `low` to `high`."""
    if high / low > 4:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [step * 10.0**power for power in powers for step in STEPS]
    else:
        about = (high - low) / 4
        power = 10.0 ** math.floor(math.log10(about))
        step = min((one * power for one in (*STEPS, 10)), key=lambda one: abs(one - about))
        values = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return tuple((y(value), f"{value:g}×") for value in (round(value, 6) for value in values) if low <= value <= high)

"""A picture of a search: every config as a line through its knobs to its speed, and speed against what it occupies."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tilewright.autotune.report import SearchResult, Tried

SPEEDUP = "speedup"


def draw(result: SearchResult, path: Path) -> None:
    """Write the picture of a search to `path` (PNG)."""
    timed = [one for one in result.tried if one.speedup is not None]
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.5), width_ratios=(2, 1), layout="constrained")
    _parallel(left, timed)
    _pareto(right, timed)
    how = "modelled for" if result.modelled else "measured on"
    figure.suptitle(f"{result.task}: {len(timed)} of {len(result.tried)} configs {how} {result.device}")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _parallel(axes: Axes, timed: list[Tried]) -> None:
    """Parallel coordinates: one axis for each knob, the last one for the speedup over the original."""
    names = list(dict.fromkeys(name for one in timed for name in one.config))
    columns = [*names, SPEEDUP]
    speeds = [one.speedup.value for one in timed if one.speedup is not None]
    low, high = min(speeds), max(speeds)
    levels = {name: sorted({str(one.config.get(name, "-")) for one in timed}, key=_order) for name in names}
    colours = matplotlib.colormaps["viridis"]
    for one, speed in sorted(zip(timed, speeds, strict=True), key=lambda pair: pair[1]):
        share = (speed - low) / (high - low) if high > low else 1.0
        heights = [_height(levels[name], str(one.config.get(name, "-"))) for name in names]
        best = one.place == "best"
        axes.plot(
            range(len(columns)), [*heights, share], color=colours(share), linewidth=3 if best else 1,
            alpha=1 if best else 0.6,
        )  # fmt: skip
    for place, name in enumerate(names):
        for level in levels[name]:
            axes.annotate(level, (place, _height(levels[name], level)), fontsize=8)
    for share in (0.0, 0.5, 1.0):
        axes.annotate(f"{low + share * (high - low):.3f}x", (len(names), share), fontsize=8)
    axes.set_xticks(range(len(columns)), columns, rotation=15, fontsize=8)
    axes.set_yticks([])
    axes.set_title("configs: each tunable parameter's value, and the speedup over the original", fontsize=9)


def _pareto(axes: Axes, timed: list[Tried]) -> None:
    """Speedup against on-chip memory of one CTA, with the configs that none beats in both."""
    points = [
        (
            one.resources.shared_bytes / 1024 + one.resources.registers * one.resources.threads * 4 / 1024,
            one.speedup.value,
        )
        for one in timed
        if one.resources is not None and one.speedup is not None
    ]
    if not points:
        axes.axis("off")
        return
    front = sorted(point for point in points if not any(_beats(other, point) for other in points))
    axes.scatter([held for held, _ in points], [speed for _, speed in points], s=16)
    axes.step([held for held, _ in front], [speed for _, speed in front], where="post", color="tab:red", linewidth=1)
    axes.set_xlabel("registers and shared memory of a CTA, KiB", fontsize=8)
    axes.set_ylabel("speedup over the original", fontsize=8)
    axes.set_title("Pareto front", fontsize=9)


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] >= other[1]


def _height(levels: list[str], level: str) -> float:
    return levels.index(level) / max(len(levels) - 1, 1)


def _order(level: str) -> tuple[float, str]:
    try:
        return float(level), level
    except ValueError:
        return -1.0, level

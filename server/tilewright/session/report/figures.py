"""Figures of a report from benchmark results and files, whatever record holds them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Status, Sustained
from tilewright.knobs import HINTS, Knobs, SpaceError
from tilewright.policy import multiplied, ratio_of
from tilewright.repository import Files
from tilewright.roofline.bounds import Ceilings
from tilewright.session.records import Started
from tilewright.session.report.data import CaseFigures, KernelChange
from tilewright.session.report.occupancy import kernels_of
from tilewright.session.rows import notes_of
from tilewright.session.state import Attempt
from tilewright.task import case_label

DIFF_LINES = 600
"""Lines of a diff that are shown."""


def together(keeps: Sequence[BenchmarkResult], first: BenchmarkResult | None) -> BenchmarkResult | None:
    """The last keep against the baseline: speedups are products of the keeps', and latencies are of different runs."""
    if not keeps or first is None or any(len(keep.cases) != len(first.cases) for keep in keeps):
        return first if not keeps else keeps[-1]
    cases = []
    for number, (before, after) in enumerate(zip(first.cases, keeps[-1].cases, strict=True)):
        ratios = [ratio for keep in keeps if (ratio := ratio_of(keep.cases[number])) is not None]
        gain = multiplied(ratios)
        figures = {"speedup": gain.speedup, "speedup_low": gain.low, "speedup_high": gain.high}
        cases.append(after.model_copy(update={"incumbent_ms": before.latency_ms, "sustained": None, **figures}))
    return keeps[-1].model_copy(update={"cases": cases})


def sustained_of(result: BenchmarkResult | None) -> Sustained | None:
    """The least speedup without rests; None where the clock falls on no case."""
    cases = [] if result is None else result.cases
    return min((case.sustained for case in cases if case.sustained), key=lambda one: one.speedup, default=None)


def cases_of(result: BenchmarkResult | None, before: BenchmarkResult | None, known: Ceilings) -> Iterator[CaseFigures]:
    """The cases of `result`, each beside the same case of the version before, if there is one."""
    earlier = {case_label(timing.case): timing for timing in (before.cases if before is not None else [])}
    for timing in result.cases if result is not None else []:
        sources = [one for one in (timing, earlier.get(case_label(timing.case))) if one is not None]
        known_share = next((one for one in sources if one.roofline_percent and one.bound), None)
        least = known_share.latency_ms * (known_share.roofline_percent or 0.0) if known_share else None
        bound = known_share.bound or "" if known_share else ""
        percents = [least / ms if least and ms else None for ms in (timing.incumbent_ms, timing.latency_ms)]
        yield CaseFigures(
            label=case_label(timing.case),
            before_ms=timing.incumbent_ms,
            after_ms=timing.latency_ms,
            speedup=ratio_of(timing),
            sustained=timing.sustained,
            bound=bound,
            percent_before=percents[0],
            percent=percents[1],
            rate_before=_rate(percents[0], timing.incumbent_ms, known_share, known),
            rate=_rate(percents[1], timing.latency_ms, known_share, known),
            memory_before=sources[1].peak_bytes if sources[1:] else None,
            memory=timing.peak_bytes,
            note="; ".join(notes_of(timing)),
        )


def _rate(percent: float | None, ms: float | None, timing: CaseTiming | None, known: Ceilings) -> str:
    """What a call of `ms` moves or computes a second, by a run that says what binds it; `percent`: of that ceiling."""
    if percent is None or ms is None or timing is None:
        return ""
    flops = known.flops.get(str(timing.case.get("dtype", "")))
    if timing.bound == "memory":
        return f"{timing.work_bytes / ms / 1e6:.0f} GB/s" if timing.work_bytes else ""
    return f"{percent / 100 * flops / 1e12:.1f} TFLOP/s" if flops else ""


def changes(before: BenchmarkResult | None, after: BenchmarkResult | None, programs: Path) -> Iterator[KernelChange]:
    """What the kernels of the first case occupy before and after. Two kernels stand side by side if they have one name,
    or if each is its version's only one. Several of one name do so in their order."""
    old, new = (kernels_of(run.cases[0], programs) if run and run.cases else [] for run in (before, after))
    if len(old) == len(new) == 1:
        yield KernelChange(new[0].name, old[0], new[0])
        return
    past = [*old]
    for use in new:
        place = next((place for place, one in enumerate(past) if one.name == use.name), None)
        yield KernelChange(use.name, past.pop(place) if place is not None else None, use)
    if new:
        yield from (KernelChange(use.name, use, None) for use in past)


def checked_on(attempt: Attempt, started: Started) -> str:
    """What a candidate was right on, in a sentence."""
    results = [attempt.checked.result if attempt.checked is not None else None]
    results.append(attempt.measured.sizes if attempt.measured is not None else None)
    runs = [run for result in results if result is not None for run in result.cases if run.status is Status.PASSED]
    if not runs or started.harness:
        return f"{len(runs)} of the repository's own tests pass" if runs else ""
    visible, hidden = (len({case_label(run.case) for run in runs if run.hidden is one}) for one in (False, True))
    classes = len({run.values for run in runs})
    drawn = f" and {classes} classes of values" if classes > 1 else ""
    error = max((run.rel_l2_error or 0.0 for run in runs), default=0.0)
    reference = "the baseline's outputs" if started.reference == "baseline" else "the task's reference in float64"
    tested = (
        "; the repository's own tests pass" if started.tests and results[1] is not None and results[1].passed else ""
    )
    return (
        f"right in {len(runs)} runs, on {visible} visible and {hidden} hidden cases{drawn}, "
        f"beside {reference}; ‖out − ref‖ / ‖ref‖ is at most {error:.1e}{tested}"
    )


def diff(old: Files, new: Files) -> str:
    """The change as a unified diff, cut to `DIFF_LINES`; empty where a version is not known."""
    lines: list[str] = []
    for name in new if old else ():
        first, last = (files.get(name, b"").decode("utf-8", "replace").splitlines() for files in (old, new))
        lines += difflib.unified_diff(first, last, f"a/{name}", f"b/{name}", lineterm="")
    left = len(lines) - DIFF_LINES
    return "\n".join([*lines[:DIFF_LINES], *([f"… {left} more lines"] if left > 0 else [])])


def configs(old: Files, new: Files) -> tuple[tuple[str, str, str], ...]:
    """Whole numbers, switches and hints of the source that can be searched, each with its first and its last value."""
    try:
        first, last = (Knobs(files, "", "") for files in (old, new))
    except SpaceError:
        return ()
    names = [name for name, value in last.constants.items() if isinstance(value, int)]
    pairs = [one.original([*names, *HINTS]) for one in (first, last)]
    return tuple((name, str(pairs[0].get(name, "-")), str(value)) for name, value in pairs[1].items())

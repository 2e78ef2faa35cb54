"""What the trace of a case says: the kernels of a call, whose they are, how steady, and what lies between them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise

from pydantic import Field

from tilewright.profile.activity import Activity, Unreadable, Whose, reduces, short, whose
from tilewright.wire.record import Record

SPREAD = 0.1
"""Standard deviation over the median, from which a trace holds other things than one kernel at work."""
FAR = 1.5
"""Longest over median, from which it does."""
SPREAD_FLOOR_US, FAR_FLOOR_US = 0.5, 2.0
"""Less than that is the jitter of any short kernel."""
GAP_SHARE = 0.05
"""Of a call, from its first kernel to its last, from which the gaps are worth a line."""
NAMED = 4
"""Kernels that a line of evidence names."""
APART = 1.25
"""Times by which the clock and the trace may differ without a word."""


class KernelRow(Record):
    """All launches of one kernel in the traced calls."""

    kernel: str = Field(description="its name, without parameters and template arguments")
    whose: Whose = Field(description="ours: of the candidate's own source; library: of any other")
    launches: float = Field(description="in one call, on average")
    med_us: float = Field(description="of one launch; compare this one")
    avg_us: float
    min_us: float
    max_us: float
    stddev_us: float
    product: str = Field("", description="split-K: it is one part of a library's matmul, to be summed")


class Product(Record):
    """A library's product that was split along K: its main kernel and the one that sums the parts."""

    kernels: list[str]
    launches: float = Field(description="in one call, on average")
    med_us: float = Field(description="of the kernels together; compare this with a kernel that does it alone")


class CaseTrace(Record):
    """What ran on the GPU in a call of a case. Times in us; `us` and its like are of all that a call ran, summed."""

    calls: int = Field(description="that were traced, after warm-up")
    kernels_a_call: float = Field(description="copies and fills included")
    us: float = Field(description="median over the calls")
    avg_us: float
    min_us: float
    max_us: float
    stddev_us: float
    gaps_us: float = Field(description="median time in which nothing ran, from a call's first kernel to its last")
    gb_s: float | None = Field(None, description="compulsory bytes over the median")
    cached: bool = Field(False, description="the inputs of all calls fit in the L2 cache, and may come from there")
    kernels: list[KernelRow] = Field(default_factory=list, description="in the order of a call")
    more_kernels: int = Field(0, description="left out of the table")
    products: list[Product] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list, description="why the trace may show more than the kernels")


def analysed(
    calls: Sequence[Sequence[Activity]], own: Collection[str], work_bytes: float = 0.0, cached: bool = False
) -> CaseTrace:
    """The trace of a case from what each call ran. Raises `Unreadable` where no call ran anything."""
    if not any(calls):
        raise Unreadable("the calls ran nothing on the GPU")
    sums = [sum(one.us for one in call) for call in calls]
    names = list(dict.fromkeys(one.name for call in calls for one in call))
    parts, products = _products(calls, own)
    rows = []
    for name in names:
        found = [one.us for call in calls for one in call if one.name == name]
        mean, centre, low, high, apart = spread(found)
        row = KernelRow(
            kernel=short(name, own),
            whose=whose(name, own),
            launches=round(len(found) / len(calls), 2),
            med_us=centre,
            avg_us=mean,
            min_us=low,
            max_us=high,
            stddev_us=apart,
            product="split-K" if name in parts else "",
        )
        rows.append(row)
    average, middle, least, most, deviation = spread(sums)
    return CaseTrace(
        calls=len(calls),
        kernels_a_call=round(statistics.fmean(len(call) for call in calls), 2),
        us=middle,
        avg_us=average,
        min_us=least,
        max_us=most,
        stddev_us=deviation,
        gaps_us=round(statistics.median(_idle(call) for call in calls), 3),
        gb_s=round(work_bytes / middle / 1e3, 1) if work_bytes and middle else None,
        cached=cached,
        kernels=rows,
        products=products,
        warnings=[*_uneven(calls, names, own), *_contaminated(calls, names, own)],
    )


def spread(durations: Sequence[float]) -> tuple[float, float, float, float, float]:
    """Average, median, least, most and standard deviation, to a nanosecond."""
    found = (
        statistics.fmean(durations), statistics.median(durations), min(durations), max(durations),
        statistics.pstdev(durations),
    )  # fmt: skip
    average, median, least, most, deviation = (round(one, 3) for one in found)
    return average, median, least, most, deviation


def is_wide(durations: Sequence[float]) -> bool:
    """Whether launches of one kernel on one shape differ by more than a kernel at work does."""
    _, median, _, most, deviation = spread(durations)
    wide = deviation > max(SPREAD * median, SPREAD_FLOOR_US)
    return wide or (most > FAR * median and most > median + FAR_FLOOR_US)


def _contaminated(calls: Sequence[Sequence[Activity]], names: Sequence[str], own: Collection[str]) -> list[str]:
    """A warning for each kernel whose launches differ too much; for its first, second ... in a call by themselves,
    where each call has as many: a kernel may be launched on two shapes."""
    found = []
    for name in names:
        by_call = [[one.us for one in call if one.name == name] for call in calls]
        even = len({len(launches) for launches in by_call}) == 1
        groups = list(zip(*by_call, strict=True)) if even else [tuple(us for group in by_call for us in group)]
        wide = max((group for group in groups if is_wide(group)), key=statistics.pstdev, default=None)
        if wide is None:
            continue
        _, median, least, most, deviation = spread(wide)
        found.append(
            f"contaminated: {short(name, own)} took {least:.1f} to {most:.1f} us, with a standard deviation of "
            f"{deviation:.1f} us, {deviation / max(median, 1e-9):.0%} of the median of {median:.1f}: other work, a "
            "search, first calls or a change of clocks are in the trace; go by the median, and trace again"
        )
    return found


def _uneven(calls: Sequence[Sequence[Activity]], names: Sequence[str], own: Collection[str]) -> list[str]:
    """A warning where calls did not launch the same."""
    counts = {name: [sum(one.name == name for one in call) for call in calls] for name in names}
    varying = [name for name in names if len(set(counts[name])) > 1]
    if not varying:
        return []
    numbers = [len(call) for call in calls]
    common = Counter(numbers).most_common(1)[0]
    listed = [f"{short(name, own)} {min(counts[name])} to {max(counts[name])} times" for name in varying[:3]]
    more = f" and {len(varying) - 3} more" if len(varying) > 3 else ""
    return [
        f"uneven: {min(numbers)} to {max(numbers)} launches a call, {common[0]} in {common[1]} of {len(calls)} calls "
        f"({', '.join(listed)}{more}): a search or a cache being filled is in the trace, or the calls take several ways"
    ]


def _products(calls: Sequence[Sequence[Activity]], own: Collection[str]) -> tuple[set[str], list[Product]]:
    """The names of kernels that are parts of a split product, and the products: a library's kernel, and right after it
    one that sums its parts."""
    sums: dict[tuple[str, str], list[float]] = {}
    for call in calls:
        for main, last in pairwise(call):
            if whose(main.name, own) == whose(last.name, own) == "library" and reduces(last.name):
                sums.setdefault((main.name, last.name), []).append(main.us + last.us)
    found = [
        Product(
            kernels=[short(name, own) for name in names],
            launches=round(len(durations) / len(calls), 2),
            med_us=round(statistics.median(durations), 3),
        )
        for names, durations in sums.items()
    ]
    return {name for names in sums for name in names}, found


def _idle(call: Sequence[Activity]) -> float:
    """Time between the first start and the last end in which nothing ran."""
    idle, end = 0.0, None
    for one in call:
        if end is not None and one.start_us > end:
            idle += one.start_us - end
        end = one.end_us if end is None else max(end, one.end_us)
    return idle


def evidence(trace: CaseTrace, latency_ms: float = 0.0) -> list[str]:
    """The trace in lines of a diagnosis; `latency_ms` is what the clock read of a call, if it did."""
    number = f"{trace.kernels_a_call:g} kernel{'' if trace.kernels_a_call == 1 else 's'} a call"
    rate = f"; {trace.gb_s:,.0f} GB/s of compulsory bytes by the median" if trace.gb_s else ""
    where = " (some from the L2 cache: the inputs fit)" if rate and trace.cached else ""
    lines = [f"traced: {number}, {trace.us:.1f} us: {_named(trace)}{rate}{where}"]
    span = trace.us + trace.gaps_us
    if trace.gaps_us > GAP_SHARE * span:
        lines.append(
            f"traced: {trace.gaps_us:.1f} us of {span:.1f} lie between the kernels of a call, "
            f"{trace.gaps_us / span:.0%}: its launches do not keep up; fewer of them, or a CUDA graph of the caller"
        )
    if latency_ms and trace.us > APART * latency_ms * 1e3:
        lines.append(
            f"traced: {trace.us:.1f} us of kernels where the clock read {latency_ms * 1e3:.1f} a call: the trace ran "
            "with DISABLE_AUTOTUNE=1, maybe another config, or at other clocks; go by the clock"
        )
    return [*lines, *(f"traced: {one}" for one in trace.warnings)]


def _named(trace: CaseTrace) -> str:
    """The kernels of a call in words, those of one product together."""
    rows = trace.kernels[:NAMED]
    words = []
    for place, row in enumerate(rows):
        times = f"{row.launches:g} x " if row.launches != 1 else ""
        after = ", "
        if row.product and place and rows[place - 1].product and reduces(row.kernel):
            after = " (one matmul, split-K), "
        elif row.product and place + 1 < len(rows) and reduces(rows[place + 1].kernel):
            after = " + "
        words.append(f"{times}{row.kernel} {row.med_us:.1f} us{after}")
    rest = sum(row.launches * row.med_us for row in trace.kernels[NAMED:])
    more = f", and {len(trace.kernels) - NAMED} more, {rest:.1f} us" if len(trace.kernels) > NAMED else ""
    return "".join(words).removesuffix(", ") + more


def table(trace: CaseTrace) -> list[str]:
    """The kernels of a call as lines of a table, for people."""
    width = max((len(row.kernel) for row in trace.kernels), default=6)
    head = f"{'kernel':{width}} | {'whose':12} | a call |   med us |   avg us |   min us |   max us |   stddev"
    lines = [head, "-" * len(head)]
    for row in trace.kernels:
        times = (row.med_us, row.avg_us, row.min_us, row.max_us, row.stddev_us)
        figures = " | ".join(f"{one:8.2f}" for one in times)
        lines.append(f"{row.kernel:{width}} | {row.whose:12} | {row.launches:6g} | {figures}")
    times = (trace.us, trace.avg_us, trace.min_us, trace.max_us, trace.stddev_us)
    total = " | ".join(f"{one:8.2f}" for one in times)
    lines.append(f"{'a call, summed':{width}} | {'':12} | {trace.kernels_a_call:6g} | {total}")
    lines += [f"one matmul, split-K: {' + '.join(one.kernels)}: {one.med_us:.2f} us together" for one in trace.products]
    return lines

"""What a figure's name says that it measures: a latency, or another quantity, such as a rate, where more is better."""

from __future__ import annotations

import re
from enum import Enum

_ANYWHERE = re.compile(r"([kmgtp]?flops?|[kmgtp]b(it)?ps|[kmgtp]bs|[gt]?bw|speedups?|mfu)$")
"""Words that name a rate wherever they stand in a name."""
_PER_SECOND = re.compile(r"(/|(\b|_)per[\W_]*)s(ec(ond)?s?)?(?![a-z])")
_UNITS = {
    *("ms", "us", "μs", "ns", "sec", "secs", "second", "seconds", "msec", "msecs", "usec", "usecs", "nsec", "nsecs"),
    *("millis", "micros", "nanos", "millisecond", "milliseconds", "microsecond", "microseconds", "nanosecond"),
    "nanoseconds",
}
"""As `casefold` writes them, which makes one of both code points of µ."""
_LATENCIES = {"latency", "latencies", "time", "times", "timing", "elapsed", "duration", "runtime", "walltime"}
_SIZES = {"kb", "mb", "gb", "tb", "kib", "mib", "gib", "bytes", "byte", "percent", "pct"}
_OTHERS = {
    *("throughput", "bandwidth", "tops", "qps", "fps", "tps", "hz", "efficiency", "utilization", "utilisation", "util"),
    *("error", "errors", "err", "accuracy", "memory", "mem", "occupancy", "power", "energy", "ratio", "rate", "sol"),
}
_STATISTICS = re.compile(
    r"(p\d+|mean|median|avg|average|min|max|best|peak|std|total|abs|rel|achieved|allocated|reserved)$"
)


class Metric(Enum):
    """What a name says."""

    LATENCY = "latency"
    OTHER = "other"
    UNSAID = "unsaid"


def metric(name: str) -> Metric:
    """What `name`, a key or a column's heading, says of the figures below it.

    Words that also occur in the names of kernels (`memory_efficient`, `time_mix`) count where they end the name, but
    for units and statistics.
    """
    text = re.sub(r"(?<=[a-zµμ0-9])(?=[A-Z][a-z])", "_", name.strip()).casefold()
    words = [word for word in re.split(r"[^a-z0-9μ]+", text) if word]
    if _PER_SECOND.search(text) or any(_ANYWHERE.match(word) for word in words):
        return Metric.OTHER
    if "per" in words[1:]:  # ms per call
        words = words[: words.index("per")]
    unit = ""
    while len(words) > 1 and (words[-1] in _UNITS | _SIZES | {"s"} or _STATISTICS.match(words[-1])):
        last = words.pop()
        unit = unit or ("" if _STATISTICS.match(last) else last)
    last = words[-1] if words else ""
    if last in _OTHERS or last in _SIZES or unit in _SIZES:
        return Metric.OTHER
    return Metric.LATENCY if last in _LATENCIES or last in _UNITS or unit in _UNITS else Metric.UNSAID


def around(before: str, after: str) -> Metric:
    """What the text on both sides of a printed figure says of it: the key before it, the unit after it."""
    line = re.split(r"[|,;\n]", before)[-1]
    key = re.search(r"([\w./]+(?:\s*\([^)]*\))?)[\"']?\s*[=:]?\s*$", line)
    unit = re.match(r"[ \t]*([a-zA-Zµμ]+(?:/s(?:ec)?)?)(?![\w/]|\s*[=:])", after)
    if unit and unit[1] == "s":  # alone or at a name's end, it may be a size's or a variant's name
        return Metric.LATENCY
    said = [metric(unit[1]) if unit else Metric.UNSAID, metric(key[1]) if key else Metric.UNSAID]
    return next((one for one in (Metric.LATENCY, Metric.OTHER) if one in said), Metric.UNSAID)

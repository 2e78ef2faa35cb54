"""The kernels of a call as CUPTI recorded them while its program was replayed: whose they are, and how long they take.

A replay starts with a flushed L2 cache. What CUPTI says of it serves a diagnosis, never a verdict.
"""

from __future__ import annotations

import ctypes
import re
import statistics
from collections.abc import Collection, Sequence
from typing import Literal

from pydantic import Field

from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch
from tilewright.wire.record import Record

NAMED = 4
"""Kernels that a line of evidence names."""
SHOWN = 80
"""Characters of a kernel's name."""
Whose = Literal["ours", "library", "copy or fill"]
_FILLING = ("FillFunctor", "direct_copy_kernel_cuda")
_NESTED = re.compile(r"<[^<>]*>|\([^()]*\)")
"""Template arguments and parameters that hold no others."""
_TELLING = re.compile(r"\b\w*(?:gemm|gemv|tensorop|[Ss]plit_?[Kk]|Functor|_kernel_cuda|[Rr]educe|[Ss]oftmax)\w*")


class KernelRow(Record):
    """All launches of one kernel with one grid, or of one copy or fill, in a call. Microseconds are of one launch."""

    kernel: str = Field(description="its name, without parameters and template arguments")
    whose: Whose = Field(description="ours: of the candidate's own source; library: of any other")
    grid: str = Field("", description="blocks along x, y and z; empty for a copy or fill")
    launches: int = Field(description="in one call")
    med_us: float
    min_us: float
    max_us: float


class CallKernels(Record):
    """What ran on the GPU in a call of a case."""

    calls: int = Field(description="that were recorded, after warm-up")
    launches: int = Field(description="in one call, copies and fills included")
    us: float = Field(description="of all launches of a call, summed: median over the calls")
    gb_s: float | None = Field(None, description="compulsory bytes over it")
    kernels: list[KernelRow] = Field(default_factory=list, description="in the order of a call")
    more_kernels: int = Field(0, description="left out of the table")


def kernels_of(
    launches: Sequence[Launch], calls: Sequence[Sequence[float]], own: Collection[str], work_bytes: float = 0.0
) -> CallKernels:
    """The kernels of a call, from its launches and the microseconds of each in several calls. `own` are the names of
    the candidate's kernels."""
    us = round(statistics.median(map(sum, calls)), 3)
    rows = [_row(launch, own) for launch in launches]
    times: dict[tuple[str, str, Whose], list[float]] = {}
    for place, row in enumerate(rows):
        times.setdefault(row, []).extend(call[place] for call in calls)
    return CallKernels(
        calls=len(calls),
        launches=len(launches),
        us=us,
        gb_s=round(work_bytes / us / 1e3, 1) if work_bytes and us else None,
        kernels=[
            KernelRow(
                kernel=name,
                whose=owner,
                grid=grid,
                launches=rows.count((name, grid, owner)),
                med_us=round(statistics.median(found), 3),
                min_us=round(min(found), 3),
                max_us=round(max(found), 3),
            )
            for (name, grid, owner), found in times.items()
        ],
    )


def _row(launch: Launch, own: Collection[str]) -> tuple[str, str, Whose]:
    match launch:
        case KernelLaunch():
            name = demangled(launch.symbol)
            return short(name, own), "x".join(map(str, launch.grid)), whose(name, own)
        case MemsetLaunch():
            return f"fill of {launch.size} bytes", "", "copy or fill"
        case CopyLaunch():
            return f"copy of {launch.size} bytes {launch.way}", "", "copy or fill"


def demangled(symbol: str) -> str:
    """A name of C++ as it was written; another one as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return symbol
    status, demangle = ctypes.c_int(), library.__cxa_demangle
    demangle.restype = ctypes.c_void_p
    at = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not at:
        return symbol
    try:
        return ctypes.string_at(at).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(at))


def whose(name: str, own: Collection[str]) -> Whose:
    """`own` are the names of the candidate's kernels, as written or with their signature."""
    if any(part in name for part in _FILLING):
        return "copy or fill"
    return "ours" if _written(name, own) else "library"


def _written(name: str, own: Collection[str]) -> str:
    """Which of the names `own` a kernel has, the shortest if several; empty where none."""
    plain = name.partition("(")[0]
    return min((one for one in own if plain == one or plain.startswith(f"{one}_K")), key=len, default="")


def short(name: str, own: Collection[str] = ()) -> str:
    """A name without its parameters and template arguments; one word of these is kept where it says what is done."""
    if written := _written(name, own):
        return written.partition("_Kt")[0][:SHOWN]
    plain = name.replace("(anonymous namespace)::", "")
    while (fewer := _NESTED.sub("", plain)) != plain:
        plain = fewer
    parts = plain.strip().rpartition(" ")[2].split("::")
    shown = parts[-1] if _TELLING.search(parts[-1]) else "::".join(parts[-2:])
    if not _TELLING.search(shown) and (telling := _TELLING.search(name.partition("<")[2])):
        shown += f"<{telling[0]}>"
    return (shown or name)[:SHOWN]


def evidence(call: CallKernels) -> str:
    """The kernels of a call in a line of a diagnosis."""
    rate = f"; {call.gb_s:,.0f} GB/s of compulsory bytes" if call.gb_s else ""
    words = [
        f"{f'{row.launches} x ' if row.launches > 1 else ''}{row.kernel} {row.med_us:.1f} us"
        for row in call.kernels[:NAMED]
    ]
    if rest := call.kernels[NAMED:]:
        words.append(f"and {len(rest)} more, {sum(row.launches * row.med_us for row in rest):.1f} us")
    number = f"{call.launches} kernel{'' if call.launches == 1 else 's'} a call"
    if not words:
        return f"replayed: {number}, {call.us:.1f} us by events{rate}"
    return f"CUPTI: {number}, {call.us:.1f} us: {', '.join(words)}{rate}"


def table(call: CallKernels) -> list[str]:
    """The kernels of a call as lines of a table, for people."""
    width, blocks = (max(len(text) for text in texts) for texts in (
        ["a call, summed", *(row.kernel for row in call.kernels)], ["grid", *(row.grid for row in call.kernels)],
    ))  # fmt: skip
    head = f"{'kernel':{width}} | {'whose':12} | {'grid':{blocks}} | a call |   med us |   min us |   max us"
    lines = [head, "-" * len(head)]
    for row in call.kernels:
        times = " | ".join(f"{one:8.2f}" for one in (row.med_us, row.min_us, row.max_us))
        lines.append(f"{row.kernel:{width}} | {row.whose:12} | {row.grid:{blocks}} | {row.launches:6} | {times}")
    lines.append(f"{'a call, summed':{width}} | {'':12} | {'':{blocks}} | {call.launches:6} | {call.us:8.2f}")
    return lines

"""The kernels of a call as CUPTI records them while its program is replayed: whose they are, how long they take.

A replay starts with a flushed L2 cache. These times serve a diagnosis, never a verdict.
"""

from __future__ import annotations

import ctypes
import re
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

from tilewright.text import own_name
from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch

NAMED = 8
"""Kernels that a line of evidence names."""
SHOWN = 80
"""Characters of a kernel's name."""
Whose = Literal["ours", "library", "copy or fill"]
_FILLING = ("FillFunctor", "direct_copy_kernel_cuda")
_FUNCTOR = re.compile(r"\w*(?:Functor|_kernel_cuda|gemm)\w*")
_NESTED = re.compile(r"<[^<>]*>|\([^()]*\)")
"""Template arguments and parameters that hold no others."""


class KernelTime(NamedTuple):
    """All launches of one kernel, or of one kind of copy or fill, in a call. `us`: all of them, the median of several
    calls."""

    name: str
    whose: Whose
    launches: int
    us: float


class CallKernels(NamedTuple):
    """What ran on the GPU in a call, in order. `us`: all launches, the median of several calls."""

    launches: int
    us: float
    kernels: Sequence[KernelTime]


def function_names(files: Mapping[str, bytes]) -> set[str]:
    """The names of the functions that Python files define: a kernel of one of these names is the candidate's own."""
    sources = b"\n".join(content for name, content in files.items() if name.endswith(".py"))
    return {name.decode() for name in re.findall(rb"\bdef (\w+)", sources)}


def kernels_of(launches: Sequence[Launch], calls: Sequence[Sequence[float]], own: Collection[str]) -> CallKernels:
    """The kernels of a call, from its launches and the microseconds of each in several calls. `own`: names of the
    candidate's kernels."""
    places: dict[tuple[str, Whose], list[int]] = {}
    for place, launch in enumerate(launches):
        places.setdefault(_named(launch, own), []).append(place)
    kernels = [
        KernelTime(*name, len(held), statistics.median(sum(call[place] for place in held) for call in calls))
        for name, held in places.items()
    ]
    return CallKernels(len(launches), statistics.median(map(sum, calls)), kernels)


def _named(launch: Launch, own: Collection[str]) -> tuple[str, Whose]:
    match launch:
        case KernelLaunch():
            name = demangled(launch.symbol)
            return short(name, own), whose(name, own)
        case MemsetLaunch():
            return f"fill of {launch.size} bytes", "copy or fill"
        case CopyLaunch():
            return f"copy of {launch.size} bytes {launch.way}", "copy or fill"


def demangled(symbol: str) -> str:
    """A C++ name as it was written; another name as it is."""
    if not symbol.startswith("_Z"):
        return symbol
    status, demangle = ctypes.c_int(), ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype = ctypes.c_void_p
    at = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not at:
        return symbol
    try:
        return ctypes.string_at(at).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(at))


def whose(name: str, own: Collection[str]) -> Whose:
    """`own`: names of the candidate's kernels."""
    if any(part in name for part in _FILLING):
        return "copy or fill"
    return "ours" if own_name(name) in own else "library"


def short(name: str, own: Collection[str] = ()) -> str:
    """A name without its parameters and template arguments, but for one that says what is done."""
    if own_name(name) in own:
        return own_name(name)[:SHOWN]
    plain = name.replace("(anonymous namespace)::", "")
    while (fewer := _NESTED.sub("", plain)) != plain:
        plain = fewer
    shown = "::".join(plain.strip().rpartition(" ")[2].split("::")[-2:])
    if functor := _FUNCTOR.search(name.partition("<")[2]):
        shown += f"<{functor[0]}>"
    return (shown or name)[:SHOWN]


def evidence(call: CallKernels) -> str:
    """The kernels of a call in a line of a diagnosis."""
    number = f"{call.launches} kernel{'' if call.launches == 1 else 's'} a call"
    words = []
    for one in call.kernels[:NAMED]:
        times, owner = (
            f"{one.launches} x " if one.launches > 1 else "",
            f" ({one.whose})" if one.whose != "ours" else "",
        )
        words.append(f"{times}{one.name}{owner} {one.us:.1f} us")
    if rest := call.kernels[NAMED:]:
        words.append(f"and {len(rest)} more, {sum(one.us for one in rest):.1f} us")
    return f"CUPTI: {number}, {call.us:.1f} us: {', '.join(words)}"

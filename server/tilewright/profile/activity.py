"""What a trace holds: kernels, copies and fills of a GPU, one after the other, from torch's events.

The driver puts a mark before and after each call that counts; what lies between two marks is that call's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

MARK = "spin_kernel"
"""torch's kernel that waits: the driver launches it before and after each call."""

Whose = Literal["ours", "library", "copy or fill"]

_FILLS = ("[CUDA mem", "Memcpy", "Memset")
_FILLING = ("FillFunctor", "direct_copy_kernel_cuda")
_TELLING = re.compile(r"\b\w*(?:gemm|gemv|tensorop|[Ss]plit_?[Kk]|Functor|_kernel_cuda|[Rr]educe|[Ss]oftmax)\w*")
_REDUCES = re.compile(r"split_?k_?reduce|reduce_?split_?k", re.IGNORECASE)
SHOWN = 80
"""Characters of a kernel's name."""


class Activity(NamedTuple):
    """One kernel, copy or fill. `launch` is the number of the host's call that launched it, or 0."""

    name: str
    start_us: float
    us: float
    launch: int = 0

    @property
    def end_us(self) -> float:
        return self.start_us + self.us


class Unreadable(Exception):
    """A trace that says nothing; the text says why."""


def read_events(events: Any) -> list[Activity]:
    """The activities that the driver wrote down of torch.profiler's events: name, start and duration in us, launch."""
    found = []
    for event in events if isinstance(events, list) else []:
        match event:
            case [str(name), int() | float() as start, int() | float() as took, int(launch)] if took >= 0:
                found.append(Activity(name, float(start), float(took), launch))
    return found


def in_calls(activities: Sequence[Activity]) -> list[list[Activity]]:
    """The activities of each call, between a mark and the next; those outside of marked calls belong to none.

    They are told apart in the order of their launches, since streams may run beside the marks; where those have no
    numbers, in that of their starts. Raises `Unreadable` where marks are missing.
    """
    ordered = sorted(activities, key=lambda one: one.start_us)
    marks = [one.launch for one in ordered if MARK in one.name]
    if not marks or len(marks) % 2:
        raise Unreadable(f"{len(marks)} marks among {len(activities)} activities: what belongs to a call is not known")
    if min(one.launch for one in ordered) > 0 and all(a < b for a, b in pairwise(marks)):
        ordered.sort(key=lambda one: (one.launch, one.start_us))
    calls: list[list[Activity]] = []
    inside = False
    for one in ordered:
        if MARK in one.name:
            inside = not inside
            if inside:
                calls.append([])
        elif inside:
            calls[-1].append(one)
    return [sorted(call, key=lambda one: one.start_us) for call in calls]


def whose(name: str, own: Collection[str]) -> Whose:
    """`own` are the names of the candidate's kernels, as written or with their signature."""
    if name.startswith(_FILLS) or any(part in name for part in _FILLING):
        return "copy or fill"
    return "ours" if _written(name, own) else "library"


def _written(name: str, own: Collection[str]) -> str:
    """Which of the names `own` a kernel has, the shortest if several; empty where none."""
    plain = name.partition("(")[0]
    return min((one for one in own if plain == one or plain.startswith(f"{one}_K")), key=len, default="")


def reduces(name: str) -> bool:
    """Whether a kernel sums the parts of a product that was split along K."""
    return _REDUCES.search(_without_parameters(name)) is not None


def short(name: str, own: Collection[str] = ()) -> str:
    """A name without its parameters and template arguments; one word of these is kept where it says what is done."""
    if name.startswith(_FILLS):
        return name
    if one := _written(name, own):
        return one.partition("_Kt")[0][:SHOWN]
    full = _without_parameters(name)
    base = _outside(full, "<", ">").strip().rpartition(" ")[2]
    parts = base.split("::")
    found = "::".join(parts[-2:] if len(parts) > 1 and not _TELLING.search(parts[-1]) else parts[-1:])
    if "<" in full and not _TELLING.search(base) and (telling := _TELLING.search(full.partition("<")[2])):
        found += f"<{telling[0]}>"
    return (found or name)[:SHOWN]


def _without_parameters(name: str) -> str:
    """As far as the parenthesis that opens the parameters."""
    text = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "<") - (letter == ">" and text[place - 1 : place] != "-")
        if letter == "(" and depth <= 0:
            return text[:place]
    return text


def _outside(text: str, opening: str, closing: str) -> str:
    found, depth = [], 0
    for letter in text:
        depth += letter == opening
        if depth <= 0:
            found.append(letter)
        depth -= letter == closing and depth > 0
    return "".join(found)

"""A session's first program against its last: whether the two can be compared, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tilewright.evaluation.results import Level, StoredProgram
from tilewright.policy import agree, product, ratio_of
from tilewright.programs.format import program_file
from tilewright.session.state import State
from tilewright.task import Case, case_label

MEANING = (
    "one kept edit undid a part of another, or a kernel behaved otherwise in one of the comparisons; go by the direct "
    "figure"
)
"""What it means if the direct ratio and the product of the keeps disagree."""


class CasePrograms(NamedTuple):
    """The programs of a case, as the session's first and last version left them."""

    case: Case
    first: StoredProgram
    last: StoredProgram


def pairs(state: State) -> list[CasePrograms] | str:
    """The programs to compare, or why they cannot be: empty where nothing was kept, or nothing was ever replayed."""
    first, last = state.baseline_result, state.incumbent_result
    if not state.keeps or first is None or last is None:
        return ""
    versions = {"the baseline": first.cases, "what was kept last": last.cases}
    if not any(timing.program for cases in versions.values() for timing in cases):
        return ""
    if any(keep.level is not Level.REPLAYED for keep in state.keeps):
        return "not all that was kept was replayed"
    for name, cases in versions.items():
        for timing in cases:
            if timing.program is None:
                return f"{name} was not replayed on {case_label(timing.case)}"
            if timing.program.note:
                return f"the program of {name} on {case_label(timing.case)} was {timing.program.note}"
    if [timing.case for timing in first.cases] != [timing.case for timing in last.cases]:
        return "the two were not measured on the same cases"
    return [
        CasePrograms(one.case, one.program, other.program)
        for one, other in zip(first.cases, last.cases, strict=True)
        if one.program and other.program
    ]


def due(state: State) -> bool:
    """Whether the comparison is still to be made before the session ends."""
    found = pairs(state)
    return state.ended is None and not isinstance(found, str)


def missing(folder: Path, found: list[CasePrograms]) -> str:
    """Which program is not in the session's `folder` of them, in words; empty if all are there."""
    for pair in found:
        for name, program in (("the baseline", pair.first), ("what was kept last", pair.last)):
            if not program_file(folder, program.sha256).is_file():
                return f"the program of {name} on {case_label(pair.case)} is no longer in {folder}"
    return ""


def note(state: State, otherwise: str) -> str:
    """Why a session that ends now has no comparison: `otherwise`, where no other cause is known. Empty where it needs
    none."""
    if isinstance(found := pairs(state), str):
        return found
    run = state.attempt.running
    return "the comparison was broken off" if run is not None and run.run == "end" else otherwise


def agrees(state: State) -> bool | None:
    """Whether the direct ratio and the product of the keeps have intervals that overlap. None where there is no direct
    ratio."""
    direct = ratio_of(state.ended.direct) if state.ended is not None and state.ended.direct is not None else None
    if direct is None:
        return None
    together = product(state.keeps)
    runs = [*state.keeps, *filter(None, [state.baseline_result])]
    if any(len(case.programs) > 1 for run in runs for case in run.cases):
        return direct.high >= together.low  # a keep of or beside what tunes is the least that it may have gained
    return agree(direct, together)


def told(state: State) -> list[str]:
    """What is known of the comparison, in one sentence, if anything is."""
    if state.ended is None or state.ended.direct is None:
        return [f"{_NOT}: {state.ended.note}"] if state.ended is not None and state.ended.note else []
    result, direct = state.ended.direct, ratio_of(state.ended.direct)
    if direct is None:
        return [f"{_NOT}: {result.message or result.status}"]
    keeps = f"{len(state.keeps)} keep{'s' if len(state.keeps) > 1 else ''}"
    slowed = f"; {result.sustained}" if result.sustained else ""
    figures = f"{direct} measured directly{slowed}, {product(state.keeps)} as the product of {keeps}"
    if result.resolution is not None:
        figures += f"; this machine resolves {100 * result.resolution:.2g}% today"
    if agrees(state):
        return [f"the last program against the first: {figures}"]
    return [f"THE KEEPS DO NOT ADD UP: the last program against the first is {figures}: {MEANING}"]


_NOT = "the first program was not compared with the last"


def beside(state: State, summary: str) -> str:
    """A summary with what is known of the comparison; that comes first where it contradicts the keeps."""
    return ". ".join([*told(state), summary] if agrees(state) is False else [summary, *told(state)])

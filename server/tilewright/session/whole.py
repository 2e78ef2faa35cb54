"""A session's first program against its last: whether the two can be compared, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tilewright.evaluation.results import StoredProgram
from tilewright.policy import Ratio, agree, product, ratio_of
from tilewright.programs.format import program_file
from tilewright.session.state import State
from tilewright.task import Case, case_label


class CasePrograms(NamedTuple):
    """The programs of a case, as the session's first and last version left them."""

    case: Case
    first: StoredProgram
    last: StoredProgram


def pairs(state: State, folder: Path) -> list[CasePrograms] | str:
    """The programs to compare, which lie in `folder`, or why they cannot be: empty where nothing was kept, or nothing
    was ever replayed."""
    first, last = state.baseline_result, state.incumbent_result
    if not state.keeps or first is None or last is None:
        return ""
    versions = {"the baseline": first.cases, "what was kept last": last.cases}
    if not any(timing.program for cases in versions.values() for timing in cases):
        return ""
    for name, cases in versions.items():
        for timing in cases:
            program = timing.program
            if program is None or not program_file(folder, program.sha256).is_file():
                known = f"was {program.note}" if program is not None and program.note else "is not there"
                return f"the program of {name} on {case_label(timing.case)} {known}"
    return [
        CasePrograms(one.case, one.program, other.program)
        for one, other in zip(first.cases, last.cases, strict=True)
        if one.program and other.program
    ]


def direct_of(state: State) -> Ratio | None:
    """The last program against the first, in one run. None where they were not compared."""
    result = state.ended.direct if state.ended is not None else None
    return None if result is None else ratio_of(result)


def total(state: State) -> tuple[Ratio, str]:
    """The speed of what was kept last over the baseline's, and how it is known."""
    direct, count = direct_of(state), len(state.kept)
    how = "last program against first" if direct else f"product of {count} keeps" if count != 1 else "1 keep"
    return direct or product(state.keeps), how


def agrees(state: State) -> bool | None:
    """Whether the direct ratio and the product of the keeps have intervals that overlap. None where there is no direct
    ratio."""
    direct = direct_of(state)
    return None if direct is None else agree(direct, product(state.keeps))


def told(state: State) -> list[str]:
    """What is known of the comparison, in one sentence, if anything is."""
    if state.ended is None or not (state.ended.note or state.ended.direct):
        return []
    result, direct = state.ended.direct, direct_of(state)
    if result is None or direct is None:
        why = state.ended.note if result is None else result.message or result.status
        return [f"the first program was not compared with the last: {why}"]
    keeps = f"{len(state.keeps)} keep{'s' if len(state.keeps) > 1 else ''}"
    slowed = f"; {result.sustained}" if result.sustained else ""
    figures = f"{direct} measured directly{slowed}, {product(state.keeps)} as the product of {keeps}"
    if result.resolution is not None:
        figures += f"; this machine resolves {100 * result.resolution:.2g}% today"
    apart = "" if agrees(state) else "; the two lie apart: one kept edit undid a part of another, or was judged wrongly"
    return [f"the last program against the first: {figures}{apart}"]


def beside(state: State, summary: str) -> str:
    """A summary with what is known of the comparison."""
    return ". ".join([summary, *told(state)])

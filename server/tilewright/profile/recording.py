"""The kernels of each case, recorded while its program is replayed in a confined process of its own."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from tilewright.profile.kernels import CallKernels, kernels_of
from tilewright.text import cut
from tilewright.wire.record import Record

if TYPE_CHECKING:
    from tilewright.referee.replayer import Replayer

WARM_UPS, CALLS = 3, 20
CALL_LIMIT_S = 20.0


class Kernels(Record):
    """What was recorded, in the order of the cases; None where a case could not be replayed."""

    cases: list[CallKernels | None] = Field(default_factory=list)
    why_not: str = Field("", description="why nothing was recorded, of one case or of all")
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """How the kernels were recorded, or why not, in one line."""
        if not any(case is not None and case.kernels for case in self.cases):
            return f"none: {self.why_not}"
        lacking = f" ({self.why_not})" if self.why_not else ""
        return f"CUPTI, in {self.seconds:.1f} s, on replayed programs{lacking}"


def record_kernels(programs: Sequence[Path | str], work_bytes: Sequence[float], own: Collection[str]) -> Kernels:
    """The kernels of a call of each program, in their order; a text says why there is no program. `own` are the names
    of the candidate's kernels. Never raises for a program that cannot be replayed."""
    from tilewright.programs.model import ProgramError  # here, since the server starts without numpy
    from tilewright.referee.replayer import Fault, Replayer, ReplayerGone

    began = time.monotonic()
    cases: list[CallKernels | None] = []
    why: dict[str, None] = {}
    with Replayer(records=True) as replayer:
        for path, size in zip(programs, work_bytes, strict=True):
            try:
                if isinstance(path, str):
                    raise ProgramError(path)
                call, not_recorded = _recorded(replayer, path, size, own)
            except (Fault, ReplayerGone, ProgramError, OSError) as error:
                call, not_recorded = None, str(error)
            cases.append(call)
            why |= dict.fromkeys(filter(None, [not_recorded]))
    return Kernels(cases=cases, why_not=cut("; ".join(why), 200), seconds=round(time.monotonic() - began, 2))


def _recorded(replayer: Replayer, path: Path, work_bytes: float, own: Collection[str]) -> tuple[CallKernels, str]:
    """What a call of a program launches; by its events alone where CUPTI recorded nothing, and why that is so."""
    from tilewright.programs.draws import examples_of
    from tilewright.programs.format import read

    program = read(path)
    replayer.load([program], [examples_of(program)])
    answer, _ = replayer.alone(0, 0, WARM_UPS + CALLS, CALL_LIMIT_S)
    if answer.launches:
        return kernels_of(answer.launches, answer.us[WARM_UPS:], own, work_bytes), ""
    us = round(statistics.median(answer.events[WARM_UPS:]), 3)
    rate = round(work_bytes / us / 1e3, 1) if work_bytes and us else None
    return CallKernels(calls=CALLS, launches=len(program.layout.nodes), us=us, gb_s=rate), answer.not_recorded

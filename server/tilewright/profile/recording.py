"""The kernels of each case, recorded while its program is replayed in a confined process of its own."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tilewright.profile.kernels import CallKernels, kernels_of
from tilewright.text import cut
from tilewright.wire.launches import KernelLaunch, Launch

if TYPE_CHECKING:
    from tilewright.referee.replayer import Replayer

WARM_UPS, CALLS = 3, 20
CALL_LIMIT_S = 20.0


class Recorded(NamedTuple):
    """What a call launches, None where it could not be replayed, and the kernel in it that takes longest."""

    call: CallKernels | None = None
    longest: KernelLaunch | None = None


def record_kernels(programs: Sequence[Path | str], own: Collection[str]) -> tuple[list[Recorded], str]:
    """The kernels of a call of each program, in their order, and why some were not recorded; a text says why there is
    no program. `own`: names of the candidate's kernels. Never raises for a program that cannot be replayed."""
    from tilewright.programs.model import ProgramError  # here, since the server starts without numpy
    from tilewright.referee.replayer import Fault, Replayer, ReplayerGone

    found: list[Recorded] = []
    why: dict[str, None] = {}
    with Replayer(records=True) as replayer:
        for path in programs:
            recorded, not_recorded = Recorded(), str(path)
            if isinstance(path, Path):
                try:
                    recorded, not_recorded = _recorded(replayer, path, own)
                except (Fault, ReplayerGone, ProgramError, OSError) as error:
                    not_recorded = str(error)
            found.append(recorded)
            why |= dict.fromkeys(filter(None, [not_recorded]))
    return found, cut("; ".join(why), 200)


def _recorded(replayer: Replayer, path: Path, own: Collection[str]) -> tuple[Recorded, str]:
    """Where CUPTI recorded nothing: the call by its events alone, the kernel with the largest grid, and why."""
    from tilewright.programs.draws import examples_of
    from tilewright.programs.format import read
    from tilewright.programs.launches import launches_of

    program = read(path)
    replayer.load([program], [examples_of(program)])
    answer, _ = replayer.alone(0, 0, WARM_UPS + CALLS, CALL_LIMIT_S)
    if answer.launches:
        calls = answer.us[WARM_UPS:]
        us = [statistics.median(call[place] for call in calls) for place in range(len(answer.launches))]
        return Recorded(kernels_of(answer.launches, calls, own), _longest(answer.launches, us)), ""
    launches = launches_of(program)
    sizes = [math.prod(launch.grid) if isinstance(launch, KernelLaunch) else 0 for launch in launches]
    call = CallKernels(len(launches), statistics.median(answer.events[WARM_UPS:]))
    return Recorded(call, _longest(launches, sizes)), answer.not_recorded


def _longest(launches: Sequence[Launch], sizes: Sequence[float]) -> KernelLaunch | None:
    """The kernel of the largest size, of copies and fills none."""
    kernels = [(size, one) for one, size in zip(launches, sizes, strict=True) if isinstance(one, KernelLaunch)]
    return max(kernels, key=lambda pair: pair[0], default=(0.0, None))[1]

"""What an ordinary call launches, by CUPTI's records: between two kernels that this process launches itself, which show
that CUPTI saw all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from tilewright.gpu.cupti import NotRecorded, Recorder
from tilewright.wire.launches import MAX_LAUNCHES, KernelLaunch, Launch

_MARK = "spin_kernel"
"""A part of the symbol of the kernel that `torch.cuda._sleep` launches."""


class LaunchRecorder:
    """Records what ordinary calls launch, from now on: to be made before CUDA is used."""

    def __init__(self, library: str = "") -> None:
        """`library`: CUPTI's file, if it is not to be looked for. Raises `NotRecorded`."""
        self._recorder = Recorder(library)

    def record(self, call: Callable[[], object]) -> list[Launch]:
        """What `call` launches. Raises `NotRecorded`, and whatever `call` raises."""

        def marked() -> None:
            torch.cuda._sleep(1)
            call()
            torch.cuda._sleep(1)
            torch.cuda.synchronize()

        torch.cuda.synchronize()
        return without_marks([one.launch for one in self._recorder.record(marked)])


def without_marks(launches: Sequence[Launch]) -> list[Launch]:
    """The launches without the two kernels around a call. Raises `NotRecorded` where they are missing: CUPTI did not
    see this process then, or did not hand over all that it saw."""
    marks = [one for one in launches if isinstance(one, KernelLaunch) and _MARK in one.symbol]
    if len(marks) < 2:
        raise NotRecorded("CUPTI did not record the kernels that this process launches itself")
    left = list(launches)
    for mark in marks[:2]:
        left.remove(mark)
    if len(left) > MAX_LAUNCHES:
        raise NotRecorded(f"it launches {len(left)} times; at most {MAX_LAUNCHES} are recorded")
    return left

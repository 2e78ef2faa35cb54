"""What an ordinary call launches and how long that takes, by CUPTI's records: between two kernels that this process
launches itself, which show that CUPTI saw all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from cuda.bindings import driver as cuda

from tilewright.gpu.cupti import Activity, NotRecorded, Recorder
from tilewright.gpu.driver import ok
from tilewright.wire.launches import MAX_LAUNCHES, KernelLaunch

FLUSHES = 2
"""Times the size of the L2 that are read before a call, as the replayer does."""
_MARK = "spin_kernel"
"""A part of the symbol of the kernel that `torch.cuda._sleep` launches."""


class LaunchRecorder:
    """Records what ordinary calls launch, from now on: to be made before CUDA is used."""

    def __init__(self, library: str = "") -> None:
        """`library`: CUPTI's file, if it is not to be looked for. Raises `NotRecorded`."""
        self._recorder = Recorder(library)

    def record(self, call: Callable[[], object]) -> list[Activity]:
        """What the GPU does for `call`. Raises `NotRecorded`, and whatever `call` raises."""

        def marked() -> None:
            torch.cuda._sleep(1)
            call()
            torch.cuda._sleep(1)
            torch.cuda.synchronize()

        torch.cuda.synchronize()
        return without_marks(self._recorder.record(marked))


def without_marks(activities: Sequence[Activity]) -> list[Activity]:
    """The activities without the two kernels around a call. Raises `NotRecorded` where they are missing: CUPTI did not
    see this process then, or did not hand over all that it saw."""
    marks = [one for one in activities if isinstance(one.launch, KernelLaunch) and _MARK in one.launch.symbol]
    if len(marks) < 2:
        raise NotRecorded("CUPTI did not record the kernels that this process launches itself")
    left = list(activities)
    for mark in marks[:2]:
        left.remove(mark)
    if len(left) > MAX_LAUNCHES:
        raise NotRecorded(f"it launches {len(left)} times; at most {MAX_LAUNCHES} are recorded")
    return left


class Flush:
    """Leaves nothing in the L2, as the replayer does before a call."""

    def __init__(self) -> None:
        size = FLUSHES * max(torch.cuda.get_device_properties(0).L2_cache_size, 1 << 20)
        self._memory = torch.empty(size // 4, dtype=torch.int32, device="cuda")

    def __call__(self) -> None:
        """Take away marks that keep lines in the L2, and fill it with lines that need not be written back."""
        ok(cuda.cuCtxResetPersistingL2Cache(), "resetting the L2")
        self._memory.fill_(-1)
        for _ in range(FLUSHES):
            self._memory.sum()
        torch.cuda.synchronize()

"""Timed blocks of calls on the device, in the worker: captured into a CUDA graph where the candidate allows it.

In a block each call has arguments of its own, with values that it has not seen before. The block ends when all its
outputs have been handed over to the referee, whose clock runs from its request to the answer; the device events here
time the calls alone, and are believed only as far as that clock bears them out.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import OVERWRITTEN, Status
from tilewright.frontends.protocol import imported_runtimes

WARM_UP_CALLS = 3
ESTIMATE_CALLS = 3

Tensors = list[torch.Tensor]
TOGETHER = frozenset(
    (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
     torch.uint8, torch.bool)
)  # fmt: skip
"""What torch's copy of many tensors at once takes on a GPU, whatever its version."""


class TimedCalls:
    """A candidate and the arguments of a block's calls; `boxes` is where each call's outputs are handed over."""

    def __init__(self, candidate: Candidate, sets: list[dict[str, Any]]) -> None:
        self._candidate = candidate
        self._sets = sets
        self._boxes: list[Tensors] = []
        self._work: torch.cuda.CUDAGraph | None = None
        self._delivery: torch.cuda.CUDAGraph | None = None
        self._kernels: list[list[Any]] = []
        self._outputs: list[Tensors] = []
        self._driver = ctypes.CDLL("libcuda.so.1")

    def estimate_ms(self) -> float:
        """Warm up (compile, tune) and estimate one call's device time in ms."""
        for index in range(WARM_UP_CALLS):
            self._candidate(self._sets[index % len(self._sets)])
        self._candidate.wait()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for index in range(ESTIMATE_CALLS):
            self._candidate(self._sets[index % len(self._sets)])
        end.record()
        self._candidate.wait()
        return float(start.elapsed_time(end)) / ESTIMATE_CALLS

    def prepare(self, boxes: list[Tensors], graph: bool) -> str:
        """Make blocks of a call on each set. With `graph`, capture them; the answer is empty, or why that failed."""
        self._boxes = boxes
        self._work = self._delivery = None
        self._kernels.clear()  # after the graphs that use them
        self._issue()
        self._need_own_outputs()
        self._deliver()
        self._candidate.wait()
        if not graph:
            return ""
        try:
            with contextlib.ExitStack() as stack:
                self._kernels = [stack.enter_context(runtime.capturing()) for runtime in imported_runtimes()]
                self._work = _captured(self._issue)
            self._delivery = _captured(self._deliver)
        except Exception as error:
            self._work = self._delivery = None
            torch.cuda.synchronize()
            return str(error) if isinstance(error, CandidateFailure) else f"{type(error).__name__}: {error}"
        self._need_own_outputs()
        for _ in range(2):  # a first replay uploads the graphs
            self._work.replay()
            self._delivery.replay()
        self._candidate.wait()
        return ""

    def run(self) -> float:
        """Run one block and hand its outputs over; the calls' device time in ms."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._driver.cuCtxResetPersistingL2Cache()
        start.record()
        if self._work is not None and self._delivery is not None:
            self._work.replay()
            end.record()
            self._delivery.replay()
        else:
            self._issue()
            end.record()
            self._deliver_together()
        self._candidate.wait()
        return float(start.elapsed_time(end))

    def _issue(self) -> None:
        self._outputs = []  # the last block's, before this one's are made
        self._outputs = [self._candidate(arguments) for arguments in self._sets]

    def _deliver(self) -> None:
        for outputs, boxes in zip(self._outputs, self._boxes, strict=True):
            copy_outputs(outputs, boxes)

    def _deliver_together(self) -> None:
        """The same with few launches, where the host makes them in each block: it may just have waited for the last
        call's end, and each launch would keep the referee's clock waiting."""
        if not all(box.dtype in TOGETHER for boxes in self._boxes for box in boxes):
            self._deliver()
            return
        for outputs, boxes in zip(self._outputs, self._boxes, strict=True):
            need_fit(outputs, boxes)
        for held, into in zip(zip(*self._outputs, strict=True), zip(*self._boxes, strict=True), strict=True):
            torch._foreach_copy_(list(into), list(held))

    def _need_own_outputs(self) -> None:
        """Raises `CandidateFailure` where calls of a block return the same memory. Where this is made to see nothing,
        what is delivered is wrong: after the block, each of these holds the last call's results."""
        try:
            shared = overlapping(self._outputs)
        except RuntimeError:  # torch.compile takes back what a graph of its own has overwritten
            shared = True
        if shared:
            raise CandidateFailure(Status.OVERWRITTEN, OVERWRITTEN)


def _captured(work: Callable[[], None]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def overlapping(calls: Sequence[Tensors]) -> bool:
    """Whether tensors of different entries share memory: outputs of calls, which the later one then overwrites."""
    places = []
    for number, outputs in enumerate(calls):
        for output in outputs:
            if output.layout is torch.strided and output.numel():
                span = sum((size - 1) * stride for size, stride in zip(output.shape, output.stride(), strict=True)) + 1
                places.append((output.data_ptr(), output.data_ptr() + span * output.element_size(), number))
    end_so_far, owner = 0, -1
    for start, end, number in sorted(places):
        if start < end_so_far and number != owner:
            return True
        if end > end_so_far:
            end_so_far, owner = end, number
    return False


def copy_outputs(outputs: Tensors, boxes: Tensors) -> None:
    """Hand outputs over into the referee's boxes. Raises `CandidateFailure` where they do not fit."""
    need_fit(outputs, boxes)
    for output, box in zip(outputs, boxes, strict=True):
        box.copy_(output)


def need_fit(outputs: Tensors, boxes: Tensors) -> None:
    """Raises `CandidateFailure` where outputs are not like the referee's boxes."""
    if len(outputs) != len(boxes):
        raise CandidateFailure(Status.NO_OUTPUT, f"{len(outputs)} outputs instead of {len(boxes)}")
    for output, box in zip(outputs, boxes, strict=True):
        if output.shape != box.shape:
            raise CandidateFailure(Status.WRONG_SHAPE, f"shape {tuple(output.shape)} instead of {tuple(box.shape)}")
        if output.dtype != box.dtype:
            raise CandidateFailure(Status.WRONG_DTYPE, f"dtype {output.dtype} instead of {box.dtype}")
        if output.device != box.device:
            raise CandidateFailure(
                Status.NO_OUTPUT,
                f"an output is on {output.device}; the caller's data is on {box.device}, and its results must be",
            )

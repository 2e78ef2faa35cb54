"""Timed blocks of calls on the device, in the worker: captured into a CUDA graph where the candidate allows it.

A block runs its calls back to back over a rotation of input sets, between two device events.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cuda.tile as ct
import torch

from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status

WARM_UP_CALLS = 3
ESTIMATE_CALLS = 3


class TimedCalls:
    """A candidate on its input sets, ready to run blocks of calls."""

    def __init__(self, candidate: Candidate, sets: list[dict[str, Any]]) -> None:
        self._candidate = candidate
        self._sets = sets
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self._kernels: list[Any] = []
        self.outputs: list[list[torch.Tensor]] = [[] for _ in sets]

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

    def prepare(self, calls: int, graph: bool) -> str:
        """Make blocks of `calls` calls. With `graph`, capture them; the answer is empty, or why that failed."""
        self._calls, self._graph = calls, None
        if not graph:
            return ""
        captured = torch.cuda.CUDAGraph()
        try:
            with _kernels_kept() as self._kernels, torch.cuda.graph(captured):
                self._issue()
        except CandidateFailure as failure:
            torch.cuda.synchronize()
            return str(failure)
        except Exception as error:
            torch.cuda.synchronize()
            return f"{type(error).__name__}: {error}"
        self._graph = captured
        for _ in range(2):  # a first replay uploads the graph
            captured.replay()
        self._candidate.wait()
        return ""

    def run(self) -> float:
        """Run one block; its device time in ms."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._issue()
        end.record()
        self._candidate.wait()
        return float(start.elapsed_time(end))

    def _issue(self) -> None:
        for index in range(self._calls):
            self.outputs[index % len(self._sets)] = self._candidate(self._sets[index % len(self._sets)])


@contextlib.contextmanager
def _kernels_kept() -> Iterator[list[Any]]:
    """Hold on to the cuTile kernels launched within. A graph does not, and a wrapper may make its kernel anew in each
    call: once that is collected, its code is unloaded under the graph."""
    kept: list[Any] = []
    launch = ct.launch

    def keeping(stream: Any, grid: Any, kernel: Any, arguments: Any, /, **options: Any) -> Any:
        kept.append(kernel)
        return launch(stream, grid, kernel, arguments, **options)

    ct.launch = keeping
    try:
        yield kept
    finally:
        ct.launch = launch


def copy_outputs(outputs: list[torch.Tensor], boxes: list[torch.Tensor]) -> None:
    """Hand outputs over into the referee's boxes. Raises `CandidateFailure` where they do not fit."""
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
        box.copy_(output)

"""Calls that are timed on the device, in the worker; and outputs that are handed over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status

WARM_UP_CALLS = 1
"""Before those that count: it finds what is cached by address."""
Tensors = list[torch.Tensor]


def timed(
    candidate: Candidate, arguments: dict[str, Any], calls: int, written: Collection[str]
) -> tuple[list[float], Tensors]:
    """The ms of each of so many calls by device events, and what the last one gave. Each begins with a cold cache, and
    with the values that it was given in the arguments that are `written` to."""
    kept = {name: _copied(arguments[name]) for name in written}
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    other = torch.zeros(2 * cache // 4, dtype=torch.float32, device="cuda")
    events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
    outputs: Tensors = []
    for _ in range(WARM_UP_CALLS + calls):
        for name, value in kept.items():
            arguments[name].copy_(value)
        outputs = []  # the last call's, before this one's are made
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        other.sum()  # a read, so that no write-back is left for the call to pay for
        start.record()
        outputs = candidate(arguments)
        end.record()
        events.append((start, end))
    candidate.wait()
    return [float(start.elapsed_time(end)) for start, end in events[WARM_UP_CALLS:]], outputs


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


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

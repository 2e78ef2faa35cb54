"""What a candidate computes while its kernels are withheld: nothing, where a task forbids library calls.

In a worker of its own, launches of cuTile and Triton kernels do nothing from before the candidate is imported on. What
is right in its outputs all the same, and follows the inputs, was computed elsewhere: by a library, on the host, in
another process or thread, wherever the record of `librarycalls` did not look. The referee judges this by the outputs'
bytes, so no word of the worker is trusted. A result that only passes through a last kernel is not seen here, nor code
that notices that its kernels do nothing.
"""

from __future__ import annotations

import torch

from tilewright.evaluation.calling import Call, Given
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.librarycalls import REMEDY
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.task import case_label

NEAR = 0.01
"""How near to the reference an element counts as computed, relative to it."""
SHARE = 0.01
"""The share of an output's elements that may seem computed by chance."""


def computed_elsewhere(code: TaskCode, runs: list[Run], call: Call) -> str:
    """What a candidate whose kernels are withheld computes all the same; empty where that is nothing.

    Each shape is called on two draws; a call that fails shows nothing.
    """
    shapes = {case_label(run.case): run for run in runs}
    for label, run in shapes.items():
        seen = []
        for seed in (run.seed, run.seed ^ 1):
            inputs = code.inputs(run.case, seed)
            contract = code.contract(run.case, inputs)
            try:
                done = call(code.arguments(run.case, inputs, contract), Given(inputs, contract))
            except WorkerFailure as failure:
                if not (failure.status.is_incorrect or failure.status.is_crash):
                    raise
                return ""
            seen.append((inputs, done.outputs, code.expected(run.case, inputs)))
        share = _computed(*seen)
        if share > SHARE:
            return (
                f"{label}: {share:.0%} of an output is right while the launches of the candidate's kernels are "
                f"withheld, so that something else computes it; {REMEDY}"
            )
    return ""


Seen = tuple[Inputs, list[torch.Tensor], list[torch.Tensor]]


def _computed(one: Seen, other: Seen) -> float:
    """The largest share of an output's elements that are right in both calls, differ between them, and are not zero or
    copied from an input's same place."""
    largest = 0.0
    for made, wanted, again, wanted_again in zip(one[1], one[2], other[1], other[2], strict=False):
        if made.shape != wanted.shape or again.shape != wanted_again.shape or not made.numel():
            continue
        right = _right(made, wanted, one[0]) & _right(again, wanted_again, other[0])
        right &= made.to(wanted.dtype) != again.to(wanted.dtype)
        largest = max(largest, float(right.to(torch.float32).mean()))
    return largest


def _right(made: torch.Tensor, wanted: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    given = made.to(wanted.dtype)
    right = (given - wanted).abs() <= NEAR * wanted.abs() if _is_inexact(wanted) else given == wanted
    right = right & (wanted != 0)
    for value in inputs.values():
        if isinstance(value, torch.Tensor) and value.numel() == made.numel():
            right &= value.reshape(made.shape).to(wanted.dtype) != given
    return right


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.is_complex()

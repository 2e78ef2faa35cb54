"""A call's arguments, drawn by seed, as workers and the replayer take them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tilewright.evaluation.correctness import layout
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import poison, raw_bytes, spec_of, to_buffer
from tilewright.referee.capture_worker import InProcess
from tilewright.referee.captures import Arguments, arguments_of
from tilewright.task import Case
from tilewright.wire.channel import Sent
from tilewright.wire.memory import Memory
from tilewright.wire.tensors import TensorSpec

PUBLIC_SEEDS = 1, 2
"""Of the draws on which calls are captured. Nothing that counts is made on them."""
SHARED_BYTES = 16 << 20
"""Of a tensor that goes to another process as memory, and not through a socket. Each takes two descriptors."""


def public_inputs(code: TaskCode, case: Case) -> Inputs:
    """The arguments of a case on which its call is captured."""
    return code.cached_inputs(case, PUBLIC_SEEDS[0])


def drawn_inputs(code: TaskCode, case: Case, seed: int) -> Inputs:
    """A case's arguments with the values of another seed, but for the numbers, which are part of a program. Raises
    `InProcess` where its tensors have other shapes."""
    public, drawn = public_inputs(code, case), code.inputs(case, seed)
    found = {name: value if isinstance(value, torch.Tensor) else public.get(name) for name, value in drawn.items()}
    if layout(found) != layout(public):
        raise InProcess("its inputs have other shapes, strides or dtypes from draw to draw")
    return found


def described(
    code: TaskCode, case: Case, inputs: Inputs, memory: Callable[[str, int], Memory] = lambda _, size: Memory(size)
) -> Arguments:
    """A call's arguments as a worker and the replayer take them; what the call fills holds poison. `memory` gives as
    many bytes for an argument."""
    arguments = code.arguments(case, inputs)
    for name in arguments.keys() - inputs.keys():
        poison(arguments[name])
    return arguments_of(arguments, lambda name, tensor: content(tensor, lambda size: memory(name, size)))


def content(tensor: torch.Tensor, of_size: Callable[[int], Memory] = Memory) -> tuple[Sent, TensorSpec]:
    """A tensor's bytes, as memory where there are many, and what they mean."""
    spec = spec_of(tensor)
    if not tensor.numel():
        return b"", spec
    raw = raw_bytes(tensor)
    if raw.numel() < SHARED_BYTES:
        return bytes(to_buffer(raw.cpu())), spec
    try:
        memory = of_size(raw.numel())
        view = memory.view
    except OSError:  # no descriptor is left
        return bytes(to_buffer(raw.cpu())), spec
    torch.frombuffer(view, dtype=torch.uint8).copy_(raw)
    return memory, spec

"""The memory of one timed block: arguments with new values for every call, and boxes for what the calls hand over."""

from __future__ import annotations

import torch

from tilewright.evaluation.arena import Arena
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import Inputs, TaskCode, tensor_bytes
from tilewright.task import Case


class Block:
    """The arguments of a block's calls in device memory that both arms share, and the boxes for their outputs.

    New values are drawn in memory that is the referee's alone, and shown to the arms only while its clock runs.
    """

    def __init__(self, code: TaskCode, case: Case, seeds: Seeds, calls: int) -> None:
        self._code = code
        self.case = case
        self.calls = calls
        self._seeds = seeds
        self._plain = code.inputs(case, seeds.next())
        self.contract = code.contract(case, self._plain)
        arguments = code.arguments(case, self._plain, self.contract)
        self.in_place = any(name in self._plain for name in code.task.file.outputs)
        self._filled = [name for name in arguments if name not in self._plain]
        self.input_bytes = tensor_bytes(self._plain)
        self.output_bytes = sum(like.numel() * like.element_size() for like in self.contract)
        self.arguments = Arena(arguments, calls)
        self._drawn = Arena(arguments, calls)
        self.boxes = Arena({str(number): like for number, like in enumerate(self.contract)}, calls)
        self._generator = torch.Generator(device="cuda")
        self._drawing = self._captured() if calls > 1 else None
        self.fill()
        self.show()
        torch.cuda.synchronize()

    def fill(self) -> None:
        """Draw new values for every call's inputs, unseen yet."""
        self._generator.manual_seed(self._seeds.next())
        if self._drawing is not None:
            self._drawing.replay()
        else:
            self._draw()
        torch.cuda.synchronize()

    def show(self) -> None:
        """Put the values drawn, and poison where the calls are to fill arguments, into the memory that the arms see."""
        self.arguments.copy_(self._drawn)

    def inputs(self, number: int) -> Inputs:
        """The inputs drawn for a call, copied."""
        tensors = self._drawn.sets[number]
        return {name: _preserved(tensors[name]) if name in tensors else value for name, value in self._plain.items()}

    def outputs(self, number: int) -> list[torch.Tensor]:
        """What a call has handed over, copied."""
        return [box.clone() for box in self.boxes.sets[number].values()]

    def poison(self) -> None:
        """Make outputs that nobody writes NaN."""
        self.boxes.poison()
        self._drawn.poison(self._filled)

    def _draw(self) -> None:
        for number in range(self.calls):
            self._drawn.fill(number, self._code.drawn(self.case, self._generator))

    def _captured(self) -> torch.cuda.CUDAGraph | None:
        """The drawing of a block's inputs as a CUDA graph, which for small inputs is a hundred times as fast; None for
        a `make_inputs` that cannot be captured, or whose values do not follow the generator then."""
        graph = torch.cuda.CUDAGraph()
        try:
            graph.register_generator_state(self._generator)
            with torch.cuda.graph(graph):
                self._draw()
            seen = []
            for seed in (1, 2):
                self._generator.manual_seed(seed)
                graph.replay()
                torch.cuda.synchronize()
                seen += [self.inputs(0), self.inputs(1)]
        except Exception:
            torch.cuda.synchronize()
            self._generator = torch.Generator(device="cuda")
            return None
        return graph if _differ(seen[0], seen[1]) and _differ(seen[0], seen[2]) else None


def _preserved(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _differ(one: Inputs, other: Inputs) -> bool:
    return any(not torch.equal(one[name], other[name]) for name in one if isinstance(one[name], torch.Tensor))

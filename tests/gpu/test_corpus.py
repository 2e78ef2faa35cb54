"""The corpus's kernels give on the GPU what the interpreter computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.corpus import EXAMPLES, Example
from tests.unit.test_corpus import compare, exact, inputs_of

pytestmark = pytest.mark.gpu


def on(device: str, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        return moved.copy_(value)
    return type(value)(on(device, item) for item in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_gpu_computes_the_reference(example: Example) -> None:
    major, minor = torch.cuda.get_device_capability()
    if int(example.arch.removeprefix("sm_")) > 10 * major + minor:
        pytest.skip(f"needs {example.arch}")
    for number in range(len(example.cases)):
        inputs = inputs_of(example, number)
        expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
        outputs = example.run(**{name: on("cuda", value) for name, value in inputs.items()})
        torch.cuda.synchronize()
        compare(example, on("cpu", outputs), expected)

"""Every kernel of the corpus runs in the interpreter to its exact reference's values, and the checker finds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.corpus import EXAMPLES, Example
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.checker import findings_of
from tilewright.interpreter.undetermined import Undetermined

TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (2e-5, 2e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (1.6e-2, 1.6e-2),
    torch.float8_e4m3fn: (2e-2, 7e-2),
    torch.float8_e5m2: (4e-2, 1.3e-1),
}

CASES = [
    pytest.param(example, number, id=f"{example.name}-{number}")
    for example in EXAMPLES
    for number in range(len(example.cases))
]


@pytest.fixture(autouse=True, scope="module")
def _stand_in() -> Iterator[None]:
    saved = {name: getattr(torch.cuda, name) for name in dir(torch.cuda) if not name.startswith("__")}
    launch = ct.launch
    yield
    for name, value in saved.items():
        setattr(torch.cuda, name, value)
    ct.launch = launch


def inputs_of(example: Example, number: int) -> dict[str, Any]:
    return example.make_inputs(example.cases[number], torch.Generator().manual_seed(number + 1))


def exact(value: Any) -> Any:
    """A copy of an input as the reference takes it."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value.clone()
    if isinstance(value, list | tuple):
        return type(value)(exact(item) for item in value)
    return value


def flat(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def compare(example: Example, outputs: Any, expected: Any) -> None:
    made, wanted = flat(outputs), flat(expected)
    assert len(made) == len(wanted)
    for output, reference in zip(made, wanted, strict=True):
        assert output.shape == reference.shape
        if not output.is_floating_point():
            assert torch.equal(output.to(torch.int64), reference.to(torch.int64))
            continue
        absolute, relative = example.tolerance or TOLERANCE[output.dtype]
        torch.testing.assert_close(output.double(), reference.double(), atol=absolute, rtol=relative)


@pytest.mark.parametrize(("example", "number"), CASES)
def test_the_interpreter_computes_the_reference(example: Example, number: int) -> None:
    inputs = inputs_of(example, number)
    expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
    host.install(spec_by_arch(example.arch))
    with host.running(host.Mode.RUN) as launches:
        outputs = example.run(**inputs)
    assert launches
    compare(example, outputs, expected)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_checker_finds_nothing(example: Example) -> None:
    host.install(spec_by_arch(example.arch))
    for number in range(len(example.cases)):

        def call(_: Undetermined, number: int = number) -> list[torch.Tensor]:
            return flat(example.run(**inputs_of(example, number)))

        assert not findings_of(call)


def test_the_corpus_is_broad() -> None:
    assert len({example.name for example in EXAMPLES}) == len(EXAMPLES) >= 42
    covered = " ".join(example.covers for example in EXAMPLES)
    assert all(f"T{number}" in covered for number in range(1, 10))

"""What the message on a wrong output says of its place and its cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tilewright.evaluation.comparison import compare
from tilewright.evaluation.diagnosis import SHOWN, explain
from tilewright.evaluation.results import Status
from tilewright.task import Tolerance


def reference(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def told(change: Callable[[torch.Tensor], torch.Tensor | None], *shape: int) -> str:
    wanted = reference(*(shape or (64, 64)))
    found = wanted.clone()
    changed = change(found)
    found = changed if isinstance(changed, torch.Tensor) else found
    return explain(found, wanted, (found - wanted).abs() > 1e-9)


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.t().contiguous(), "last two axes swapped"),
        (lambda x: x * 1.25, "1.25 times the reference: a scale"),
        (lambda x: x + 0.5, "off by 0.5 each"),
        (lambda x: x[:, 48:].add_(noise(64, 16)) is None, "only the tail of axis 1 from 48 on"),
        (lambda x: x[16:32, 32:48].add_(noise(16, 16)) is None, "wrong elements span 16..31 of 64 x 32..47 of 64"),
        (lambda x: x[:, ::4].add_(noise(64, 16)) is None, "only every 4th index of axis 1"),
        (lambda x: x[8:16].zero_() is None, "are all 0: masked away"),
        (lambda x: x * (1 + 1e-3 * noise(64, 64)), "the errors are small: a precision too low"),
        (lambda x: x + 0.15 * noise(64, 64), "a term dropped or added"),
    ],
)
def test_a_cause_is_named(change: Callable[[torch.Tensor], torch.Tensor | None], words: str) -> None:
    text = told(change)
    assert words in text
    assert len(text) <= SHOWN


def test_a_tail_that_was_never_written_is_told_as_one() -> None:
    wanted = reference(40, 50)
    found = wanted.to(torch.float32)
    found[32:] = float("nan")
    result = compare("out", found, wanted, Tolerance())
    assert result.status is Status.NON_FINITE
    assert "the first at (32, 0)" in result.message
    assert "only the tail of axis 0 from 32 on" in result.message
    assert len(result.message) < 600


def test_few_scattered_elements_are_a_race_or_never_written() -> None:
    def scatter(x: torch.Tensor) -> None:
        for place in range(5):
            x[(13 * place * place + 3) % 64, (29 * place * place + 7) % 64] += 3.0 + place

    assert "scattered and few" in told(scatter)


def test_one_row_has_no_axes_to_swap() -> None:
    assert "the errors are small" in (text := told(lambda x: x * 1.001, 1, 300))
    assert "swapped" not in text


def test_integers_and_scalars_are_explained_too() -> None:
    wanted = torch.arange(64)
    assert "all 64" in explain(wanted + 1, wanted, torch.ones(64, dtype=torch.bool))
    assert explain(torch.tensor(2.0), torch.tensor(1.0), torch.tensor(True)) == ""


def test_operations_on_whole_tensors_have_no_tiles() -> None:
    wanted = reference(64, 64)
    found = wanted.to(torch.float32)
    found[:, 48:] += noise(64, 16).to(torch.float32)
    kernels, whole = (compare("out", found, wanted, Tolerance(), tiles=tiles).message for tiles in (True, False))
    words = ("tile", "block", "mask", "grid")
    assert any(word in kernels for word in words)
    assert not any(word in whole for word in words)

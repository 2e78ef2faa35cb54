"""The hash of a run's inputs changes with every value that it covers, and takes no more than its share."""

from __future__ import annotations

import pytest
import torch

from tilewright.evaluation import fingerprint
from tilewright.evaluation.fingerprint import inputs_hash


def test_the_same_inputs_have_one_hash_and_others_have_another() -> None:
    inputs = {"x": torch.arange(12.0).view(3, 4), "eps": 1e-6, "flag": True, "empty": torch.empty(0)}
    first = inputs_hash(inputs)
    assert inputs_hash({name: inputs[name] for name in reversed(inputs)}) == first
    changed = [
        {"x": torch.arange(12.0).view(3, 4) + 1},
        {"x": torch.arange(12.0).view(4, 3)},
        {"x": torch.arange(12.0, dtype=torch.float64).view(3, 4)},
        {"x": torch.arange(12.0).view(4, 3).T},
        {"eps": 1e-5},
        {"flag": 1},
    ]
    assert len({first, *(inputs_hash(inputs | change) for change in changed)}) == 7


def test_a_large_tensor_is_sampled_from_its_first_to_its_last_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint, "LIMIT", 4 * fingerprint.BLOCK)
    large = torch.zeros(1_000_003, dtype=torch.uint8)
    first = inputs_hash({"x": large})
    assert fingerprint._sample(large, fingerprint.LIMIT).numel() == 5 * fingerprint.BLOCK
    for place in (0, 250_000, 500_001, 1_000_002):
        other = large.clone()
        other[place] = 1
        assert inputs_hash({"x": other}) != first
    other = large.clone()
    other[fingerprint.BLOCK + 7] = 1
    assert inputs_hash({"x": other}) == first

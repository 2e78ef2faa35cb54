"""A tensor's description without torch says what torch says."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tilewright.evaluation.tensors import raw_bytes
from tilewright.wire.tensors import ITEM_BYTES, TensorSpec


def test_the_sizes_of_elements_are_torchs() -> None:
    assert {name: getattr(torch, name).itemsize for name in ITEM_BYTES} == ITEM_BYTES


@given(st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["float32", "int8", "complex128"]))
def test_a_tensor_spans_what_it_spans_in_torch(shape: list[int], dtype: str) -> None:
    tensor = torch.zeros(shape, dtype=getattr(torch, dtype))
    spec = TensorSpec(dtype=dtype, shape=shape, stride=[*tensor.stride()])
    assert spec.span_bytes == raw_bytes(tensor).numel()


def test_a_dtype_that_torch_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="no torch dtype"):
        _ = TensorSpec(dtype="float31", shape=[], stride=[]).item_bytes

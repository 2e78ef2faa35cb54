"""The images of kernels: how long one is that lies in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.made import cubin
from tilewright.programs.images import whole_image

HOPPER, BLACKWELL = cubin("fill", "sm_90"), cubin("fill", "sm_100")


def reading(data: bytes) -> Callable[[int, int], bytes]:
    def read(offset: int, size: int) -> bytes:
        if offset + size > len(data):
            raise OSError
        return data[offset : offset + size]

    return read


@pytest.mark.parametrize("tail", [b"", b"\0" * 5000, HOPPER], ids=["nothing", "zeros", "an image"])
@pytest.mark.parametrize("image", [HOPPER, BLACKWELL], ids=["sm_90", "sm_100"])
def test_an_images_length_is_what_it_says(image: bytes, tail: bytes) -> None:
    assert whole_image(reading(image + tail)) == image


def test_an_image_that_is_cut_off_is_none() -> None:
    assert whole_image(reading(HOPPER[:-1])) == b""


@given(st.binary(max_size=200))
def test_other_data_are_no_image(data: bytes) -> None:
    assert whole_image(reading(data)) == b""

"""The images of kernels: how long one is that lies in memory."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.made import cubin
from tilewright.programs.images import kernels, whole_image
from tilewright.programs.model import ProgramError

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


def test_symbols_that_are_compressed_or_listed_twice_are_an_error() -> None:
    image = bytearray(cubin())
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count = struct.unpack_from("<HH", image, 58)
    kinds = [struct.unpack_from("<I", image, table + number * size + 4)[0] for number in range(count)]
    place = table + kinds.index(2) * size
    compressed = bytearray(image)
    struct.pack_into("<Q", compressed, place + 8, 0x800)
    with pytest.raises(ProgramError, match="compressed"):
        kernels(bytes(compressed))
    twice = bytearray(image)
    struct.pack_into("<I", twice, table + 1 * size + 4, 2)
    with pytest.raises(ProgramError, match="2 symbol tables"):
        kernels(bytes(twice))
    with pytest.raises(ProgramError, match="cut off"):
        kernels(bytes(image[: table + size]))

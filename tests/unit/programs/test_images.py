"""The images of kernels: how long one is that lies in memory."""

from __future__ import annotations

import importlib.util
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from cuda.tile._compile import compile_tile
from hypothesis import example, given
from hypothesis import strategies as st

from tests.gpu.replaying.hostile import cubin as hostile_cubin
from tests.unit.programs.made import cubin
from tilewright.compiler.signature import signature_of
from tilewright.programs.images import clusters, code_digest, kernels, variables, whole_image
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


def test_symbols_that_are_cut_off_or_listed_twice_are_an_error() -> None:
    image = bytearray(cubin())
    (table,) = struct.unpack_from("<Q", image, 40)
    twice = bytearray(image)
    struct.pack_into("<I", twice, table + 1 * 64 + 4, 2)
    with pytest.raises(ProgramError, match="2 symbol tables"):
        kernels(bytes(twice))
    with pytest.raises(ProgramError, match="no table of sections"):
        kernels(bytes(image[: table + 64]))
    with pytest.raises(ProgramError, match="cut off"):
        kernels(bytes(image[:50]))


KERNEL = """
{comment}
import cuda.tile as ct

@ct.kernel(num_ctas={ctas})
def double(x, out, N: ct.Constant[int]):
    ct.store(out, index=(ct.bid(0),), tile={factor} * ct.load(x, index=(ct.bid(0),), shape=(N,)))
"""


def compiled(folder: Path, comment: str = "", factor: float = 2.0, ctas: int = 1) -> bytes:
    """The cubin of a kernel that is written in a file of this folder."""
    folder.mkdir()
    file = folder / "kernel.py"
    file.write_text(KERNEL.format(comment=comment, factor=factor, ctas=ctas))
    spec = importlib.util.spec_from_file_location("kernel", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.zeros(1024)
    kernel = module.double
    found = compile_tile(
        kernel._annotated_function,
        [signature_of(kernel, (x, x, 64))],
        sm_arch="sm_90",
        compiler_options=kernel._compiler_options,
        return_cubin=True,
    )
    return bytes(found.cubin)


def test_where_a_kernel_is_written_is_no_part_of_its_code(tmp_path: Path) -> None:
    one = compiled(tmp_path / "one")
    moved, other = compiled(tmp_path / "moved", "# a comment\n\n"), compiled(tmp_path / "other", factor=3.0)
    assert one != moved
    assert code_digest(one) == code_digest(moved)
    assert code_digest(one) != code_digest(other)
    assert code_digest(HOPPER) != code_digest(cubin("other", "sm_90"))


def test_a_hash_of_the_source_in_a_symbols_name_is_no_part_of_it(tmp_path: Path) -> None:
    image = compiled(tmp_path / "one")
    (made_of,) = {*re.findall(rb"debug_txt\.([0-9a-f]{32})", image)}
    assert code_digest(image.replace(made_of, b"0" * 32)) == code_digest(image)
    (symbol,) = kernels(image)
    assert code_digest(image.replace(symbol.encode(), symbol[:-1].encode() + b"_")) != code_digest(image)


def free(image: bytes) -> set[int]:
    """Where bytes may change that are for debuggers, or say where things and names lie in the file."""
    (segments, table), (count, _, number, names) = (
        struct.unpack_from("<2Q", image, 32),
        struct.unpack_from("<4H", image, 56),
    )
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + 64 * place) for place in range(number)]
    found = {*range(32, 48), *range(52, 64), *range(segments, segments + 56 * count)}
    found |= {table + 64 * place + at for place in range(number) for at in (*range(4), *range(24, 32))}
    for place, (name, kind, flags, _, at, size, *_) in enumerate(headers):
        text = image[headers[names][4] + name :].split(b"\0")[0]
        if kind == 3 or (text.startswith((b".debug", b".nv_debug", b".rela.debug")) and not flags & 6):
            found |= {*range(at, at + size), *range(table + 64 * place, table + 64 * (place + 1))}
        if kind == 2:
            found |= {at + symbol + byte for symbol in range(0, size, 24) for byte in range(4)}
    covered = {at for h in headers if h[1] != 8 for at in range(h[4], h[4] + h[5])}
    covered |= {*range(64), *range(table, table + 64 * number)}
    return found | ({*range(len(image))} - covered)


@pytest.mark.parametrize("image", [HOPPER, hostile_cubin("sm_90")], ids=["small", "with variables"])
def test_a_changed_byte_is_an_error_or_other_code(image: bytes) -> None:
    """Each byte but those for debuggers, of the names' tables, and of where things lie."""
    right, may = code_digest(image), free(image)
    assert len(may) < len(image) / 2
    for place in {*range(len(image))} - may:
        changed = bytearray(image)
        changed[place] ^= 1 << place % 8
        try:
            assert code_digest(bytes(changed)) != right, place
        except ProgramError as error:
            assert str(error).startswith("an image cannot be read")


def test_the_variables_of_an_image_are_found() -> None:
    assert variables(hostile_cubin("sm_90")) == {"kept": 1 << 20, "known": 1 << 16}
    assert variables(HOPPER) == {}


def test_the_cluster_that_a_kernel_needs_is_read(tmp_path: Path) -> None:
    assert set(clusters(compiled(tmp_path / "one")).values()) <= {(1, 1, 1)}
    paired = compiled(tmp_path / "paired", ctas=2)
    assert clusters(paired) == dict.fromkeys(kernels(paired), (2, 1, 1))
    assert clusters(HOPPER) == {}
    with pytest.raises(ProgramError, match="no table of sections"):
        clusters(HOPPER[:100])


@example(47, 255)  # the sections begin at 2**63 and more
@given(st.integers(0, len(HOPPER) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_clusters_or_an_error(place: int, value: int) -> None:
    try:
        clusters(HOPPER[:place] + bytes([value]) + HOPPER[place + 1 :])
    except ProgramError as error:
        assert str(error).startswith("an image cannot be read")


def test_sections_that_overlap_are_an_error() -> None:
    image = bytearray(HOPPER)
    (table,) = struct.unpack_from("<Q", image, 40)
    (count,) = struct.unpack_from("<H", image, 60)
    for number in range(1, count):
        struct.pack_into("<IQ", image, table + number * 64 + 4, 1, 0)
        struct.pack_into("<QQ", image, table + number * 64 + 24, 0, len(image))
    with pytest.raises(ProgramError, match="overlap"):
        code_digest(bytes(image))

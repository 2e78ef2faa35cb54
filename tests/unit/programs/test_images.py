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
from tilewright.programs.images import code_digest, kernels, required_sizes, variables, whole_image
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
    found = {*range(32, 48)} | {segments + 56 * place + at for place in range(count) for at in range(8, 16)}
    found |= {table + 64 * place + at for place in range(number) for at in (*range(4), *range(24, 32))}
    for place, (name, kind, *_, flags) in enumerate((h[0], h[1], h[4], h[5], h[2]) for h in headers):
        at, size = headers[place][4:6]
        text = image[headers[names][4] + name :].split(b"\0")[0]
        if kind != 8 and (kind == 3 or (text.startswith((b".debug", b".nv_debug", b".rela.debug")) and not flags & 6)):
            found |= {*range(at, at + size)}
            fields = range(32, 40) if kind == 3 else (*range(16, 24), *range(32, 64))
            found |= {table + 64 * place + field for field in fields}
        if kind == 2:
            found |= {at + symbol + byte for symbol in range(0, size, 24) for byte in range(4)}
    covered = {at for h in headers if h[1] != 8 for at in range(h[4], h[4] + h[5])}
    covered |= {*range(64), *range(table, table + 64 * number), *range(segments, segments + 56 * count)}
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


def test_names_that_many_share_are_an_error() -> None:
    """They would take hours to read."""
    image = hostile_cubin("sm_90")
    table, names = b"a" * 65535 + b"\0", struct.unpack_from("<H", image, 62)[0]
    for whose in ("sections", "symbols"):
        changed = bytearray(image) + table
        (start,), (count,) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<H", image, 60)
        for number in range(count):
            (kind,) = struct.unpack_from("<I", image, start + 64 * number + 4)
            if kind == 3 and (number == names) == (whose == "sections"):
                struct.pack_into("<QQ", changed, start + 64 * number + 24, len(image), len(table))
            elif kind == 2 and whose == "symbols":
                at, size = struct.unpack_from("<QQ", image, start + 64 * number + 24)
                for symbol in range(at, at + size, 24):
                    struct.pack_into("<I", changed, symbol, 0)
        with pytest.raises(ProgramError, match=f"its {whose} share their names"):
            code_digest(bytes(changed))


def test_the_variables_of_an_image_are_found() -> None:
    assert variables(hostile_cubin("sm_90")) == {"kept": 1 << 20, "known": 1 << 16}
    assert variables(HOPPER) == {}


def test_the_threads_and_the_cluster_that_a_kernel_needs_are_found(tmp_path: Path) -> None:
    ((symbol, (threads, cluster)),) = required_sizes(compiled(tmp_path / "one")).items()
    assert symbol in kernels(compiled(tmp_path / "again"))
    assert threads[0] >= 32 and threads[0] % 32 == 0 and threads[1:] == (1, 1)
    assert cluster == (1, 1, 1)
    ((_, paired),) = required_sizes(compiled(tmp_path / "paired", ctas=2)).items()
    assert paired.cluster == (2, 1, 1)
    assert required_sizes(HOPPER) == {}
    with pytest.raises(ProgramError, match="cut off"):
        required_sizes(HOPPER[:100])


@example(47, 255)  # the sections begin at 2**63 and more
@given(st.integers(0, len(HOPPER) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_sizes_or_an_error(place: int, value: int) -> None:
    try:
        required_sizes(HOPPER[:place] + bytes([value]) + HOPPER[place + 1 :])
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


def test_segments_that_overlap_are_an_error() -> None:
    """Thousands of segments that are each the whole file would take hours to read."""
    image = bytearray(HOPPER)
    count = 1000
    header = struct.pack("<II6Q", 1, 4, 0, 0, 0, len(image), len(image), 8)
    struct.pack_into("<Q", image, 32, len(image))
    struct.pack_into("<H", image, 56, count)
    with pytest.raises(ProgramError, match="segments overlap"):
        code_digest(bytes(image) + header * count)

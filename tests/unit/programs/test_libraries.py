"""Cubins are found in a library as CUDA's tools pack them, and nothing else is."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import lz4.block
import pytest
import zstandard

from tests.unit.programs.made import cubin
from tilewright.programs import libraries
from tilewright.programs.libraries import Libraries, installed

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="a library is made by a C compiler")
PLAIN, LZ4, ZSTD = 0x11, 0x2011, 0x8011
IMAGES = {(PLAIN, "sm_90"): cubin("a"), (LZ4, "sm_80"): cubin("b", "sm_80"), (ZSTD, "sm_90"): cubin("c")}


def entry(image: bytes, arch: str, flags: int, kind: int = 2) -> bytes:
    packed = image
    if flags == LZ4:
        packed = lz4.block.compress(image, store_size=False)
    elif flags == ZSTD:
        packed = zstandard.ZstdCompressor().compress(image)
    used = len(packed) if flags != PLAIN else 0
    packed += bytes(-len(packed) % 8)
    whole = len(image) if flags != PLAIN else 0
    head = (kind, 0x101, 64, len(packed), used, 0, 8, 1, int(arch[3:]), 0, 0, flags, 0, whole)
    return struct.pack("<HHIQIIHHIIIQQQ", *head) + packed


def library(folder: Path, section: bytes) -> Path:
    """A shared library with this section `.nv_fatbin`."""
    (folder / "section").write_bytes(section)
    (folder / "made.s").write_text(f'.section .nv_fatbin, "a"\n.balign 8\n.incbin "{folder}/section"\n')
    subprocess.run(["cc", "-shared", "-o", folder / "libmade.so", folder / "made.s"], check=True)
    return folder / "libmade.so"


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def section() -> bytes:
    packed = [entry(image, arch, flags) for (flags, arch), image in IMAGES.items()]
    ptx = entry(b".version 8.0".ljust(64), "sm_90", PLAIN, kind=1)
    return container(ptx, packed[0]) + bytes(8) + container(*packed[1:], ptx)


@pytest.mark.parametrize("how", IMAGES)
def test_a_cubin_is_found_however_it_is_packed(tmp_path: Path, how: tuple[int, str]) -> None:
    made = library(tmp_path, section())
    found = Libraries([made])
    image = bytearray(IMAGES[how])
    assert found.holder(bytes(image)) == made
    image[-1] ^= 1
    assert found.holder(bytes(image)) is None


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    found = Libraries([library(tmp_path, section()), text, tmp_path / "none.so"])
    assert found.holder(cubin("d")) is None
    assert found.holder(b"") is None
    assert Libraries().holder(cubin("d")) is None


@pytest.mark.parametrize("seed", range(60))
def test_a_broken_library_holds_nothing_at_worst(tmp_path: Path, seed: int) -> None:
    source, raw = random.Random(seed), bytearray(section())
    for _ in range(source.randrange(1, 30)):
        raw[source.randrange(len(raw))] = source.randrange(256)
    if seed % 3 == 0:
        del raw[source.randrange(len(raw)) :]
    if seed % 5 == 0:
        raw = bytearray(source.randbytes(500))
    found = Libraries([library(tmp_path, bytes(raw))])
    for image in IMAGES.values():
        found.holder(image)


def test_installed_libraries_are_files_of_some_size() -> None:
    found = [*installed()]
    assert len(found) == len(set(found))
    assert all(file.stat().st_size >= libraries.LEAST_BYTES for file in found)

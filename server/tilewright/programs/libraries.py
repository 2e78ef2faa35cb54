"""Whether an image is a part of an installed library, cuBLAS say.

A CUDA library carries its kernels in the ELF section `.nv_fatbin`: containers, one after the other, each with entries
for PTX and for cubins, most of them compressed. NVIDIA does not document the format; this reads what CUDA 12 and 13
write (`fatbinary`), and takes nothing that it does not know for an image.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import lz4.block
import zstandard
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tilewright.programs.images import architecture

_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of the entries
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
# kind, version, bytes of this header, bytes of the payload, bytes of it that are compressed, options, minor, major,
# architecture, name's place, name's bytes, flags, 0, bytes once it is decompressed
_CUBIN, _LZ4, _ZSTD = 2, 0x2000, 0x8000
LEAST_BYTES = 1 << 16
"""Of a file that is looked into."""
PACKAGES = ("nvidia", "torch", "cudnn")


class Found(NamedTuple):
    """A cubin in a library: where its bytes are, and how they are packed."""

    at: int
    size: int
    flags: int
    whole: int


class Libraries:
    """The installed libraries, whose cubins are listed once each, when they are asked for."""

    def __init__(self, files: Iterable[Path] | None = None) -> None:
        """`files`: the libraries; default: those of `installed`."""
        self._files = files
        self._cubins: dict[Path, dict[tuple[str, int], list[Found]]] = {}

    def holder(self, image: bytes) -> Path | None:
        """The library that holds this very cubin; None where there is none."""
        key = architecture(image), len(image)
        for file in installed() if self._files is None else self._files:
            if file not in self._cubins:
                self._cubins[file] = _listed(file)
            for found in self._cubins[file].get(key, ()):
                if _content(file, found) == image:
                    return file
        return None


def installed() -> Iterator[Path]:
    """Shared libraries of the Python packages that bring CUDA's, and of the machine's own toolkit."""
    places: list[Path] = []
    for name in PACKAGES:
        spec = find_spec(name)
        places += [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    places += [Path(place) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":") if place]
    for place in [*places, Path("/usr/local/cuda/lib64")]:
        for folder in ("", "lib", "*/lib", "*/lib64"):
            for file in sorted(place.glob(f"{folder}/*.so*" if folder else "*.so*")):
                if file.is_file() and not file.is_symlink() and file.stat().st_size >= LEAST_BYTES:
                    yield file


def _listed(file: Path) -> dict[tuple[str, int], list[Found]]:
    """The cubins of a library by architecture and size; empty for what is no library of CUDA."""
    listed: dict[tuple[str, int], list[Found]] = {}
    try:
        with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            section = ELFFile(opened).get_section_by_name(".nv_fatbin")
            if section is None:
                return {}
            start = int(section["sh_offset"])
            for arch, found in _cubins(data, start, min(start + int(section["sh_size"]), len(data))):
                listed.setdefault((arch, found.whole), []).append(found)
    except (ELFError, OSError, ValueError, struct.error):
        return {}
    return listed


def _cubins(data: mmap.mmap, at: int, end: int) -> Iterator[tuple[str, Found]]:
    while at + _CONTAINER.size <= end:
        magic, _, header, size = _CONTAINER.unpack_from(data, at)
        if magic != _MAGIC:
            at += 8  # containers lie on words of 8 bytes
            continue
        entry, last = at + header, min(at + header + size, end)
        while entry + _ENTRY.size <= last:
            kind, _, length, payload, packed, *_, arch, _, _, flags, _, whole = _ENTRY.unpack_from(data, entry)
            if not length + payload:
                return
            if kind == _CUBIN:
                compressed = bool(flags & (_LZ4 | _ZSTD))
                used = packed if compressed else payload
                yield f"sm_{arch}", Found(entry + length, used, flags, whole if compressed else payload)
            entry += length + payload
        at = max(last, at + _CONTAINER.size)


def _content(file: Path, found: Found) -> bytes:
    """A cubin's bytes; empty where they cannot be unpacked."""
    with file.open("rb") as opened:
        opened.seek(found.at)
        raw = opened.read(found.size)
    try:
        if found.flags & _ZSTD:
            return zstandard.ZstdDecompressor().decompress(raw, max_output_size=found.whole)
        if found.flags & _LZ4:
            return bytes(lz4.block.decompress(raw, uncompressed_size=found.whole))
    except (zstandard.ZstdError, lz4.block.LZ4BlockError):
        return b""
    return raw

"""What an image says of itself: its architecture, its kernels and their code.

A cubin is an ELF file (`EM_CUDA`). Its flags hold the number of its architecture: in the second byte from ABI version 8
on, in the lowest one before. A kernel is a symbol of a function that has `STO_CUDA_ENTRY` set.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tilewright.programs.model import MAX_IMAGE_BYTES, Kernel, Program, ProgramError

_EM_CUDA, _ABI_IN_FLAGS = 190, 8
_HEADER = 64
_TABLES = struct.Struct("<32x2Q6x4H2x")
"""Of an ELF header: where the program headers and the sections' begin, and the size and number of each."""
_SECTION_HEADER, _SYMTAB, _STRTAB, _WITHOUT_BYTES, _LOADED = struct.Struct("<IIQQQQIIQQ"), 2, 3, 8, 0x6
_SYMBOL, _OBJECT, _FUNCTION, _ENTRY = struct.Struct("<IBBHQQ"), 1, 2, 0x10
_INFO, _WITH_SIZE, _CTA_PER_CLUSTER = b".nv.info.", 4, 0x3D
"""How the section of a kernel's attributes is named; the format of an attribute that says its size; and the attribute
with the blocks of a cluster that a kernel has to have."""
Three = tuple[int, int, int]
_DEBUG = re.compile(rb"(\.rela?)?(\.debug_|\.nv_debug_|\.nv\.tileir\.debug_)")
"""Names of sections that are for debuggers: lines and files of the source, and texts of the compiler."""


def check_image(image: bytes, arch: str, name: str) -> None:
    """Raises `ProgramError` where an image is no cubin for this architecture."""
    found = architecture(image)
    if not found:
        raise ProgramError(f"image {name[:12]} is no cubin")
    if found != arch.rstrip("af"):
        raise ProgramError(f"image {name[:12]} is for {found}, and the program for {arch}")


def architecture(image: bytes) -> str:
    """`sm_90` and the like; empty for what is no cubin, PTX and fat binaries among it."""
    if len(image) < _HEADER or image[:6] != b"\x7fELF\x02\x01":
        return ""
    (machine,) = struct.unpack_from("<H", image, 18)
    (flags,) = struct.unpack_from("<I", image, 48)
    if machine != _EM_CUDA:
        return ""
    return f"sm_{flags >> 8 & 0xFF if image[8] >= _ABI_IN_FLAGS else flags & 0xFF}"


def whole_image(read: Callable[[int, int], bytes]) -> bytes:
    """Return the cubin in a memory whose size is not known. Empty if there is none, or if it cannot be read.

    `read` returns the bytes at an offset, as many as it is asked for. It raises `OSError` if it cannot.
    """
    try:
        head = read(0, _HEADER)
        if not architecture(head):
            return b""
        programs, sections, program_size, program_count, section_size, section_count = _TABLES.unpack(head)
        ends = [_HEADER, programs + program_size * program_count, sections + section_size * section_count]
        if max(ends) > MAX_IMAGE_BYTES or section_size != _SECTION_HEADER.size:
            return b""
        for _, kind, _, _, at, size, *_ in _SECTION_HEADER.iter_unpack(read(sections, section_size * section_count)):
            ends.append(0 if kind == _WITHOUT_BYTES else at + size)
        return read(0, max(ends)) if max(ends) <= MAX_IMAGE_BYTES else b""
    except OSError:
        return b""


def kernels(image: bytes) -> frozenset[str]:
    """The symbols of the kernels in a cubin. Raises `ProgramError` for what cannot be read."""
    symbols, names = _symbols(_sections(image))
    return frozenset(
        _name(names, name).decode(errors="replace")
        for name, info, other, *_ in symbols
        if info & 0xF == _FUNCTION and other & _ENTRY
    )


def variables(image: bytes) -> dict[str, int]:
    """The variables in global memory that a cubin's kernels can write to, with their bytes: what one call leaves there
    the next one finds. Raises `ProgramError` for what cannot be read."""
    sections = _sections(image)
    symbols, names = _symbols(sections)
    writable = {number for number, one in enumerate(sections) if _is_writable(one.name)}
    return {
        _name(names, name).decode(errors="replace"): size
        for name, info, _, section, _, size in symbols
        if info & 0xF == _OBJECT and section in writable
    }


def _is_writable(section: bytes) -> bool:
    return section == b".nv.global" or section.startswith((b".nv.global.", b".nv.managed"))


def clusters(image: bytes) -> dict[str, Three]:
    """The blocks of a cluster, by the symbols of the kernels in a cubin that need clusters. Raises `ProgramError` for
    what cannot be read."""
    return {
        one.name.removeprefix(_INFO).decode(errors="replace"): cluster
        for one in _sections(image)
        if one.name.startswith(_INFO)
        for cluster in _clusters(one.content)
    }


def _clusters(attributes: bytes) -> Iterator[Three]:
    at = 0
    while at + 4 <= len(attributes):
        form, number, size = struct.unpack_from("<BBH", attributes, at)
        at += 4
        if form == _WITH_SIZE:
            if number == _CTA_PER_CLUSTER and at + 12 <= len(attributes):
                yield struct.unpack_from("<III", attributes, at)
            at += size


def code_digest(image: bytes) -> str:
    """A SHA-256 of what a driver reads of a cubin: the same code, compiled from other lines or from another file, has
    the same one. Raises `ProgramError` for what cannot be read.

    Left out are sections for debuggers, names of symbols (a kernel's is that of its section, too), and where in the
    file things lie.
    """
    digest = hashlib.sha256(image[:32] + image[48:52])
    for name, kind, fields, content in _sections(image):
        if kind == _STRTAB or (_DEBUG.match(name) and not fields[4] & _LOADED):
            continue
        if kind == _SYMTAB:
            content = b"".join(content[at + 4 : at + _SYMBOL.size] for at in range(0, len(content), _SYMBOL.size))
        digest.update(struct.pack("<QQ", len(name), len(content)) + name + fields + content)
    return digest.hexdigest()


class _Section(NamedTuple):
    """A section's name, its type, what else its header says but for the places of its name and its bytes, and its
    bytes."""

    name: bytes
    kind: int
    fields: bytes
    content: bytes


def _sections(image: bytes) -> list[_Section]:
    """Raises `ProgramError` for what is cut off, or has sections that overlap: reading them could take hours."""
    try:
        (table,) = struct.unpack_from("<Q", image, 40)
        size, count, names = struct.unpack_from("<HHH", image, 58)
        end = table + size * count
        if size != _SECTION_HEADER.size or names >= count or end > len(image):
            raise ProgramError("an image cannot be read: it has no table of sections")
        headers = [*_SECTION_HEADER.iter_unpack(image[table:end])]
    except struct.error:
        raise ProgramError("an image cannot be read: it is cut off") from None
    with_bytes = [header[4:6] for header in headers if header[1] != _WITHOUT_BYTES]
    if sum(size for _, size in with_bytes) > len(image) or any(at + size > len(image) for at, size in with_bytes):
        raise ProgramError("an image cannot be read: its sections are cut off, or overlap")
    start, length = headers[names][4:6]
    text = image[start : start + length]
    found = []
    for place, kind, flags, address, at, length, link, info, align, entry in headers:
        fields = struct.pack("<IQQQIIQQ", kind, flags, address, length, link, info, align, entry)
        content = b"" if kind == _WITHOUT_BYTES else image[at : at + length]
        found.append(_Section(_name(text, place), kind, fields, content))
    return found


def _symbols(sections: list[_Section]) -> tuple[Iterator[tuple[int, ...]], bytes]:
    """The symbols of an ELF file and the names for them. Raises `ProgramError`."""
    tables = [one for one in sections if one.kind == _SYMTAB]
    links = [struct.unpack_from("<28xI", one.fields)[0] for one in tables]
    if len(tables) != 1 or links[0] >= len(sections) or len(tables[0].content) % _SYMBOL.size:
        raise ProgramError(f"an image cannot be read: it has {len(tables)} symbol tables")
    return _SYMBOL.iter_unpack(tables[0].content), sections[links[0]].content


def _name(names: bytes, start: int) -> bytes:
    """What a table of names has at a place."""
    return names[start : max(names.find(b"\0", start), start)]


def missing_kernels(program: Program) -> list[str]:
    """Symbols that the images which they are said to be in do not hold."""
    held = {key: kernels(image) for key, image in program.images.items()}
    nodes = [node for node in program.layout.nodes if isinstance(node, Kernel)]
    return sorted({node.symbol for node in nodes if node.symbol not in held[node.image]})

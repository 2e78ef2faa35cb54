"""What an image says of itself: which architecture it is for, and which kernels it holds.

A cubin is an ELF file (`EM_CUDA`). Its flags hold the number of its architecture: in the second byte from ABI version 8
on, in the lowest one before. A kernel is a symbol of a function that has `STO_CUDA_ENTRY` set.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tilewright.programs.model import MAX_IMAGE_BYTES, MAX_SYMBOL, Kernel, Program, ProgramError

_EM_CUDA, _ABI_IN_FLAGS = 190, 8
_HEADER = 64
_TABLES = struct.Struct("<32x2Q6x4H2x")
"""Of an ELF header: where the program headers and the sections' begin, and the size and number of each."""
_SECTION, _WITHOUT_BYTES = struct.Struct("<4xI16x2Q24x"), 8
"""Of a section's header: its type, and where its bytes are and how many. The type of sections that have none."""
_SECTION_HEADER, _SYMTAB, _STRTAB, _COMPRESSED = struct.Struct("<IIQQQQIIQQ"), 2, 3, 0x800
_LINK, _LINK_AT, _LOADED = struct.Struct("<I"), 28, 0x6
"""Of a section's header as `_sections` gives it: the section that it refers to; the flags of what a driver loads."""
_SEGMENT = struct.Struct("<II6Q")
_SYMBOL, _OBJECT, _FUNCTION, _OF_SECTION, _ENTRY = struct.Struct("<IBBHQQ"), 1, 2, 3, 0x10
MAX_SYMBOLS = 1 << 20
_INFO, _WITH_SIZE, _REQNTID, _CTA_PER_CLUSTER = b".nv.info.", 4, 0x10, 0x3D
"""How the section of a kernel's attributes is named; the format of an attribute that says its size; and the attributes
with the threads of a block, and with the blocks of a cluster, that a kernel has to have."""
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
        if max(ends) > MAX_IMAGE_BYTES or section_size != _SECTION.size:
            return b""
        for kind, start, size in _SECTION.iter_unpack(read(sections, section_size * section_count)):
            ends.append(0 if kind == _WITHOUT_BYTES else start + size)
        return read(0, max(ends)) if max(ends) <= MAX_IMAGE_BYTES else b""
    except OSError:
        return b""


def kernels(image: bytes) -> frozenset[str]:
    """The symbols of the kernels in a cubin, read once and within limits, whatever the image says. Raises
    `ProgramError` for what cannot be read."""
    try:
        symbols, names = _symbol_table(image)
    except struct.error:
        raise ProgramError("an image cannot be read: it is cut off") from None
    found = set()
    for name, info, other, *_ in _SYMBOL.iter_unpack(symbols):
        if info & 0xF == _FUNCTION and other & _ENTRY:
            end = names.find(b"\0", name, name + MAX_SYMBOL + 1)
            if end < 0:
                raise ProgramError("an image cannot be read: a kernel's name has no end")
            found.add(names[name:end].decode(errors="replace"))
    return frozenset(found)


def variables(image: bytes) -> dict[str, int]:
    """The variables in global memory that a cubin's kernels can write to, with their bytes: what one call leaves there
    the next one finds. Raises `ProgramError` for what cannot be read."""
    try:
        writable = {number for number, (name, _, _) in enumerate(_sections(image)) if _is_writable(name)}
        symbols, names = _symbol_table(image)
    except struct.error:
        raise ProgramError("an image cannot be read: it is cut off") from None
    found = {}
    for name, info, _, section, _, size in _SYMBOL.iter_unpack(symbols):
        if info & 0xF == _OBJECT and section in writable:
            end = names.find(b"\0", name, name + MAX_SYMBOL + 1)
            found[names[name : max(end, name)].decode(errors="replace")] = size
    return found


def _is_writable(section: bytes) -> bool:
    return section == b".nv.global" or section.startswith((b".nv.global.", b".nv.managed"))


class LaunchSizes(NamedTuple):
    """What a kernel runs with, whatever it is launched with: the threads of a block, and the blocks of a cluster."""

    threads: Three
    cluster: Three


def required_sizes(image: bytes) -> dict[str, LaunchSizes]:
    """By their symbols, what those kernels in a cubin run with that take one size of a block alone. Raises
    `ProgramError` for what cannot be read."""
    found = {}
    try:
        for name, _, content in _sections(image):
            if name.startswith(_INFO):
                sizes = {
                    number: struct.unpack_from("<III", value)
                    for number, value in _attributes(content)
                    if number in (_REQNTID, _CTA_PER_CLUSTER)
                }
                if threads := sizes.get(_REQNTID):
                    symbol = name.removeprefix(_INFO).decode(errors="replace")
                    found[symbol] = LaunchSizes(threads, sizes.get(_CTA_PER_CLUSTER, (1, 1, 1)))
    except struct.error:
        raise ProgramError("an image cannot be read: it is cut off") from None
    return found


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and the value of each attribute."""
    at = 0
    while at + 4 <= len(data):
        size = struct.unpack_from("<H", data, at + 2)[0] if data[at] == _WITH_SIZE else 0
        yield data[at + 1], data[at + 4 : at + 4 + size] if data[at] == _WITH_SIZE else data[at + 2 : at + 4]
        at += 4 + size


def _symbol_table(image: bytes) -> tuple[bytes, bytes]:
    """The one symbol table of an ELF file and the names for it. Raises `ProgramError`, `struct.error`."""
    (table,) = struct.unpack_from("<Q", image, 40)
    table = min(table, len(image))  # past the end `unpack_from` raises what is caught
    size, count = struct.unpack_from("<HH", image, 58)
    if size != _SECTION_HEADER.size:
        raise ProgramError("an image cannot be read: its sections are of another size")
    sections = [_SECTION_HEADER.unpack_from(image, table + number * size) for number in range(count)]
    tables = [section for section in sections if section[1] == _SYMTAB]
    if len(tables) != 1 or tables[0][6] >= count:
        raise ProgramError(f"an image cannot be read: it has {len(tables)} symbol tables")
    parts = []
    for section in (tables[0], sections[tables[0][6]]):
        flags, at, length = section[2], section[4], section[5]
        if flags & _COMPRESSED or at + length > len(image) or length > MAX_SYMBOLS * _SYMBOL.size:
            raise ProgramError("an image cannot be read: its symbols are compressed, cut off or too many")
        parts.append(image[at : at + length])
    symbols, names = parts
    return symbols[: len(symbols) // _SYMBOL.size * _SYMBOL.size], names


def code_digest(image: bytes) -> str:
    """A SHA-256 of what a cubin is without what is for debuggers: the same code, compiled from other lines or from
    another file, has the same one. Raises `ProgramError` for what cannot be read.

    Left out are the bytes of sections for debuggers, and their names, since cuTile names some by a hash of the source;
    and where in the file things lie. Names are read where symbols have them, so that their table does not count.
    """
    digest = hashlib.sha256(image[:32] + image[48:64])
    try:
        sections, (symbols, names) = [*_sections(image)], _symbol_table(image)
        tables = [number for number, (_, header, _) in enumerate(sections) if _kind(header) == _SYMTAB]
        own_names = _LINK.unpack_from(sections[tables[0]][1], _LINK_AT)[0]
        shared = [header for _, header, _ in sections if _LINK.unpack_from(header, _LINK_AT)[0] == own_names]
        unread = {*tables, struct.unpack_from("<H", image, 62)[0], *([own_names] if len(shared) == 1 else [])}
        for number, (name, header, content) in enumerate(sections):
            if _is_for_debuggers(name, header):
                name, header, content = b"", header[:12], b""  # its type and flags
            elif number in unread and _kind(header) in (_SYMTAB, _STRTAB):
                size = header[20:_LINK_AT] if _kind(header) == _SYMTAB else b""
                header, content = header[:20] + size + header[_LINK_AT:], b""
            digest.update(struct.pack("<QQ", len(name), len(content)) + name + header + content)
        budget = len(image)
        for start, info, *rest in _SYMBOL.iter_unpack(symbols):
            name = _name(names, start)
            if info & 0xF == _OF_SECTION and _DEBUG.match(name):
                name = b""
            budget -= len(name)
            if budget < 0:
                raise ProgramError("an image cannot be read: its symbols share their names")
            digest.update(_SYMBOL.pack(len(name), info, *rest) + name)
        for segment in _segments(image):
            digest.update(segment)
    except struct.error:
        raise ProgramError("an image cannot be read: it is cut off") from None
    return digest.hexdigest()


def _kind(header: bytes) -> int:
    return int.from_bytes(header[:4], "little")


def _is_for_debuggers(name: bytes, header: bytes) -> bool:
    return bool(_DEBUG.match(name)) and not header[4] & _LOADED


def _name(names: bytes, start: int) -> bytes:
    """What a table of names has at a place. Raises `ProgramError` where it has no end."""
    end = names.find(b"\0", start)
    if end < 0:
        raise ProgramError("an image cannot be read: a name has no end")
    return names[start:end]


def _segments(image: bytes) -> Iterator[bytes]:
    """What each program header says, and the bytes that it names, but for where they lie in the file, and for those of
    the program headers themselves."""
    (table,) = struct.unpack_from("<Q", image, 32)
    size, count = struct.unpack_from("<HH", image, 54)
    if count and size != _SEGMENT.size:
        raise ProgramError("an image cannot be read: its program headers are of another size")
    budget = 2 * len(image)
    for number in range(count):
        kind, flags, at, *rest = _SEGMENT.unpack_from(image, min(table, len(image)) + number * size)
        length = rest[2]
        own = at == table and length == count * size
        if at + length > len(image):
            raise ProgramError("an image cannot be read: a segment is cut off")
        budget -= length
        if budget < 0:
            raise ProgramError("an image cannot be read: its segments overlap")
        yield struct.pack("<II5Q?", kind, flags, *rest, own) + (b"" if own else image[at : at + length])


def _sections(image: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Each section's name, what its header says but for the places of its name and its bytes, and its bytes. Raises
    `ProgramError`, `struct.error`."""
    (table,) = struct.unpack_from("<Q", image, 40)
    table = min(table, len(image))  # past the end `unpack_from` raises what is caught
    size, count, names = struct.unpack_from("<HHH", image, 58)
    if size != _SECTION_HEADER.size or names >= count:
        raise ProgramError("an image cannot be read: its sections are of another size, or have no names")
    headers = [_SECTION_HEADER.unpack_from(image, table + number * size) for number in range(count)]
    start, length = headers[names][4:6]
    text, budget = image[start : start + length], len(image)
    if sum(header[5] for header in headers if header[1] != _WITHOUT_BYTES) > len(image):
        raise ProgramError("an image cannot be read: its sections overlap")
    for place, kind, flags, address, at, length, link, info, align, entry in headers:
        if kind == _WITHOUT_BYTES:
            content = b""
        elif at + length > len(image):
            raise ProgramError("an image cannot be read: a section is cut off")
        else:
            content = image[at : at + length]
        name = _name(text, place)
        budget -= len(name)
        if budget < 0:
            raise ProgramError("an image cannot be read: its sections share their names")
        yield name, struct.pack("<IQQQIIQQ", kind, flags, address, length, link, info, align, entry), content


def missing_kernels(program: Program) -> list[str]:
    """Symbols that the images which they are said to be in do not hold."""
    held = {key: kernels(image) for key, image in program.images.items()}
    nodes = [node for node in program.layout.nodes if isinstance(node, Kernel)]
    return sorted({node.symbol for node in nodes if node.symbol not in held[node.image]})

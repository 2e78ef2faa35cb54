"""Device programs as files. A file comes from a process that nobody trusts, so the reader takes nothing on its word.

A file is `MAGIC`, the length of its header (4 bytes, big-endian), the header, then the bytes of each image, of each
held block and of each example, in the order of its header. The header is JSON, written in one way only. So a program
has one file, and a file's SHA-256 names its program.

A bare file is what is left of a program's file without held contents and examples: `BARE`, the same header, the images.
It can be shown, and has the program's identity, but cannot be replayed.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from pydantic import Field, ValidationError

from tilewright.programs.images import check_image
from tilewright.programs.model import (
    MAX_BLOCKS,
    MAX_HELD_BYTES,
    MAX_IMAGE_BYTES,
    MAX_IMAGES,
    MAX_TENSORS,
    Address,
    Digest,
    Layout,
    Part,
    Program,
    ProgramError,
    Size,
    checked,
    digest_of,
)
from tilewright.programs.order import Graph, canonical
from tilewright.wire.record import misfit

MAGIC = b"TWPROG\x00\x01"
"""The last byte is the format's version."""
BARE = b"TWBARE\x00\x01"
"""Of a bare file; as long as `MAGIC`."""
MAX_HEADER = 64 << 20
_LENGTH = struct.Struct(">I")
Key = TypeVar("Key", str, int)
Value = TypeVar("Value", bytes, int)


class _Image(Part):
    digest: Digest
    size: Size


class _Held(Part):
    at: Address
    size: Size
    digest: Digest


class _Example(Part):
    name: str = Field(max_length=200)
    size: Size
    digest: Digest


class _Header(Part):
    label: str = Field(max_length=1000)
    constant: Annotated[tuple[str, ...], Field(max_length=MAX_TENSORS)]
    layout: Layout
    images: Annotated[tuple[_Image, ...], Field(max_length=MAX_IMAGES)]
    held: Annotated[tuple[_Held, ...], Field(max_length=MAX_BLOCKS)]
    examples: Annotated[tuple[_Example, ...], Field(max_length=MAX_TENSORS)]


def encoded(program: Program) -> bytes:
    """The program's file. Raises `ProgramError` where its parts do not fit together."""
    checked(program)
    images, held = sorted(program.images.items()), sorted(program.held.items())
    examples = sorted(program.examples.items())
    header = _Header(
        label=program.label,
        constant=program.constant,
        layout=program.layout,
        images=tuple(_Image(digest=key, size=len(data)) for key, data in images),
        held=tuple(_Held(at=at, size=len(data), digest=digest_of(data)) for at, data in held),
        examples=tuple(_Example(name=name, size=len(data), digest=digest_of(data)) for name, data in examples),
    )
    text = header.model_dump_json().encode()
    contents = [data for part in (images, held, examples) for _, data in part]
    return b"".join([MAGIC, _LENGTH.pack(len(text)), text, *contents])


def decoded(raw: bytes, bare: bool = False) -> Program:
    """The program that a file holds, or a bare file if `bare`: its held blocks are without contents then. Raises
    `ProgramError` for everything that `encoded`, or `bared`, does not write."""
    header, start = _opened(raw, BARE if bare else MAGIC)
    parts: list[_Image | _Held | _Example] = [*header.images]
    parts += [] if bare else [*header.held, *header.examples]
    if start + sum(part.size for part in parts) != len(raw):
        raise ProgramError("it is longer or shorter than its header says")
    at, contents = start, []
    for part in parts:
        contents.append(raw[at : at + part.size])
        at += part.size
        if digest_of(contents[-1]) != part.digest:
            raise ProgramError("some contents have another hash than its header says")
    sizes = _by_key([one.at for one in header.held], [one.size for one in header.held])
    images = _by_key([one.digest for one in header.images], contents)
    held: dict[int, bytes] = {}
    examples: dict[str, bytes] = {}
    if not bare:
        held = _by_key([*sizes], contents[len(images) :])
        examples = _by_key([one.name for one in header.examples], contents[len(images) + len(held) :])
    program = checked(Program(header.layout, images, held, examples, header.constant, header.label), sizes)
    for key, image in images.items():
        check_image(image, program.layout.arch, key)
    layout = program.layout
    if canonical(Graph(layout.nodes, layout.edges)) != (layout.nodes, layout.edges):
        raise ProgramError("its nodes are not in the one order that there is")
    return program


def _opened(raw: bytes, magic: bytes) -> tuple[_Header, int]:
    """The header of a file that begins with `magic`, and where it ends. Raises `ProgramError`."""
    start = len(magic) + _LENGTH.size
    if raw[: len(magic)] != magic:
        raise ProgramError("it is no device program of this version")
    if len(raw) < start:
        raise ProgramError("it ends before its header")
    (length,) = _LENGTH.unpack_from(raw, len(magic))
    if length > MAX_HEADER or start + length > len(raw):
        raise ProgramError("its header is over the limit, or cut off")
    text = raw[start : start + length]
    try:
        header = _Header.model_validate_json(text)
    except ValidationError as error:
        raise ProgramError(f"its header: {misfit(error)}") from None
    if header.model_dump_json().encode() != text:
        raise ProgramError("its header is not written in the one way that there is")
    return header, start + length


def bared(file: BinaryIO) -> bytes | None:
    """The bare file of the program whose file this is, read no further than its images; None if it holds nothing that
    a bare file leaves out. Raises `ProgramError` for what is no program."""
    start = file.read(len(MAGIC) + _LENGTH.size)
    length = int.from_bytes(start[len(MAGIC) :], "big")
    raw = start + file.read(min(length, MAX_HEADER))
    header, _ = _opened(raw, MAGIC)
    if not header.held and not header.examples:
        return None
    return BARE + raw[len(BARE) :] + file.read(sum(image.size for image in header.images))


def _by_key(keys: list[Key], contents: list[Value]) -> dict[Key, Value]:
    found: dict[Key, Value] = dict(zip(keys, contents, strict=False))
    if [*found] != sorted(keys):
        raise ProgramError("its contents are not in order, or there twice")
    return found


def program_file(folder: Path, sha256: str) -> Path:
    """Where a program lies among a session's programs, by the SHA-256 of its file."""
    return folder / f"{sha256}.program"


def bare_file(folder: Path, sha256: str) -> Path:
    """Where its bare file lies, by the SHA-256 of the file that it was made from."""
    return folder / f"{sha256}.bare.program"


def write(program: Program, path: Path) -> str:
    """Write the program's file; its SHA-256. Raises `ProgramError`, `OSError`."""
    raw = encoded(program)
    path.write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()


def read(path: Path, bare: bool = False) -> Program:
    """The program in a file, which may be a bare one if `bare`. Raises `ProgramError` for what is none, `OSError` for
    what cannot be read."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size > len(MAGIC) + _LENGTH.size + MAX_HEADER + MAX_IMAGE_BYTES + 2 * MAX_HELD_BYTES:
            raise ProgramError(f"a file of {size} bytes is over the limit")
        raw = file.read(size + 1)
    is_bare = raw.startswith(BARE)
    if is_bare and not bare:
        raise ProgramError("its held contents were dropped, as those of a candidate that was not kept")
    return decoded(raw, is_bare)

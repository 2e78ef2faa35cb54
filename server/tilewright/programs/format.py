"""Device programs as files. A file comes from a process that nobody trusts, so the reader takes nothing on its word.

A file is `MAGIC`, the length of its header (4 bytes, big-endian), the header in JSON, then the bytes of each image, of
each held block and of each example, in the order of its header. A file's SHA-256 names its program.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, ValidationError

from tilewright.programs.images import check_image
from tilewright.programs.model import (
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
from tilewright.wire.record import misfit

MAGIC = b"TWPROG\x00\x01"
"""The last byte is the format's version."""
_LENGTH = struct.Struct(">I")


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
    constant: tuple[str, ...]
    layout: Layout
    images: tuple[_Image, ...]
    held: tuple[_Held, ...]
    examples: tuple[_Example, ...]


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


def decoded(raw: bytes) -> Program:
    """The program that a file holds. Raises `ProgramError`."""
    header, at = _opened(raw)
    parts: list[_Image | _Held | _Example] = [*header.images, *header.held, *header.examples]
    if at + sum(part.size for part in parts) != len(raw):
        raise ProgramError("it is longer or shorter than its header says")
    contents: list[bytes] = []
    for part in parts:
        contents.append(raw[at : at + part.size])
        at += part.size
        if digest_of(contents[-1]) != part.digest:
            raise ProgramError("some contents have another hash than its header says")
    rest = iter(contents)
    images = {one.digest: next(rest) for one in header.images}
    held = {one.at: next(rest) for one in header.held}
    examples = {one.name: next(rest) for one in header.examples}
    program = Program(header.layout, images, held, examples, header.constant, header.label)
    checked(program)
    for key, image in images.items():
        check_image(image, program.layout.arch, key)
    return program


def _opened(raw: bytes) -> tuple[_Header, int]:
    """The header of a file, and where it ends. Raises `ProgramError`."""
    start = len(MAGIC) + _LENGTH.size
    if raw[: len(MAGIC)] != MAGIC:
        raise ProgramError("it is no device program of this version")
    end = start + int.from_bytes(raw[len(MAGIC) : start], "big")
    try:
        return _Header.model_validate_json(raw[start:end]), end
    except ValidationError as error:
        raise ProgramError(f"its header: {misfit(error)}") from None


def layout_and_images(path: Path) -> tuple[Layout, Mapping[str, bytes]]:
    """What a program launches, without its other contents, which may be large. Raises `ProgramError`, `OSError`."""
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + _LENGTH.size)
        header, _ = _opened(start + file.read(int.from_bytes(start[len(MAGIC) :], "big")))
        return header.layout, {one.digest: file.read(one.size) for one in header.images}


def program_file(folder: Path, sha256: str) -> Path:
    """Where a program lies among a session's programs, by the SHA-256 of its file."""
    return folder / f"{sha256}.program"


def write(program: Program, path: Path) -> str:
    """Write the program's file; its SHA-256. Raises `ProgramError`, `OSError`."""
    raw = encoded(program)
    path.write_bytes(raw)
    return hashlib.sha256(raw).hexdigest()


def read(path: Path) -> Program:
    """The program in a file. Raises `ProgramError` for what is none, `OSError` for what cannot be read."""
    return decoded(path.read_bytes())

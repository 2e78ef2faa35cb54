"""A file of a program is read back as it was, and anything else is an error."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.programs.made import OUT, W, X, clear, copied, cubin, fill, program
from tilewright.gpu.addresses import BASE, GRAIN, SPAN, ZONE, ZONES, Addresses, OutOfAddresses, rounded
from tilewright.programs.format import MAGIC, decoded, encoded, layout_and_images, read, write
from tilewright.programs.images import architecture, kernels, missing_kernels
from tilewright.programs.model import Kernel, Program, ProgramError, digest_of

WHOLE = encoded(program([fill(OUT, 1), clear(), copied(), fill(X, 2, cluster=(1, 1, 1), priority=-2)]))
START = len(MAGIC) + 4


def header(raw: bytes) -> dict[str, Any]:
    (length,) = struct.unpack_from(">I", raw, len(MAGIC))
    found: dict[str, Any] = json.loads(raw[START : START + length])
    return found


def with_header(raw: bytes, changed: Any, dump: Callable[[Any], str] | None = None) -> bytes:
    (length,) = struct.unpack_from(">I", raw, len(MAGIC))
    text = (dump or (lambda one: json.dumps(one, separators=(",", ":"))))(changed).encode()
    return MAGIC + struct.pack(">I", len(text)) + text + raw[START + length :]


def test_a_program_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = program([fill(OUT, 1), clear(), copied()])
    name = write(made, tmp_path / "p")
    assert read(tmp_path / "p") == made
    assert name == digest_of((tmp_path / "p").read_bytes())
    assert decoded(with_header(encoded(made), header(encoded(made)))) == made


def test_layout_and_images_are_read_without_what_is_held(tmp_path: Path) -> None:
    made = program([fill(OUT, 1), clear(), copied()], held=b"\x07" * 4096)
    raw = encoded(made)
    (tmp_path / "p").write_bytes(raw[: -len(made.held[W])])
    assert layout_and_images(tmp_path / "p") == (made.layout, made.images)
    for broken in (b"", MAGIC, MAGIC + b"\xff" * 4, WHOLE[:100]):
        (tmp_path / "p").write_bytes(broken)
        with pytest.raises(ProgramError):
            layout_and_images(tmp_path / "p")


@settings(max_examples=400)
@given(st.integers(0, 2**32), st.integers(1, 4))
def test_a_file_that_was_changed_anywhere_is_an_error_or_a_program(seed: int, changes: int) -> None:
    source, raw = random.Random(seed), bytearray(WHOLE)
    for _ in range(changes):
        place = source.randrange(len(raw) if source.random() < 0.3 else 3000)
        match source.randrange(4):
            case 0:
                raw[place] = source.randrange(256)
            case 1:
                del raw[place : place + source.randrange(1, 20)]
            case 2:
                raw[place:place] = source.randbytes(source.randrange(1, 20))
            case _:
                raw[place : place + 8] = source.choice([b'"', b"[", b"9" * 30, b"-1", b"null", b"1e400", b"\xff" * 8])
    try:
        found = decoded(bytes(raw))
    except ProgramError:
        return
    assert decoded(encoded(found)) == found


@given(st.binary(max_size=400))
def test_what_is_no_program_is_an_error(raw: bytes) -> None:
    for candidate in (raw, MAGIC + raw, MAGIC + struct.pack(">I", len(raw)) + raw):
        with pytest.raises(ProgramError):
            decoded(candidate)


DEEP = "[" * 100_000
HOSTILE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nested without end": lambda head: None,
    "an unknown field": lambda head: head | {"more": 1},
    "an unknown node": lambda head: node(head, kind="host"),
    "no images": lambda head: head | {"images": []},
    "an image twice": lambda head: head | {"images": head["images"] * 2},
    "a size below zero": lambda head: part(head, "images", size=-5),
    "a size of a petabyte": lambda head: part(head, "held", size=1 << 50),
    "the hash of something else": lambda head: part(head, "images", digest="0" * 64),
    "an example of nothing": lambda head: part(head, "examples", name="y"),
    "an example that is too short": lambda head: tensor(head, "inputs", shape=[255]),
    "two outputs of one name": lambda head: layout(head, outputs=head["layout"]["outputs"] * 2),
    "an input block that is no input": lambda head: layout(
        head, blocks=[head["layout"]["blocks"][0] | {"size": 2048}, *head["layout"]["blocks"][1:]]
    ),
    "a constant input that is none": lambda head: head | {"constant": ["y"]},
    "a grid of nothing": lambda head: node(head, grid=[0, 1, 1]),
    "a grid without end": lambda head: node(head, grid=[1 << 40, 1, 1]),
    "parameters that are no hexadecimal": lambda head: node(head, parameters=["zz"]),
    "a number for a name": lambda head: node(head, symbol=5),
    "a float for a number": lambda head: node(head, shared=1.0),
    "an edge to itself": lambda head: layout(head, edges=[edge(0, 0)]),
    "an edge to the past": lambda head: layout(head, edges=[edge(1, 0)]),
    "an edge to nowhere": lambda head: layout(head, edges=[edge(0, 99)]),
    "an edge twice": lambda head: layout(head, edges=[edge(0, 1), edge(0, 1)]),
    "a block outside": lambda head: layout(
        head, blocks=[{"at": BASE + SPAN - GRAIN, "size": 2 * GRAIN, "role": "fresh"}]
    ),
    "a block in a block": lambda head: layout(head, blocks=[*head["layout"]["blocks"], head["layout"]["blocks"][0]]),
    "an address of the driver's": lambda head: layout(head, blocks=[{"at": 4096, "size": 8, "role": "fresh"}]),
    "an output in no block": lambda head: tensor(head, at=BASE + 9 * GRAIN),
    "an output that is too long": lambda head: tensor(head, shape=[1 << 60]),
    "strides that step back": lambda head: tensor(head, stride=[-1]),
    "strides for other dimensions": lambda head: tensor(head, stride=[1, 1]),
    "a dtype that is none": lambda head: tensor(head, dtype="float31"),
    "an architecture that is none": lambda head: layout(head, arch="gfx90a"),
    "another architecture": lambda head: layout(head, arch="sm_80"),
}


def layout(head: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return head | {"layout": head["layout"] | changed}


def node(head: dict[str, Any], **changed: Any) -> dict[str, Any]:
    nodes = head["layout"]["nodes"]
    place = next(number for number, one in enumerate(nodes) if one["kind"] == "kernel")
    return layout(head, nodes=[*nodes[:place], nodes[place] | changed, *nodes[place + 1 :]])


def part(head: dict[str, Any], which: str, **changed: Any) -> dict[str, Any]:
    return head | {which: [head[which][0] | changed, *head[which][1:]]}


def edge(before: int, after: int) -> dict[str, int]:
    return {"before": before, "after": after, "from_port": 0, "to_port": 0, "data": 0}


def tensor(head: dict[str, Any], which: str = "outputs", at: int | None = None, **spec: Any) -> dict[str, Any]:
    (one,) = head["layout"][which]
    return layout(head, **{which: [one | {"at": at or one["at"], "spec": one["spec"] | spec}]})


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_an_error(what: str) -> None:
    raw = WHOLE if what != "nested without end" else with_header(WHOLE, None, lambda _: DEEP)
    changed = HOSTILE[what](header(raw)) if what != "nested without end" else None
    with pytest.raises(ProgramError):
        decoded(with_header(raw, changed) if changed else raw)


@pytest.mark.parametrize(
    "image", [b"", b"//\n// Generated by NVIDIA NVVM Compiler\n.version 8.0", b"\x7fELF" + bytes(100)]
)
def test_an_image_that_is_no_cubin_is_an_error(image: bytes) -> None:
    made = program([fill(OUT, 1, image)])
    swapped = Program(made.layout, {digest_of(image): image}, made.held)
    with pytest.raises(ProgramError, match="no cubin"):
        decoded(encoded(swapped))


def test_an_image_says_what_it_holds() -> None:
    assert [architecture(cubin(arch=arch)) for arch in ("sm_80", "sm_90", "sm_100")] == ["sm_80", "sm_90", "sm_100"]
    assert kernels(cubin("fill")) == {"fill"}
    made = program([fill(OUT, 1)])
    assert missing_kernels(made) == []
    (kernel,) = made.layout.nodes
    assert isinstance(kernel, Kernel)
    other = made.layout.model_copy(update={"nodes": (kernel.model_copy(update={"symbol": "gone"}),)})
    assert missing_kernels(Program(other, made.images, made.held)) == ["gone"]


@given(st.integers(0, 2**32))
@settings(max_examples=300)
def test_a_broken_image_is_an_error_at_worst(seed: int) -> None:
    source, image = random.Random(seed), bytearray(cubin())
    for _ in range(source.randrange(1, 6)):
        image[source.randrange(64, len(image))] = source.randrange(256)
    if source.random() < 0.5:
        del image[source.randrange(64, len(image)) :]
    try:
        kernels(bytes(image))
    except ProgramError:
        pass


def test_addresses_follow_one_another_and_end() -> None:
    addresses = Addresses()
    assert [addresses.take(size) for size in (1, GRAIN, GRAIN + 1, 0, 5)] == [BASE + n * GRAIN for n in (0, 1, 2, 4, 5)]
    assert [rounded(size) for size in (0, 1, GRAIN, GRAIN + 1)] == [GRAIN, GRAIN, GRAIN, 2 * GRAIN]
    with pytest.raises(OutOfAddresses, match="0 of 1024 GiB"):
        addresses.take(ZONE)
    with pytest.raises(OutOfAddresses, match="larger than any GPU"):
        addresses.take(ZONE + 1)
    addresses.start_capture()
    assert addresses.take(5) == BASE + ZONE // 2
    for number in range(1, ZONES):
        addresses.start_zone(number)
        assert addresses.take(5) == BASE + number * ZONE
    for number in (3, ZONES):
        with pytest.raises(OutOfAddresses, match="does not follow zone 15"):
            addresses.start_zone(number)

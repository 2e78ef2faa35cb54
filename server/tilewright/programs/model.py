"""What a device program is made of: images, nodes with their order, and a memory plan.

An image is a cubin: SASS for one architecture. A node is a kernel, a memset or a copy within the GPU's memory, with
every number that its launch needs. The memory plan says which blocks there are and what each one is for. No host code
is in a program.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from tilewright.gpu.addresses import BASE, GRAIN, SPAN
from tilewright.wire.record import Record
from tilewright.wire.tensors import TensorSpec

MAX_NODES, MAX_IMAGE_BYTES = 4096, 256 << 20

Address = Annotated[int, Field(ge=BASE, lt=BASE + SPAN)]
Size = Annotated[int, Field(ge=0, le=SPAN)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Three = tuple[
    Annotated[int, Field(ge=1, lt=1 << 31)],
    Annotated[int, Field(ge=1, le=65535)],
    Annotated[int, Field(ge=1, le=65535)],
]


class Part(Record):
    """Strict about its types, too; bytes are hexadecimal in JSON."""

    model_config = ConfigDict(strict=True, ser_json_bytes="hex", val_json_bytes="hex")


class Kernel(Part):
    """A kernel's launch. Sizes in bytes; `grid` and `block` as CUDA has them."""

    kind: Literal["kernel"] = "kernel"
    image: Digest = Field(description="of the image that holds it")
    symbol: str = Field(min_length=1, max_length=8192)
    grid: Three
    block: Three
    shared: int = Field(ge=0, le=1 << 20, description="dynamic shared memory of a block")
    parameters: tuple[bytes, ...]
    cluster: tuple[int, int, int] = Field((0, 0, 0), description="thread block cluster; zeros for none")
    cluster_policy: int = Field(0, ge=0, le=2, description="how the clusters of a grid are placed; 0 is the default")
    cooperative: bool = Field(False, description="whether all blocks have to run at once")
    priority: int = Field(0, ge=-64, le=64)
    carve_out: int = Field(
        -1, ge=-1, le=100, description="preferred percentage of shared memory; -1 is the driver's own"
    )


class Memset(Part):
    """`height` rows of `width` elements are set to `value`; `pitch` is the bytes from row to row."""

    kind: Literal["memset"] = "memset"
    at: Address
    value: int = Field(ge=0, lt=1 << 32)
    element: Literal[1, 2, 4] = Field(description="bytes of an element")
    width: Size
    height: Size = 1
    pitch: Size = 0


class Copy(Part):
    """A copy within the memory of the GPU: `depth` slices of `height` rows of `width` bytes. A pitch is the bytes from
    row to row, a slice's height the rows from slice to slice."""

    kind: Literal["copy"] = "copy"
    to: Address
    source: Address
    width: Size
    height: Size = 1
    depth: Size = 1
    to_pitch: Size = 0
    source_pitch: Size = 0
    to_height: Size = 0
    source_height: Size = 0


Node = Annotated[Kernel | Memset | Copy, Field(discriminator="kind")]


class Edge(Part):
    """Node `after` starts once node `before` is done, or, by a programmatic launch, once it says so. Nodes are named by
    their place. Ports and kind are CUDA's `CUgraphEdgeData`, all zeros for a plain order."""

    before: int = Field(ge=0)
    after: int = Field(ge=0)
    from_port: int = Field(0, ge=0, le=255)
    to_port: int = Field(0, ge=0, le=255)
    data: int = Field(0, ge=0, le=255)


Role = Literal["input", "held", "fresh"]


class Block(Part):
    """A block of memory. An input's bytes are written before each call. What is held was there before the call, and is
    put back before each one. What is fresh was allocated by the call, and holds nothing that counts before it."""

    at: Address
    size: Size
    role: Role

    @property
    def end(self) -> int:
        return self.at + self.size


class Tensor(Part):
    """An input or an output: where it begins, and what its bytes mean."""

    name: str = Field(max_length=200)
    at: Address
    spec: TensorSpec

    @property
    def size(self) -> int:
        """Bytes from its first element to its last."""
        return self.spec.span_bytes


class Layout(Part):
    """A program without its images and held contents: all that is compared when two programs are."""

    arch: str = Field(pattern=r"^sm_[0-9]{2,3}[a-z]?$")
    nodes: tuple[Node, ...] = Field(max_length=MAX_NODES)
    edges: tuple[Edge, ...]
    blocks: tuple[Block, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Program:
    """A device program. `images` by the SHA-256 of their bytes, `held` by the address of the block that they fill."""

    layout: Layout
    images: Mapping[str, bytes]
    held: Mapping[int, bytes] = field(default_factory=dict)
    examples: Mapping[str, bytes] = field(default_factory=dict)
    """Bytes of inputs, by name, with which a person can replay it: no part of its identity."""
    constant: tuple[str, ...] = ()
    """Inputs whose values are the same in each call: the entry point may keep something of them."""
    label: str = ""
    """What it was captured from, for people: no part of its identity."""


def digest_of(data: bytes) -> str:
    """The SHA-256 of an image, as `Kernel.image` names it."""
    return hashlib.sha256(data).hexdigest()


class ProgramError(ValueError):
    """What is no device program, or one that cannot be taken, and why."""


def checked(program: Program) -> Program:
    """The program, if all of its parts fit together. Raises `ProgramError`, which names the first that does not."""
    layout = program.layout
    _check_blocks(program)
    ordered = [(block.at, block.end) for block in layout.blocks]
    for what, tensors in (("input", layout.inputs), ("output", layout.outputs)):
        if len({tensor.name for tensor in tensors}) != len(tensors):
            raise ProgramError(f"two {what}s have one name")
        for tensor in tensors:
            _check_tensor(tensor, what, ordered)
    if {(one.at, one.size) for one in layout.blocks if one.role == "input"} != {
        (tensor.at, tensor.size) for tensor in layout.inputs if tensor.size
    }:
        raise ProgramError("its input blocks are not exactly its inputs")
    sizes = {tensor.name: tensor.size for tensor in layout.inputs}
    if any(sizes.get(name) != len(data) for name, data in program.examples.items()):
        raise ProgramError("an example is of no input, or of another size")
    if list(program.constant) != sorted(set(program.constant) & set(sizes)):
        raise ProgramError("its constant inputs are not in order, or no inputs")
    used = {node.image for node in layout.nodes if isinstance(node, Kernel)}
    if used != set(program.images):
        raise ProgramError("the images are not those that its kernels name")
    places = [(edge.before, edge.after) for edge in layout.edges]
    if any(not before < after < len(layout.nodes) for before, after in places) or len(set(places)) != len(places):
        raise ProgramError("an edge does not lead from a node to a later one, or is there twice")
    return program


def _check_blocks(program: Program) -> None:
    end = BASE
    for block in program.layout.blocks:
        if block.at % GRAIN or block.at < end or block.end > BASE + SPAN:
            raise ProgramError(f"the block at {block.at:#x} is not on a page of its own, or not in order")
        end = block.end
    held = {block.at: block.size for block in program.layout.blocks if block.role == "held"}
    if held != {at: len(data) for at, data in program.held.items()}:
        raise ProgramError("the held contents are not those of its held blocks")


def _check_tensor(tensor: Tensor, what: str, blocks: list[tuple[int, int]]) -> None:
    spec = tensor.spec
    if len(spec.shape) != len(spec.stride) or any(n < 0 for n in (*spec.shape, *spec.stride)):
        raise ProgramError(f"{what} {tensor.name!r} has no valid shape and strides")
    try:
        size = tensor.size
    except ValueError as error:
        raise ProgramError(f"{what} {tensor.name!r}: {error}") from None
    if size and not _within(tensor.at, size, blocks):
        raise ProgramError(f"{what} {tensor.name!r} lies in no block")


def _within(at: int, size: int, blocks: list[tuple[int, int]]) -> bool:
    place = bisect_right(blocks, at, key=lambda block: block[0])
    return place > 0 and at + size <= blocks[place - 1][1]

"""One call of an entry point as a device program: captured in the process that runs the candidate."""

from __future__ import annotations

import contextlib
import struct
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from cuda.bindings import driver as cuda
from pydantic import ValidationError

from tilewright.evaluation.tensors import spec_of
from tilewright.frontends.protocol import imported_runtimes
from tilewright.gpu.addresses import BASE, SPAN
from tilewright.gpu.driver import DriverError, ok
from tilewright.programs.model import (
    Block,
    Copy,
    Edge,
    Kernel,
    Layout,
    Memset,
    Program,
    ProgramError,
    Role,
    Tensor,
    checked,
)
from tilewright.programs.order import AnyNode, canonical
from tilewright.wire.record import misfit
from tilewright.worker.allocator import Arena
from tilewright.worker.images import Images
from tilewright.worker.nodes import NotCapturable, described

WARM_CALLS = 3
"""Before the call that is captured: it compiles, tunes, and fills caches of its own."""
MOST_CAPTURES, SETTLE_S = 6, 20.0
"""How often a call is captured, and for how long, until two captures in a row launch the same."""
FOLLOWED_BYTES = 1 << 20
"""Blocks up to this size are searched for addresses, too: they may be lists of pointers."""


def capture(
    call: Callable[[], Sequence[torch.Tensor]],
    inputs: Mapping[str, torch.Tensor],
    arena: Arena,
    images: Images,
    arch: str,
) -> Program:
    """The program of one call that launches what the next one does, too. `inputs` lie on the arena's pages; `call`
    gives the outputs.

    Raises `NotCapturable` for what cannot be a program, and whatever `call` raises in its warm-up.
    """
    stream = torch.cuda.Stream()

    def warm() -> None:
        with torch.cuda.stream(stream):
            call()

    for _ in range(WARM_CALLS):
        warm()
    return settled(lambda: _captured(call, stream, inputs, arena, images, arch), warm)


def settled(captured: Callable[[], Program], warm: Callable[[], None]) -> Program:
    """The first of two captures in a row that launch the same. Where they do not, a call is made in between. Raises
    `NotCapturable` where none do, and what the two raise."""
    until = time.monotonic() + SETTLE_S
    for _ in range(MOST_CAPTURES // 2):
        first, second = captured(), captured()
        if _launched(first) == _launched(second):
            return first
        if time.monotonic() > until:
            break
        warm()
    raise NotCapturable("what it launches changes from call to call")


def _launched(program: Program) -> Counter[tuple[object, ...]]:
    return Counter(
        (node.symbol, node.grid, node.block, node.shared)
        if isinstance(node, Kernel)
        else (node.kind, node.width, node.height)
        for node in program.layout.nodes
    )


def _captured(
    call: Callable[[], Sequence[torch.Tensor]],
    stream: torch.cuda.Stream,
    inputs: Mapping[str, torch.Tensor],
    arena: Arena,
    images: Images,
    arch: str,
) -> Program:
    """The program of the next call. Raises `NotCapturable`."""
    arena.release(0)
    before = dict(arena.alive)
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with contextlib.ExitStack() as kept:  # until the graph was read
        kept.callback(arena.forget_captured, arena.freed_within)
        arena.hold_pages()
        kept.callback(arena.let_pages_go)
        arena.start_capture()
        for runtime in imported_runtimes():
            kept.enter_context(runtime.capturing())
        kept.callback(_destroy, graph)  # first of all: to free it calls into the code of its kernels
        try:
            with torch.cuda.graph(graph, stream=stream):  # not a raw capture: that breaks torch's random numbers
                outputs = [*call()]
        except Exception as error:
            raise NotCapturable(f"the call cannot be captured: {_first_line(error)}") from None
        try:
            nodes, edges = canonical(described(cuda.CUgraph(graph.raw_cuda_graph()), images.of))
            program = _program(nodes, edges, before, inputs, outputs, arena, images, arch)
            if _draws_random_numbers(graph):
                raise NotCapturable("it draws random numbers from the state of the host; take a seed as an argument")
            return program
        except ValidationError as error:
            raise NotCapturable(f"what it launches is not taken: {misfit(error)}") from None
        except (ProgramError, DriverError) as error:
            raise NotCapturable(str(error)) from None


def _destroy(graph: torch.cuda.CUDAGraph) -> None:
    with contextlib.suppress(RuntimeError):  # of a capture that failed
        graph.reset()


def _draws_random_numbers(graph: torch.cuda.CUDAGraph) -> bool:
    """Whether a replay moves torch's generator on. Raises `NotCapturable` where it fails."""
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    before = generator.get_offset()
    try:
        graph.replay()
        torch.cuda.synchronize()
    except RuntimeError as error:
        raise NotCapturable(f"the captured call cannot be replayed: {_first_line(error)}") from None
    return bool(generator.get_offset() != before)


def _program(
    nodes: tuple[AnyNode, ...],
    edges: tuple[Edge, ...],
    before: Mapping[int, int],
    inputs: Mapping[str, torch.Tensor],
    outputs: Sequence[torch.Tensor],
    arena: Arena,
    images: Images,
    arch: str,
) -> Program:
    owners = Owners(arena.blocks)
    ours = owners.of_tensors(inputs.values())
    used = owners.of_nodes(nodes) | owners.of_tensors(outputs)
    for at in used & (before.keys() - ours):
        if arena.blocks[at] <= FOLLOWED_BYTES:
            used = used | owners.of_words(read(at, arena.blocks[at]))
    blocks = []
    for at in sorted(used | ours):
        role: Role = "input" if at in ours else "held" if at in before else "fresh"
        blocks.append(Block(at=at, size=arena.blocks[at], role=role))
    images_used = {node.image for node in nodes if isinstance(node, Kernel)}
    layout = Layout(
        arch=arch,
        nodes=nodes,
        edges=edges,
        blocks=tuple(blocks),
        inputs=tuple(_tensor(name, tensor) for name, tensor in inputs.items()),
        outputs=tuple(_tensor(str(number), tensor) for number, tensor in enumerate(outputs)),
    )
    held = {block.at: read(block.at, block.size) for block in blocks if block.role == "held"}
    return checked(Program(layout, {key: images.used[key] for key in images_used}, held))


class Owners:
    """Which block an address lies in."""

    def __init__(self, blocks: Mapping[int, int]) -> None:
        self._starts = sorted(blocks)
        self._blocks = blocks

    def of(self, address: int) -> set[int]:
        """The block's own address; nothing where there is none."""
        place = bisect_right(self._starts, address)
        if not place:
            return set()
        at = self._starts[place - 1]
        return {at} if address < at + max(self._blocks[at], 1) else set()

    def of_tensors(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """The blocks in which tensors lie."""
        return {at for tensor in tensors if tensor.numel() for at in self.of(tensor.data_ptr())}

    def of_nodes(self, nodes: Iterable[AnyNode]) -> set[int]:
        """The blocks that nodes name by their addresses: a kernel by any 8 bytes of its parameters."""
        found: set[int] = set()
        for node in nodes:
            match node:
                case Kernel():
                    for value in node.parameters:
                        found |= self.of_words(value)
                case Memset():
                    found |= self.of(node.at)
                case Copy():
                    found |= self.of(node.to) | self.of(node.source)
        return found

    def of_words(self, data: bytes) -> set[int]:
        """The blocks that aligned words of 8 bytes lead to."""
        words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) // 8 * 8])
        return {at for word in words if BASE <= word < BASE + SPAN for at in self.of(word)}


def read(at: int, size: int) -> bytes:
    """Bytes of the GPU's memory."""
    buffer = bytearray(size)
    if size:
        ok(cuda.cuMemcpyDtoH(buffer, cuda.CUdeviceptr(at), size), "reading what is held")
    return bytes(buffer)


def _tensor(name: str, tensor: torch.Tensor) -> Tensor:
    if tensor.device.type != "cuda":
        raise NotCapturable(f"{name} is on {tensor.device}")
    return Tensor(name=name, at=tensor.data_ptr() if tensor.numel() else BASE, spec=spec_of(tensor))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]

"""A GPU that is simulated in Python, as far as the replayer needs one: memory, a stream that is always done, two
events, and programs whose kernels store a number. Times are what a test says."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.gpu.driver import DriverError
from tilewright.programs.model import Copy, Kernel, Memset, Program
from tilewright.replay import process
from tilewright.replay.device import Hang
from tilewright.wire.channel import Channel, ChannelError
from tilewright.wire.messages import Link, ReplayerReady, ToReplayer

GIB = 1 << 30


def digest(outputs: Sequence[bytes], keys: Sequence[int]) -> int:
    """Stands for the GPU's digest: of equal outputs equal."""
    parts = [data + key.to_bytes(16, "little", signed=True) for data, key in zip(outputs, keys, strict=True)]
    return int.from_bytes(hashlib.sha256(b"|".join(parts)).digest()[:8], "little") | 1


class Memory:
    """Bytes by address; what nobody mapped or allocated cannot be touched."""

    def __init__(self) -> None:
        self.areas: dict[int, bytearray] = {}

    def find(self, at: int, size: int) -> tuple[bytearray, int]:
        for start, data in self.areas.items():
            if start <= at and at + size <= start + len(data):
                return data, at - start
        raise DriverError("CUDA_ERROR_ILLEGAL_ADDRESS", f"touching {size} bytes at {at:#x}")

    def read(self, at: int, size: int) -> bytes:
        data, start = self.find(at, size)
        return bytes(data[start : start + size])

    def write(self, at: int, data: bytes) -> None:
        where, start = self.find(at, len(data))
        where[start : start + len(data)] = data


class Pages:
    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._mapped: list[int] = []

    def map(self, at: int, size: int) -> None:
        assert not any(at < start + len(data) and start < at + size for start, data in self._memory.areas.items())
        self._memory.areas[at] = bytearray(size)
        self._mapped.append(at)

    def clear(self) -> None:
        for at in self._mapped:
            del self._memory.areas[at]
        self._mapped.clear()


class Context:
    arch, uuid, driver = "sm_90", "GPU-simulated", "13.0"

    def __init__(self, free: int) -> None:
        self._free = free

    def free_bytes(self) -> int:
        return self._free


@dataclass
class Graph:
    """A loaded program: what it does to memory, and how long that takes."""

    run: Callable[[Memory], None]
    us: float
    closed: bool = False


@dataclass
class Loaded:
    graph: Graph
    libraries: list[Any] = field(default_factory=list)
    variables: list[tuple[int, int]] = field(default_factory=list)

    def close(self) -> None:
        self.graph.closed = True


class Device:
    """Stands for `tilewright.replay.device.Device`. `log` lists what was done, in order."""

    def __init__(self, free: int = 80 * GIB) -> None:
        self.memory = Memory()
        self.context, self.pages, self.stream = Context(free), Pages(self.memory), None
        self.log: list[str] = []
        self.empty = Graph(lambda memory: None, 2.0)
        self._next, self._us = 1 << 20, 0.0

    def allocate(self, size: int) -> int:
        at, self._next = self._next, self._next + max(size, 1)
        self.memory.areas[at] = bytearray(max(size, 1))
        return at

    def free(self, at: int) -> None:
        del self.memory.areas[at]

    def write(self, at: int, data: bytes | bytearray | memoryview) -> None:
        self.memory.write(at, bytes(data))

    def read(self, at: int, into: bytearray | memoryview) -> None:
        into[:] = self.memory.read(at, len(into))

    def copy(self, to: int, source: int, size: int) -> None:
        self.log.append(f"copy {to:#x}")
        self.memory.write(to, self.memory.read(source, size))

    def poison(self, at: int, size: int) -> None:
        self.log.append(f"poison {at:#x} {size}")
        self.memory.write(at, b"\xff" * size)

    def scrub(self) -> None:
        self.log.append("scrub")

    def unmark(self) -> None:
        self.log.append("unmark")

    def flush(self) -> None:
        self.log.append("flush")

    def digest_of(self, areas: Sequence[tuple[int, int, int]], limit_s: float) -> int:
        return digest([self.memory.read(at, size) for at, size, _ in areas], [key for *_, key in areas])

    def probe(self) -> None:
        self.log.append("probe")

    def probed_mhz(self) -> float:
        return 1980.0

    def idle_mhz(self) -> float:
        return 1980.0

    def wait(self, deadline: float) -> None:
        pass

    def mark(self, end: bool) -> None:
        self.log.append("end" if end else "start")

    def launch(self, graph: Graph) -> None:
        assert not graph.closed
        self.log.append("launch")
        if graph.us < 0:
            raise Hang("the GPU was not done in time")
        graph.run(self.memory)
        self._us = graph.us
        until = time.perf_counter() + graph.us / 1e6  # by the wall clock, too
        while time.perf_counter() < until:
            pass

    def marked_us(self) -> float:
        return self._us


def load(program: Program, context: Context, stream: None) -> Loaded:
    """Stands for `tilewright.replay.load.load`. A kernel takes as many microseconds as the number that it stores; below
    zero, it hangs."""
    us = 2.0
    for node in program.layout.nodes:
        us += int.from_bytes(node.parameters[1], "little", signed=True) if isinstance(node, Kernel) else 1.0

    def run(memory: Memory) -> None:
        for node in program.layout.nodes:
            match node:
                case Kernel():
                    at, number = node.parameters
                    memory.write(int.from_bytes(at, "little"), number)
                case Memset():
                    memory.write(node.at, node.value.to_bytes(node.element, "little") * node.width)
                case Copy():
                    memory.write(node.to, memory.read(node.source, node.width))

    return Loaded(Graph(run, us))


class Child:
    """Stands for a process: a thread that serves, as `process.main` does without its own confinement and GPU."""

    def __init__(self, free: int, recorder: Any = None) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._theirs = theirs
        self._device: Any = Device(free)
        self._recorder = recorder
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with self._theirs:
            link: Link[ToReplayer] = Link(Channel(self._theirs, takes_memory=True), ToReplayer)
            link.send(ReplayerReady(gpu="GPU-simulated", arch="sm_90", driver="13.0", isolation={}))
            try:
                process.serve(link, process.Replayer(self._device, self._recorder))
            except ChannelError:
                pass

    def kill(self) -> None:
        self.channel.close()
        self._thread.join(5)

    def exit_reason(self) -> str:
        return "exited with status 0"

    def output(self) -> str:
        return ""

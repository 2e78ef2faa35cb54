"""One call of a program, between clocks.

Off the clocks: all memory of both arms is poisoned, what the arm holds is put back, its images' variables among it, and
shared memory is overwritten.
Then the wall clock starts; the inputs are written, twice the L2 is read, an event, the program, an event, and a digest
of the outputs under a key that was drawn a moment ago. The wall clock stops when the digest reaches the host.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.gpu.addresses import rounded
from tilewright.programs.digests import key_of, output_words
from tilewright.programs.model import Program
from tilewright.replay.device import Batch, Device
from tilewright.replay.load import Loaded, joined


class Area(NamedTuple):
    """Memory at a planned address, and a copy of what belongs there."""

    at: int
    copy: int
    size: int


@dataclass
class Arm:
    """A program that is ready: loaded, with copies of what it holds and of its inputs by draw."""

    program: Program
    loaded: Loaded
    held: list[Area]
    draws: list[list[Area]]
    variables: Sequence[Batch] = ()
    """What puts back what its images hold."""

    @property
    def outputs(self) -> list[tuple[int, int]]:
        """Address and bytes of the whole words of each output."""
        return output_words(self.program)


class Tampered(Exception):
    """A call whose stamps or digest cannot be: the program changed what is the replayer's."""


class Call(NamedTuple):
    """What one call took, in microseconds, the digest of its outputs under its key, and that under a key which other
    calls share: equal for equal outputs."""

    events: float
    wall: float
    key: int
    digest: int
    shared: int


def mapped(programs: Sequence[Program]) -> list[tuple[int, int]]:
    """Address and bytes of the pages that these programs need together."""
    return joined([(block.at, rounded(block.size)) for program in programs for block in program.layout.blocks])


def call(
    device: Device,
    arm: Arm,
    graph: object,
    draw: int,
    poisoned: Sequence[tuple[int, int]],
    limit_s: float,
    shared_key: int = 0,
) -> Call:
    """Run `graph`, the arm's own or an empty one, on the arm's memory. Raises `Hang`, `DriverError`, `Tampered`."""
    for at, size in poisoned:
        device.poison(at, size)
    for area in arm.held:  # afterwards: what one arm holds can lie where the other one writes
        device.copy(area.at, area.copy, area.size)
    for batch in arm.variables:
        device.copy_all(batch)
    device.scrub()
    device.wait(time.monotonic() + limit_s)
    key = secrets.randbits(64)
    outputs, again = (
        [(at, size, key_of(one, number)) for number, (at, size) in enumerate(arm.outputs)] for one in (key, shared_key)
    )
    inputs = arm.draws[draw]
    device.clear_word()
    began = time.perf_counter_ns()
    for area in inputs:
        device.copy(area.at, area.copy, area.size)
    device.flush()
    device.mark(end=False)
    device.launch(graph)
    device.mark(end=True)
    word = _digest(device, outputs, limit_s)
    wall = time.perf_counter_ns() - began
    device.wait(time.monotonic() + limit_s)
    device.clear_word()
    if _digest(device, outputs, limit_s) != word:  # the GPU is at rest now: who stopped the clock early is found out
        raise Tampered("the digest that stopped the clock is not that of the outputs")
    device.clear_word()
    shared = _digest(device, again, limit_s)
    device.wait(time.monotonic() + limit_s)
    events = device.marked_us()
    if not 0 < events < 1e9:
        raise Tampered(f"by its events the program took {events} us")
    return Call(events, wall / 1000, key, word, shared)


def _digest(device: Device, outputs: Sequence[tuple[int, int, int]], limit_s: float) -> int:
    """What the host's word says of outputs: address, bytes and key of each. Raises `Hang`, `DriverError`."""
    for at, size, key in outputs:
        device.add_digest(at, size, key)
    device.publish()
    return device.await_word(time.monotonic() + limit_s)

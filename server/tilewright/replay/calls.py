"""One call of a program, between clocks.

Off the clocks: all memory of all arms is poisoned, what the arm holds is put back, shared memory is overwritten, marks
on lines of the L2 are taken away, and the GPU rests, as long before each arm of a round.
Then the wall clock starts; the inputs are written, twice the L2 is read, an event, the program, an event, and a keyed
digest of the outputs. The wall clock stops when the digest reaches the host. Then the SM clock is measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.gpu.addresses import rounded
from tilewright.programs.digests import key_of, output_words
from tilewright.programs.model import Program
from tilewright.replay.device import Device
from tilewright.replay.load import Loaded, joined

SPUN_S = 100e-6
"""The end of a pause, which the host spins: after a sleep, its own clock is slow at first."""


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

    @property
    def outputs(self) -> list[tuple[int, int]]:
        """Address and bytes of the whole words of each output."""
        return output_words(self.program)


class Tampered(Exception):
    """A call whose time stamps cannot be: the program changed what is the replayer's."""


class Call(NamedTuple):
    """What one call took, in microseconds, the digest of its outputs, and the SM clock behind it, in MHz."""

    events: float
    wall: float
    digest: int
    mhz: float


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
    key: int = 0,
    pause_s: float = 0.0,
) -> Call:
    """Run `graph`, the arm's own or an empty one, on the arm's memory. Raises `Hang`, `DriverError`, `Tampered`."""
    for at, size in poisoned:
        device.poison(at, size)
    for area in arm.held:  # afterwards: what one arm holds can lie where the other one writes
        device.copy(area.at, area.copy, area.size)
    device.scrub()
    device.unmark()
    device.wait(time.monotonic() + limit_s)
    rest(pause_s)
    outputs = [(at, size, key_of(key, number)) for number, (at, size) in enumerate(arm.outputs)]
    inputs = arm.draws[draw]
    began = time.perf_counter_ns()
    for area in inputs:
        device.copy(area.at, area.copy, area.size)
    device.flush()
    device.mark(end=False)
    device.launch(graph)
    device.mark(end=True)
    word = device.digest_of(outputs, limit_s)
    wall = time.perf_counter_ns() - began
    device.probe()
    device.wait(time.monotonic() + limit_s)
    events = device.marked_us()
    if not 0 < events < 1e9:
        raise Tampered(f"by its events the program took {events} us")
    return Call(events, wall / 1000, word, device.probed_mhz())


def rest(pause_s: float) -> None:
    """Let so many seconds pass."""
    until = time.perf_counter() + pause_s
    if pause_s > SPUN_S:
        time.sleep(pause_s - SPUN_S)
    while time.perf_counter() < until:
        pass

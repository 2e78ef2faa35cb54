"""Rounds: both arms and an empty program in turns, on new pages, in an order that nobody can foresee.

Most of the spread of a kernel's time comes from the pages that its data lies on (measured: 0.31 us of 4.2 us with pages
of its own, 0.012 us with pages that both arms share). So the arms share them, and a round is what an interval counts.

Where its code lies can make one of two equal programs 0.07 us faster for a whole round. A driver gives memory out again
in an order of its own: arms that are loaded in turns may lie in the same two places in each round. So a coin decides
which arm is loaded first. Whatever the driver does, each place is as likely for one arm as for the other.
"""

from __future__ import annotations

import contextlib
import random
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.gpu.driver import DriverError
from tilewright.programs.digests import in_room
from tilewright.programs.model import Program, Tensor
from tilewright.replay.calls import Area, Arm, Call, call, mapped
from tilewright.replay.device import BATCH, Batch, Device, Hang
from tilewright.replay.load import load

EMPTY = 2
"""In the place of an arm's number: a program that does nothing."""
WARM = 3
"""Calls of each before those that count: a first launch of a module, or of a larger grid, is slower once."""
PART_BYTES = 64 << 10
"""Of a variable, for a block of the kernel that puts them back."""
SPARE_BYTES = 256 << 20
"""Of the GPU's memory that a round leaves free."""


Place = tuple[int, int]
"""An arm's number and a draw's."""


class Turn(NamedTuple):
    arm: int
    draw: int
    counts: bool


def turns(pairs: int, draws: int, source: random.Random) -> list[Turn]:
    """The calls of a round. In each pair both arms and the empty program run, in random order. The arms are on
    different draws, if there are several: a program could copy what the other left."""
    found = []
    for pair in range(-WARM, pairs):
        members = [Turn(0, pair % draws, pair >= 0), Turn(1, (pair + 1) % draws, pair >= 0), Turn(EMPTY, 0, pair >= 0)]
        source.shuffle(members)
        found += members
    return found


@dataclass
class Measured:
    """The calls of a round: of arm 0, arm 1 and the empty program; by arm and draw the call whose outputs were written
    down, and the digests under the shared key, one if all calls gave the same."""

    calls: list[list[Call]] = field(default_factory=lambda: [[], [], []])
    copied: dict[Place, Call] = field(default_factory=dict)
    digests: dict[Place, set[int]] = field(default_factory=dict)


class OutOfMemory(Exception):
    """Both arms do not fit on the GPU together."""


class Blamed(Exception):
    """An arm did not run to its end; `cause` says why. It may not be its own fault: see `RunAlone`."""

    def __init__(self, arm: int | None, cause: Exception) -> None:
        super().__init__(str(cause))
        self.arm = arm
        self.cause = cause


def needed_bytes(programs: Sequence[Program]) -> int:
    """Bytes of the GPU's memory that a round of these programs takes."""
    held = sum(len(data) for program in programs for data in program.held.values())
    return sum(size for _, size in mapped(programs)) + held


@contextlib.contextmanager
def laid_out(device: Device, programs: Sequence[Program], draws: Sequence[Sequence[int]]) -> Iterator[list[Arm]]:
    """Both programs on new pages. `draws`: where the contents of each input lie, by draw, which both arms share. Raises
    `OutOfMemory`, `Blamed`."""
    device.pages.clear()
    needed, free = needed_bytes(programs) + SPARE_BYTES, device.context.free_bytes()
    if needed > free:
        raise OutOfMemory(f"it takes {needed >> 20} MiB of the GPU's memory, of which {free >> 20} MiB are free")
    for at, size in mapped(programs):
        device.pages.map(at, size)
    arms: dict[int, Arm] = {}
    taken: list[int] = []
    hangs = False
    try:
        for arm in random.SystemRandom().sample(range(len(programs)), len(programs)):
            try:
                arms[arm] = _ready(device, programs[arm], draws, taken)
            except Exception as error:
                raise Blamed(arm, error) from None
        yield [arms[number] for number in sorted(arms)]
    except Blamed as blamed:
        hangs = isinstance(blamed.cause, Hang)
        raise
    finally:
        if not hangs:  # the driver gives nothing back before the GPU is done; the process ends
            with contextlib.suppress(DriverError):  # after a fatal error, too
                for one in arms.values():
                    one.loaded.close()
                for at in taken:
                    device.free(at)


def _ready(device: Device, program: Program, draws: Sequence[Sequence[int]], taken: list[int]) -> Arm:
    loaded = load(program, device.context, device.stream)
    try:
        held = []
        for at, data in program.held.items():
            held.append(Area(at, _copy(device, len(data), taken), len(data)))
            device.write(held[-1].copy, data)
        variables = _variables(device, loaded.variables, taken)
    except BaseException:
        loaded.close()
        raise
    inputs: Sequence[Tensor] = program.layout.inputs
    areas = [[Area(one.at, copy, one.size) for one, copy in zip(inputs, draw, strict=True)] for draw in draws]
    return Arm(program, loaded, held, areas, variables)


def _variables(device: Device, variables: Sequence[tuple[int, int]], taken: list[int]) -> list[Batch]:
    """What puts back what variables, of address and bytes, hold now. The driver saves each, and knows its size."""
    parts = list[Area]()
    kept = _copy(device, sum(size for _, size in variables), taken) if variables else 0
    for at, size in variables:
        device.copy(kept, at, size)
        parts += [Area(at + start, kept + start, min(PART_BYTES, size - start)) for start in range(0, size, PART_BYTES)]
        kept += size
    return [Batch(parts[start : start + BATCH]) for start in range(0, len(parts), BATCH)]


def _copy(device: Device, size: int, taken: list[int]) -> int:
    """The address of new memory, which the round gives back."""
    taken.append(device.allocate(size))
    return taken[-1]


def run_round(
    device: Device,
    programs: Sequence[Program],
    draws: Sequence[Sequence[int]],
    pairs: int,
    rooms: Mapping[Place, memoryview],
    limit_s: float,
    shared_key: int = 0,
) -> Measured:
    """One round. For each of the `rooms`, the outputs of one call are written there. Raises `OutOfMemory`, `Blamed`."""
    poisoned, found = mapped(programs), Measured()
    with laid_out(device, programs, draws) as arms:
        order = turns(pairs, len(draws), random.Random(secrets.randbits(64)))
        left = Counter((turn.arm, turn.draw) for turn in order if turn.counts)
        for turn in order:
            arm = arms[0] if turn.arm == EMPTY else arms[turn.arm]
            graph = device.empty if turn.arm == EMPTY else arm.loaded.graph
            try:
                made = call(device, arm, graph, turn.draw, poisoned, limit_s, shared_key)
            except Exception as error:
                raise Blamed(None if turn.arm == EMPTY else turn.arm, error) from None
            if not turn.counts:
                continue
            found.calls[turn.arm].append(made)
            place = turn.arm, turn.draw
            if turn.arm != EMPTY:
                found.digests.setdefault(place, set()).add(made.shared)
            if place in rooms and place not in found.copied:
                if not secrets.randbelow(left[place]):  # drawn now, after the call: each is as likely as any other
                    found.copied[place] = made
                    read_outputs(device, arm, rooms[place])
                left[place] -= 1
    return found


def run_alone(
    device: Device,
    program: Program,
    draws: Sequence[Sequence[int]],
    draw: int,
    calls: int,
    limit_s: float,
    room: memoryview,
) -> list[Call]:
    """Calls of one program, and the outputs of the last one in the `room`. Raises `OutOfMemory`, `Blamed` (arm 0)."""
    poisoned = mapped([program])
    with laid_out(device, [program], draws) as (arm,):
        try:
            made = [call(device, arm, arm.loaded.graph, draw, poisoned, limit_s) for _ in range(calls)]
            read_outputs(device, arm, room)
            return made
        except Exception as error:
            raise Blamed(0, error) from None


def read_outputs(device: Device, arm: Arm, room: memoryview) -> None:
    """Copy the whole words of an arm's outputs to the host, one after the other."""
    for (at, _), part in zip(arm.outputs, in_room(arm.program, room), strict=True):
        device.read(at, part)

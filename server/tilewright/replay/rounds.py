"""Rounds: all arms and an empty program in turns, on new pages, in an order that nobody can foresee.

Most of the spread of a kernel's time comes from the pages that its data lies on (measured: 0.31 us of 4.2 us with pages
of its own, 0.012 us with pages that all arms share). So the arms share them, and a round is what an interval counts.

Where its code lies can make one of two equal programs 0.07 us faster for a whole round. A driver gives memory out again
in an order of its own: arms that are loaded in turns may lie in the same places in each round. So the order in which
arms are loaded is drawn. Whatever the driver does, each place is as likely for one arm as for another.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.gpu.driver import DriverError
from tilewright.programs.digests import in_room, key_of, widened
from tilewright.programs.model import Program, ProgramError, Tensor
from tilewright.replay.calls import Area, Arm, Call, call, mapped
from tilewright.replay.device import Device, Hang
from tilewright.replay.load import load

WARM = 3
"""Calls of each before those that count: a first launch of a module, or of a larger grid, is slower once."""
SPARE_BYTES = 256 << 20
"""Of the GPU's memory that a round leaves free."""

Place = tuple[int, int]
"""An arm's number and a draw's."""


class Turn(NamedTuple):
    """A call in a round. `arm`: one more than the last arm's number stands for the empty program."""

    arm: int
    draw: int
    counts: bool


def turns(arms: int, pairs: int, draws: int, source: random.Random) -> list[Turn]:
    """The calls of a round. All arms and the empty program run, in random order, so many times. Neighbours among the
    arms are on different draws, if there are several: a program could copy what the other left."""
    found = []
    for pair in range(-WARM, pairs):
        members = [Turn(arm, (pair + arm) % draws, pair >= 0) for arm in range(arms)]
        members.append(Turn(arms, 0, pair >= 0))
        source.shuffle(members)
        found += members
    return found


@dataclass
class Measured:
    """The calls of a round: of each arm and, last, of the empty program; by arm and draw the digests, one if all calls
    gave the same."""

    calls: list[list[Call]]
    digests: dict[Place, set[int]]


class OutOfMemory(Exception):
    """The arms do not fit on the GPU together."""


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
def laid_out(
    device: Device, programs: Sequence[Program], draws: Sequence[Sequence[int]], limit_s: float
) -> Iterator[list[Arm]]:
    """All programs on new pages. `draws`: where the contents of each input lie, by draw, which the arms share. A
    program that has changed the variables of its images by the end is blamed: it could keep results there. Raises
    `OutOfMemory`, `Blamed`."""
    device.pages.clear()
    needed, free = needed_bytes(programs) + SPARE_BYTES, device.context.free_bytes()
    if needed > free:
        raise OutOfMemory(f"it takes {needed >> 20} MiB of the GPU's memory, of which {free >> 20} MiB are free")
    for at, size in mapped(programs):
        device.pages.map(at, size)
    arms: dict[int, Arm] = {}
    variables: dict[int, int] = {}
    key = secrets.randbits(64)
    taken: list[int] = []
    hangs = False
    try:
        for arm in random.SystemRandom().sample(range(len(programs)), len(programs)):
            try:
                arms[arm] = _ready(device, programs[arm], draws, taken)
                variables[arm] = _digest_of_variables(device, arms[arm], key, limit_s)
            except Exception as error:
                raise Blamed(arm, error) from None
        yield [arms[number] for number in sorted(arms)]
        for arm, digest in variables.items():
            if _digest_of_variables(device, arms[arm], key, limit_s) != digest:
                raise Blamed(arm, ProgramError("it keeps results in its own variables"))
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
            taken.append(device.allocate(len(data)))
            held.append(Area(at, taken[-1], len(data)))
            device.write(taken[-1], data)
    except BaseException:
        loaded.close()
        raise
    inputs: Sequence[Tensor] = program.layout.inputs
    areas = [[Area(one.at, copy, one.size) for one, copy in zip(inputs, draw, strict=True)] for draw in draws]
    return Arm(program, loaded, held, areas)


def _digest_of_variables(device: Device, arm: Arm, key: int, limit_s: float) -> int:
    areas = [(*widened(at, size), key_of(key, number)) for number, (at, size) in enumerate(arm.loaded.variables)]
    return device.digest_of(areas, limit_s) if areas else 0


def run_round(
    device: Device,
    programs: Sequence[Program],
    draws: Sequence[Sequence[int]],
    pairs: int,
    rooms: Mapping[Place, memoryview],
    limit_s: float,
    key: int = 0,
    pause_s: float = 0.0,
) -> Measured:
    """One round. For each of the `rooms`, the outputs of one call are written there, if there are as many pairs as
    draws. Before each call of an arm that counts, the GPU rests for `pause_s`. Raises `OutOfMemory`, `Blamed`."""
    poisoned, empty = mapped(programs), len(programs)
    found = Measured([[] for _ in range(empty + 1)], {})
    with laid_out(device, programs, draws, limit_s) as arms:
        order = turns(empty, pairs, len(draws), random.Random(secrets.randbits(64)))
        left = Counter((turn.arm, turn.draw) for turn in order if turn.counts)
        for turn in order:
            arm = arms[0] if turn.arm == empty else arms[turn.arm]
            graph = device.empty if turn.arm == empty else arm.loaded.graph
            rest_s = pause_s if turn.counts and turn.arm != empty else 0.0
            try:
                made = call(device, arm, graph, turn.draw, poisoned, limit_s, key, rest_s)
            except Exception as error:
                raise Blamed(None if turn.arm == empty else turn.arm, error) from None
            if not turn.counts:
                continue
            found.calls[turn.arm].append(made)
            place = turn.arm, turn.draw
            if turn.arm != empty:
                found.digests.setdefault(place, set()).add(made.digest)
            if place in rooms and left[place]:
                chosen = not secrets.randbelow(left[place])  # drawn now, after the call: each is as likely as any other
                left[place] = 0 if chosen else left[place] - 1
                if chosen:
                    read_outputs(device, arm, rooms[place])
    return found


def run_alone(
    device: Device,
    program: Program,
    draws: Sequence[Sequence[int]],
    draw: int,
    calls: int,
    limit_s: float,
    room: memoryview,
    watch: Callable[[Callable[[], list[Call]]], list[Call]] = lambda run: run(),
    pause_s: float = 0.0,
) -> list[Call]:
    """Calls of one program, each after a rest of `pause_s`, and the outputs of the last one in the `room`. `watch` has
    them run. Raises `OutOfMemory`, `Blamed` (arm 0)."""
    poisoned = mapped([program])

    def once(arm: Arm) -> Call:
        return call(device, arm, arm.loaded.graph, draw, poisoned, limit_s, 0, pause_s)

    with laid_out(device, [program], draws, limit_s) as (arm,):
        try:
            made = watch(lambda: [once(arm) for _ in range(calls)])
            read_outputs(device, arm, room)
            return made
        except Exception as error:
            raise Blamed(0, error) from None


def run_blocks(
    device: Device,
    programs: Sequence[Program],
    draws: Sequence[Sequence[int]],
    blocks: Sequence[tuple[int, int]],
    limit_s: float,
) -> list[tuple[float, float]]:
    """Blocks of calls, one directly after the other: microseconds for a call of each block, and the SM clock behind it.
    `blocks`: the arm, and how many calls. Raises `OutOfMemory`, `Blamed`."""
    found = []
    with laid_out(device, programs, draws, limit_s) as arms:
        for number, calls in blocks:
            arm = arms[number]
            try:
                for area in (*arm.held, *arm.draws[0]):
                    device.copy(area.at, area.copy, area.size)
                device.mark(end=False)
                for _ in range(calls):
                    device.launch(arm.loaded.graph)
                device.mark(end=True)
                device.probe()
                device.wait(time.monotonic() + limit_s)
            except Exception as error:
                raise Blamed(number, error) from None
            found.append((device.marked_us() / calls, device.probed_mhz()))
    return found


def read_outputs(device: Device, arm: Arm, room: memoryview) -> None:
    """Copy the whole words of an arm's outputs to the host, one after the other."""
    for (at, _), part in zip(arm.outputs, in_room(arm.program, room), strict=True):
        device.read(at, part)

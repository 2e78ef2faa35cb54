"""Rounds on a simulated GPU: what is done between the clocks and outside them, and in which order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.made import OUT, W, X, copied, fill, program
from tests.unit.replay import simulated
from tilewright.gpu.addresses import BASE, GRAIN
from tilewright.programs.model import Block, Program
from tilewright.replay import calls, rounds
from tilewright.replay.calls import mapped
from tilewright.replay.load import joined
from tilewright.replay.rounds import (
    Blamed,
    Place,
    run_alone,
    run_round,
    turns,
)

ONE, OTHER = program([copied(), fill(OUT, 30)]), program([copied(), fill(OUT + 8, 10)])
CONTENTS = [bytes([draw]) * 1024 for draw in (1, 2)]


def device_with_draws(free: int = 80 * simulated.GIB) -> tuple[Any, list[list[int]]]:
    """A GPU that holds the contents of two draws, and where they lie."""
    device: Any = simulated.Device(free)
    draws = [[device.allocate(1024)] for _ in CONTENTS]
    for (at,), data in zip(draws, CONTENTS, strict=True):
        device.write(at, data)
    return device, draws


def rooms_of() -> dict[Place, memoryview]:
    """Memory for the output of each arm on each draw."""
    return {(arm, draw): memoryview(bytearray(1024)) for arm in (0, 1) for draw in range(len(CONTENTS))}


@pytest.fixture(autouse=True)
def simulated_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rounds, "load", simulated.load)
    yield


def test_a_round_gives_times_and_outputs() -> None:
    device, draws = device_with_draws()
    rooms = rooms_of()
    found = run_round(device, [ONE, OTHER], draws, 20, rooms, 1.0)
    assert [len(calls) for calls in found.calls] == [20, 20, 20]
    assert [{call.events for call in calls} for calls in found.calls] == [{33.0}, {13.0}, {2.0}]
    assert {call.mhz for calls in found.calls for call in calls} == {1980.0}
    for arm, draw in rooms:
        expected = bytearray(CONTENTS[draw])
        expected[8 * arm : 8 * arm + 4] = (30, 10)[arm].to_bytes(4, "little")
        assert rooms[arm, draw] == expected
    assert {place: len(digests) for place, digests in found.digests.items()} == {
        (arm, draw): 1 for arm in (0, 1) for draw in (0, 1)
    }


def test_a_call_that_gives_something_else_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    device, draws = device_with_draws()
    calls = [0]

    def load(program: Program, *_: Any) -> simulated.Loaded:
        def run(memory: simulated.Memory) -> None:
            calls[0] += 1
            memory.write(OUT, CONTENTS[0] if program is ONE or calls[0] != 33 else CONTENTS[1])

        return simulated.Loaded(simulated.Graph(run, 5.0))

    monkeypatch.setattr(rounds, "load", load)
    found = run_round(device, [ONE, OTHER], draws, 20, {}, 1.0, 77)
    seen = {arm: set().union(*(found.digests[arm, draw] for draw in (0, 1))) for arm in (0, 1)}
    first, second = (simulated.digest([contents], [77]) for contents in CONTENTS)
    assert seen[0] == {first}
    assert seen[1] <= {first, second}


def test_a_call_is_prepared_off_the_clock() -> None:
    device, draws = device_with_draws()
    run_alone(device, ONE, draws, 0, 1, 1.0, memoryview(bytearray(1024)))
    assert device.log == [
        f"poison {BASE:#x} {3 * GRAIN}", f"copy {W:#x}", "scrub", "unmark",
        f"copy {X:#x}", "flush", "start", "launch", "end", "probe",
    ]  # fmt: skip


def test_what_the_other_arm_left_is_not_to_be_had() -> None:
    """Arm 1 writes nothing of its own: what arm 0 left in the output would be right, if it were still there."""
    device, draws = device_with_draws()
    nothing = program([fill(W, 1)])
    for _ in range(4):
        rooms = rooms_of()
        run_round(device, [ONE, nothing], draws, 5, rooms, 1.0)
        for draw in (0, 1):
            assert rooms[1, draw] == b"\xff" * 1024


def test_what_is_held_is_put_back_where_the_other_arm_writes() -> None:
    layout = ONE.layout
    blocks = (layout.blocks[0], Block(at=W, size=64, role="fresh"), layout.blocks[2])
    writer = Program(layout.model_copy(update={"blocks": blocks}), ONE.images, {})
    reader = program([copied(OUT, W, 64)], held=b"\x07" * 64)
    device, draws = device_with_draws()
    rooms = rooms_of()
    run_round(device, [writer, reader], draws, 5, rooms, 1.0)
    assert rooms[1, 0][:64] == b"\x07" * 64


def keeping(device: Any, what: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs from now on have a variable that holds "start---", and each call leaves something there."""
    place = device.allocate(8)

    def load(*_: Any) -> simulated.Loaded:
        device.write(place, b"start---")
        return simulated.Loaded(simulated.Graph(lambda memory: memory.write(place, what), 5.0), variables=[(place, 8)])

    monkeypatch.setattr(rounds, "load", load)


def test_a_program_that_keeps_something_in_its_variables_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    device, draws = device_with_draws()
    keeping(device, b"changed-", monkeypatch)
    with pytest.raises(Blamed, match="keeps results in its own variables") as blamed:
        run_round(device, [ONE], draws, 3, {}, 1.0)
    assert blamed.value.arm == 0


def test_variables_that_change_places_are_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A word counts with its place and its variable: under keys that follow each other, two could stand for another."""
    device, draws = device_with_draws()
    first, second = device.allocate(16), device.allocate(16)

    def load(*_: Any) -> simulated.Loaded:
        device.write(first, b"a" * 8 + b"b" * 8)
        device.write(second, b"c" * 8 + b"d" * 8)

        def run(memory: simulated.Memory) -> None:
            memory.write(first, b"a" * 8 + b"c" * 8)
            memory.write(second, b"b" * 8 + b"d" * 8)

        return simulated.Loaded(simulated.Graph(run, 5.0), variables=[(first, 16), (second, 16)])

    monkeypatch.setattr(rounds, "load", load)
    with pytest.raises(Blamed, match="keeps results in its own variables"):
        run_round(device, [ONE], draws, 3, {}, 1.0)


def test_a_program_that_leaves_its_variables_as_they_were_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    device, draws = device_with_draws()
    keeping(device, b"start---", monkeypatch)
    assert len(run_round(device, [ONE], draws, 3, {}, 1.0).calls[0]) == 3


@pytest.mark.parametrize("next_place", [0, -1], ids=["the one that was free first", "the one that was free last"])
def test_each_place_is_as_likely_for_one_arm_as_for_the_other(monkeypatch: pytest.MonkeyPatch, next_place: int) -> None:
    """Whichever place a driver gives out again."""
    device, draws = device_with_draws()
    free, taken = ["near", "far"], list[tuple[bool, str]]()

    def load(program: Program, *_: Any) -> simulated.Loaded:
        place = free.pop(next_place)
        taken.append((program is ONE, place))
        made = simulated.Loaded(simulated.Graph(lambda _: None, 5.0))
        monkeypatch.setattr(made, "close", lambda: free.append(place))
        return made

    monkeypatch.setattr(rounds, "load", load)
    count = 200
    for _ in range(count):
        with rounds.laid_out(device, [ONE, OTHER], draws, 1.0):
            pass
    near = taken.count((True, "near"))
    assert count / 4 < near < 3 * count / 4
    assert near == taken.count((False, "far"))


def test_everything_is_given_back() -> None:
    device, draws = device_with_draws()
    for _ in range(4):
        run_round(device, [ONE, OTHER], draws, 2, {}, 1.0)
    assert set(device.memory.areas) == {at for at, _ in mapped([ONE, OTHER])} | {at for (at,) in draws}


def test_many_arms_share_a_round() -> None:
    device, draws = device_with_draws()
    programs = [program([copied(), fill(OUT, us)]) for us in (10, 20, 30, 40)]
    found = run_round(device, programs, draws, 6, {}, 1.0)
    assert [{call.events for call in calls} for calls in found.calls] == [{13.0}, {23.0}, {33.0}, {43.0}, {2.0}]


@pytest.mark.parametrize("pause_s", [0.0, 0.002])
def test_the_gpu_rests_before_each_call_of_an_arm(monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    device, draws = device_with_draws()
    rests = list[float]()
    monkeypatch.setattr(calls, "rest", rests.append)
    run_round(device, [ONE, OTHER], draws, 4, {}, 1.0, pause_s=pause_s)
    assert sorted(rests) == sorted([0.0] * 13 + [pause_s] * 8)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 5), st.integers(0, 2**32))
def test_the_turns_of_a_round(arms: int, pairs: int, draws: int, seed: int) -> None:
    found = turns(arms, pairs, draws, random.Random(seed))
    assert Counter(turn.arm for turn in found if turn.counts) == dict.fromkeys(range(arms + 1), pairs)
    assert sum(not turn.counts for turn in found) == 3 * (arms + 1)  # the first launches of each are slower
    for place in range(0, len(found), arms + 1):
        members = found[place : place + arms + 1]
        assert sorted(turn.arm for turn in members) == [*range(arms + 1)]
        drawn = {turn.arm: turn.draw for turn in members}
        assert draws == 1 or all(drawn[arm] != drawn[arm + 1] for arm in range(arms - 1))
        assert max(drawn.values()) < draws
    if pairs == 40 and arms > 1:
        width = arms + 1
        orders = {tuple(turn.arm for turn in found[place : place + width]) for place in range(0, len(found), width)}
        assert len(orders) > 3


def test_areas_are_joined() -> None:
    assert joined([(5, 2), (0, 3), (2, 4), (20, 1)]) == [(0, 7), (20, 1)]
    assert mapped([ONE]) == [(BASE, 3 * GRAIN)]

"""Device programs that cheat, on a GPU: what each clock says of them, and what stops them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.gpu.replaying.hostile import program
from tilewright.programs.model import Program
from tilewright.referee.compare import compare
from tilewright.referee.replayer import Fault, Replayer

pytestmark = pytest.mark.gpu
WORDS, SMALL = 1 << 22, 1 << 18
SLOTS, SLOT_WORDS = 0x2_0480_0000, (2 << 20) // 8
"""Where the driver keeps the stamps of events, seen on an H100 and an H200."""


def draws(count: int, words: int = WORDS) -> list[list[bytes]]:
    source = np.random.default_rng(3)
    return [[source.integers(0, 1 << 30, words, np.int32).tobytes()] for _ in range(count)]


def right(data: bytes) -> bytes:
    return (np.frombuffer(data, np.int32) * 2 + 1).tobytes()


@pytest.fixture(scope="module")
def arch(replayer: Replayer) -> str:
    return replayer.start().arch


@pytest.fixture(scope="module")
def honest(arch: str) -> Program:
    return program("honest", arch, WORDS, (0, 4))


def test_both_clocks_see_more_work(replayer: Replayer, arch: str, honest: Program) -> None:
    found = compare(replayer, honest, program("honest", arch, WORDS, (20_000, 4)), draws(2))
    print(found)
    assert found.measured is not None
    assert (found.verdict, found.measured.bounded) == ("slower", False)
    assert found.measured.wall_gain_us == pytest.approx(-20, abs=8)


def test_forged_stamps_deceive_the_events_and_not_the_wall_clock(
    replayer: Replayer, arch: str, honest: Program
) -> None:
    forger = program("forges_stamps", arch, WORDS, (5_000, 4), (SLOTS, 8), (SLOT_WORDS, 8), (20_000, 8))
    try:
        found = compare(replayer, honest, forger, draws(2))
    except Fault as fault:
        assert (fault.kind, fault.arm) == ("illegal-access", 1)
        pytest.skip("the stamps of events lie elsewhere here: the forger touched what is not mapped")
    print(found)
    assert found.measured is not None
    assert found.verdict != "faster"
    assert found.measured.wall_gain_us < 0


def test_what_the_other_version_left_is_poison(replayer: Replayer, arch: str, honest: Program) -> None:
    replayer.load([honest, program("leaves_it", arch, WORDS)], draws(2))
    _, copies = replayer.copied_round(6, 5.0)
    assert sorted((copy.arm, copy.draw) for copy in copies) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for copy in copies:
        wanted = b"\xff" * 4 * WORDS if copy.arm else right(draws(2)[copy.draw][0])
        assert [*map(bytes, copy.outputs)] == [wanted]


def test_a_result_that_is_remembered_is_not_replayed(replayer: Replayer, arch: str) -> None:
    """A variable of its image holds what it gave first."""
    replayer.load([program("honest", arch, SMALL, (0, 4)), program("remembers", arch, SMALL)], draws(3, SMALL))
    with pytest.raises(Fault, match="keeps results in its own variables") as fault:
        replayer.round(6, 5.0)
    assert (fault.value.kind, fault.value.arm) == ("refused", 1)


def test_a_program_that_never_ends_is_blamed_and_the_replayer_is_back(
    replayer: Replayer, arch: str, honest: Program
) -> None:
    replayer.load([honest, program("spins", arch, WORDS)], draws(1))
    with pytest.raises(Fault) as fault:
        replayer.round(4, 1.0)
    assert (fault.value.kind, fault.value.arm) == ("hang", 1)
    began = time.monotonic()
    replayer.start()
    print(f"back in {time.monotonic() - began:.2f} s")
    replayer.load([honest], draws(1))
    assert replayer.alone(0, 0, 1, 5.0)

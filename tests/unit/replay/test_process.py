"""The referee's side and the replayer's, with a channel between them and a simulated GPU."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.made import OUT, clear, copied, fill, program
from tests.unit.replay import simulated
from tilewright.programs.model import Program
from tilewright.referee import replayer as client
from tilewright.referee.compare import compare
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.replay import process, rounds
from tilewright.wire.channel import Channel, ChannelError
from tilewright.wire.messages import Link, ReplayerReady, RunRound, SetDraws, ToReplayer

FAST, SLOW, EDITED = (program([copied(), fill(OUT, us)]) for us in (20, 30, 21))
HANGS, READS_OUTSIDE = program([fill(OUT, 2**32 - 99)]), program([fill(4096, 3)])
DRAWS = [[bytes([draw]) * 1024] for draw in (1, 2)]


class Child:
    """Stands for a process: a thread that serves, as `process.main` does without its own confinement and GPU."""

    def __init__(self, free: int, recorder: Any = None) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._theirs = theirs
        self._device: Any = simulated.Device(free)
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


@pytest.fixture
def free() -> list[int]:
    """Bytes that are free on the simulated GPU."""
    return [80 * simulated.GIB]


@pytest.fixture
def replayer(monkeypatch: pytest.MonkeyPatch, free: list[int], tmp_path: Path) -> Iterator[Replayer]:
    monkeypatch.setattr(rounds, "load", simulated.load)
    monkeypatch.setattr(client, "spawned", lambda *_: Child(free[0]))
    with Replayer(tmp_path) as made:
        yield made
    assert [*tmp_path.iterdir()] == []


def test_programs_that_are_the_same_are_not_measured(replayer: Replayer) -> None:
    other = program([copied(), fill(OUT, 20)], held=b"\x05" * 64)
    assert str(compare(replayer, FAST, other)) == "the same program"
    assert replayer.starts == 0
    measured = compare(replayer, FAST, other, DRAWS, measure_same=True)
    assert (measured.verdict, measured.same, measured.equal_outputs) == ("inconclusive", True, True)


def test_a_fault_that_no_arm_shows_alone_is_nobodys(replayer: Replayer, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise rounds.Blamed(1, simulated.Hang("the GPU was not done in time"))

    monkeypatch.setattr(process, "run_round", failing)
    replayer.load([SLOW, FAST], DRAWS)
    with pytest.raises(Fault, match="no version does this when it runs alone") as fault:
        replayer.round(4, 1.0)
    assert fault.value.arm is None


def test_programs_of_other_inputs_or_another_gpu_are_refused(replayer: Replayer) -> None:
    layout = FAST.layout
    renamed = layout.inputs[0].model_copy(update={"name": "other"})
    other = Program(layout.model_copy(update={"inputs": (renamed,)}), FAST.images, FAST.held)
    with pytest.raises(Fault, match="other inputs"):
        replayer.load([FAST, other], DRAWS)
    elsewhere = Program(layout.model_copy(update={"arch": "sm_100", "nodes": (clear(),), "edges": ()}), {}, FAST.held)
    with pytest.raises(Fault, match="it is for sm_100, and the GPU is sm_90"):
        replayer.load([elsewhere], DRAWS)


@pytest.mark.parametrize("message", [RunRound(pairs=1, limit_s=1.0), SetDraws(draws=[[0]]), SetDraws(draws=[[5]])])
def test_requests_that_make_no_sense_end_the_replayer(replayer: Replayer, message: Any) -> None:
    if message == SetDraws(draws=[[0]]):
        replayer.load([FAST], DRAWS)
    with pytest.raises((ReplayerGone, Fault)):
        replayer._ask(message, process.Done, [b"x"], 5)
    replayer.load([FAST], DRAWS)
    assert replayer.starts == 2


def test_fewer_pairs_than_draws_fill_no_rooms(replayer: Replayer) -> None:
    replayer.load([FAST, SLOW], DRAWS)
    replayer.round(1, 1.0)
    with pytest.raises(Fault):
        replayer.copied_round(1, 1.0)

"""Workers of a race, which are processes here that hold no device: who is started, kept and ended, and who dies."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.evaluation import measurement
from tilewright.evaluation.pool import WorkerHandle
from tilewright.evaluation.racing import Heat, Stable, idle_at_most, race
from tilewright.evaluation.results import Raced, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.isolation.process import ChildProcess

GIB = 2**30
CODE = """
import os, socket, sys, time
from tilewright.wire.channel import Channel
channel = Channel(socket.socket(fileno=int(sys.argv[1])))
channel.send({"isolation": {}})
while True:
    message, _ = channel.receive()
    if message["op"] == sys.argv[2]:
        time.sleep(1000) if sys.argv[3] == "hangs" else os._exit(3)
    channel.send({"status": "passed", "ms": 1.0})
"""
FAULTS = {2: ("estimate", "hangs"), 3: ("estimate", "hangs"), 4: ("prepare", "dies"), 5: ("run", "dies")}


class Device(Heat):
    """A heat without a device: what the arms are asked is what a heat asks."""

    def __init__(self, arms: list[WorkerHandle], clock: measurement.Phases, others: list[WorkerHandle]) -> None:
        self._arms, self._clock, self.others, self._in_place = arms, clock, others, False
        self._task: Any = SimpleNamespace(file=SimpleNamespace(timeout_s=1.5))
        self._order = random.SystemRandom()

    def _block_of(self, case: Any, seeds: Any) -> Any:
        self._ask("inputs", sets=[])
        self._warm_up()

    def _prepare(self, block: Any) -> str:
        for arm in self._arms:
            arm.request("prepare", 1.5)
        return ""

    def _prove(self, block: Any, index: int) -> None:
        self._timed(block, index, [])

    def _timed(self, block: Any, index: int, kept: Any) -> Any:
        arm = self._arms[index]
        return (float(arm.request("run", 1.5)[0]["ms"]) / (1 + int(arm.label)), 0.0), {}


class Pool:
    """Stands in for the pool: it ends workers at once."""

    spares = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[int] = []
        self.ended: list[int] = []
        self.trimmed: list[int] = []
        self.settled = 0

    def load(self, numbers: list[int]) -> list[WorkerHandle]:
        return [self.start(number) for number in numbers]

    def start(self, number: int) -> WorkerHandle:
        self.started.append(number)
        folder = self.folder / str(len(self.started))
        folder.mkdir()

        def start(theirs: Any) -> Any:
            return subprocess.Popen(
                [sys.executable, "-c", CODE, str(theirs.fileno()), *FAULTS.get(number, ("", ""))],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                stdout=subprocess.PIPE,
            )

        worker = WorkerHandle(ChildProcess(start, folder), folder)
        worker.label = str(number)
        return worker

    def end_aside(self, workers: list[WorkerHandle]) -> None:
        self.ended += [int(worker.label) for worker in workers]
        for worker in workers:
            worker.close()

    def trim(self, count: int) -> None:
        self.trimmed.append(count)

    def refill(self) -> None: ...

    def settle(self) -> None:
        self.settled += 1


@pytest.fixture
def pool(tmp_path: Path) -> Pool:
    return Pool(tmp_path)


@pytest.fixture
def stable_of(pool: Pool) -> Iterator[Callable[[int], Stable]]:
    with contextlib.ExitStack() as stack:

        def made(configs: int) -> Stable:
            def bench(arms: Any, clock: Any, others: Any) -> Any:
                return contextlib.nullcontext(Device(arms, clock, others))

            stable = Stable(pool, configs, pool.load, bench, 24 * GIB)  # type: ignore[arg-type]
            return stack.enter_context(contextlib.closing(stable))

        yield made


def raced(stable: Stable, configs: int) -> list[Raced]:
    return [one for (one,) in race([{"N": 1}], configs, stable, Seeds("00" * 32), lambda _: None)]


def test_configs_that_hang_or_die_cost_only_themselves(pool: Pool, stable_of: Callable[[int], Stable]) -> None:
    found = raced(stable_of(6), 6)
    assert [one.status for one in found[:2]] == [Status.PASSED] * 2
    assert [one.status for one in found[2:]] == [Status.TIMEOUT, Status.TIMEOUT, Status.CRASHED, Status.CRASHED]
    assert "exited with status 3" in found[4].message
    assert pool.started.count(0) == pool.started.count(1) == 1  # they go on from heat to heat
    assert pool.settled == 2  # before the two heats that came to be timed
    assert pool.trimmed == [6 + pool.spares]


def test_whoever_dies_while_it_waits_is_started_anew(pool: Pool, stable_of: Callable[[int], Stable]) -> None:
    stable = stable_of(3)
    with stable.heat([0, 1]):
        pass
    with stable.heat([0, 6]) as heat:
        assert [worker.label for worker in heat.others]  # type: ignore[attr-defined] == ["1"]
    for number in (0, 1):
        os.kill(stable._here[number].pid, signal.SIGKILL)
        assert stable._here[number]._process.exit_reason() == "killed by SIGKILL"
    with stable.heat([0, 1, 6]) as heat:
        assert [worker.label for worker in heat._arms] == ["0", "1", "6"]
        assert len(heat.lanes({"N": 1}, Seeds("00" * 32), (4,))) == 3
    assert pool.started == [0, 1, 6, 0, 1]
    stable.end([6])
    stable.close()
    assert sorted(pool.ended) == [0, 0, 1, 1, 6]
    assert idle_at_most(24 * GIB) == stable.kept == 4

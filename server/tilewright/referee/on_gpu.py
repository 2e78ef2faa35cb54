"""What a referee of the `cuda` backend measures with: workers that capture, a replayer, and the pool of workers for
what cannot be replayed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import torch

from tilewright.evaluation.measurement import Bench, Phases
from tilewright.evaluation.ordinary import Ordinary
from tilewright.evaluation.pool import WorkerPool, cpus
from tilewright.evaluation.results import BenchmarkResult, Environment, Raced
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import spec_by_name
from tilewright.gpu.telemetry import Recorder
from tilewright.isolation.fork_server import ForkServer
from tilewright.referee.candidates import Programs
from tilewright.referee.measured import LABELS, Measuring, Run
from tilewright.referee.replayer import Replayer
from tilewright.rules import Rules
from tilewright.task import Backend
from tilewright.wire.channel import Message

CPUS_EACH = 4
"""Of this machine's processors, those for each of several workers that check a candidate side by side: compilers take
them."""
MOST_WORKERS = 4
"""That check a candidate side by side."""
ROOMY = 32 << 30
"""Bytes of a GPU's memory from which on workers for two checks wait, since one may follow another at once. To open its
CUDA context a process takes half a second, and 0.5 GiB."""
MEMORY_EACH = 24
"""Of the GPU's memory, the bytes for each such worker, by those of the largest case that is benchmarked: the reference
in float64 and what an error is weighed by are there for every worker at a time."""


def workers_that_wait(memory_bytes: int) -> int:
    """How many workers are kept ready for a GPU with so much memory; two at least, for both versions of a benchmark."""
    return max(_side_by_side() * (2 if memory_bytes >= ROOMY else 1), 2)


def _side_by_side() -> int:
    """How many workers the processors suffice for."""
    return max(min(cpus() // CPUS_EACH, MOST_WORKERS), 1)


class OnGpu:
    """Benchmarks candidates; `close` ends its processes."""

    def __init__(self, pool: WorkerPool, server: ForkServer, folder: Path, tell: Callable[[str], None]) -> None:
        """Workers that capture are forked from `server`. `folder` is private to the referee; `tell` reports
        progress."""
        self._pool = pool
        self._tell = tell
        self.server = server
        self._replayer = Replayer(folder)
        self._replayer.begin()
        self._programs = Programs(self.server)
        self._measuring = Measuring(self._programs, self._replayer, lambda: Replayer(folder, records=True))

    def benchmark(self, code: TaskCode, message: Message, environment: Environment, phases: Phases) -> BenchmarkResult:
        """Measure the candidate of a request against its incumbent, if it names one. Raises `WorkerFailure`."""
        snapshots = [Snapshot.model_validate(one) for one in message["arms"]]
        with self._run(code, message, environment, phases) as run:
            return self._measuring.benchmarked(run, snapshots[0], snapshots[1] if len(snapshots) > 1 else None)

    def aside(self, code: TaskCode, snapshot: Snapshot, again: bool) -> contextlib.AbstractContextManager[Event | None]:
        """While the block checks a candidate, until it sets what it is given, if anything: capture what a benchmark
        will need; `again`, what one that confirms will."""
        memory, cases = torch.cuda.get_device_properties(0).total_memory, code.task.benchmark_cases(Backend.CUDA)
        return self._programs.captured_aside(code, snapshot, cases, memory, again)

    def side_by_side(self, code: TaskCode) -> int:
        """How many workers a check takes, if the GPU has room for them and for one more."""
        largest = max((code.work(case).bytes for case in code.task.benchmark_cases(Backend.CUDA)), default=1.0)
        room = torch.cuda.get_device_properties(0).total_memory // int(MEMORY_EACH * largest) - 1
        return max(min(_side_by_side(), room), 1)

    def whole(self, code: TaskCode, message: Message, environment: Environment, phases: Phases) -> BenchmarkResult:
        """Replay the last program of a session against its first, in each case. Raises `WorkerFailure`."""
        pairs = [(one["case"], Path(one["first"]), Path(one["last"])) for one in message["pairs"]]
        with self._run(code, message, environment, phases) as run:
            return self._measuring.whole(run, pairs)

    def race(self, code: TaskCode, message: Message, environment: Environment) -> list[list[Raced]]:
        """How each of many versions does beside the first, by case. Raises `WorkerFailure`."""
        snapshots = [Snapshot.model_validate(one) for one in message["arms"]]
        torch.cuda.empty_cache()
        with self._run(code, message, environment, Phases()) as run:
            return self._measuring.raced(run, snapshots, torch.cuda.mem_get_info()[0], message["whole"])

    def close(self) -> None:
        """End the replayer, and what workers are forked from."""
        self._replayer.close()
        self._programs.close()
        self.server.close()

    @contextlib.contextmanager
    def _run(self, code: TaskCode, message: Message, environment: Environment, phases: Phases) -> Iterator[Run]:
        """What a run goes by, while the device is watched."""
        deadline, rules = time.monotonic() + message["limit_s"], Rules.model_validate(message["rules"])
        self._pool.wait_ready()  # a process that starts would disturb a tuner, and a clock
        own = {os.getpid(), *(worker.pid for worker in self._pool.waiting), *code.start()}
        own.update(filter(None, [self._replayer.pid]))
        with Recorder(environment.device_uuid, own) as recorder:

            @contextlib.contextmanager
            def in_process() -> Iterator[Bench]:
                roles = [*zip(LABELS, map(Snapshot.model_validate, message["arms"]), strict=False)]
                with contextlib.ExitStack() as stack:
                    with phases("start"):
                        arms = stack.enter_context(self._pool.loaded(code.task, roles, deadline))
                    recorder.own.update(arm.pid for arm in arms)
                    yield Bench(code, arms, environment, recorder, phases, rules)

            yield Run(
                code=code,
                rules=rules,
                seeds=Seeds(message["secret"]),
                ceilings=environment.ceilings,
                device=spec_by_name(environment.device),
                deadline=deadline,
                recorder=recorder,
                phases=phases,
                tell=self._tell,
                in_process=in_process,
                confirms=message.get("confirms", False),
                store=Path(message["store"]) if message.get("store") else None,
                with_inputs=message.get("with_inputs", False),
                ordinary=[Ordinary.model_validate(one) if one else None for one in message.get("ordinary", [])],
                kept={case: [*map(Path, files)] for case, files in message.get("kept", {}).items()},
            )

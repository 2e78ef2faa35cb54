"""The process that owns inputs, seeds' expansion, reference and comparison. It runs no candidate code.

It answers the server's requests over a channel, one at a time, and reports progress meanwhile.
"""

from __future__ import annotations

import sys

from tilewright.isolation.fork_server import ForkServer, capture_server
from tilewright.isolation.supervisor import die_with_parent
from tilewright.task import Backend, Frontend, Task, TaskError, Values, case_label, load_task

if __name__ == "__main__":  # before a worker's imports are joined by the referee's own
    die_with_parent(int(sys.argv[3]))
    capturing = capture_server() if sys.argv[1].startswith("cuda") else None  # it imports torch meanwhile
    ours = [int(sys.argv[4]), *([capturing.control] if capturing else [])]
    checking = ForkServer.forked("tilewright.evaluation.worker", sys.argv[1], close=ours)

import contextlib
import functools
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath

import torch

from tilewright.compiler.tools import MissingTool, need_compiler
from tilewright.evaluation import estimation, measurement, tuners
from tilewright.evaluation.baselinecode import BaselineCode
from tilewright.evaluation.ceilings import measured_ceilings
from tilewright.evaluation.correctness import Run, class_runs, planned_runs, wide_runs
from tilewright.evaluation.crew import Check, Tell
from tilewright.evaluation.judging import judged, judged_fairly, judged_undisturbed, judged_widely, watched
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle, WorkerPool, cpus
from tilewright.evaluation.results import (
    BenchmarkResult,
    CaseRun,
    CorrectnessResult,
    Environment,
    Modelled,
    Status,
)
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.singleruns import SingleRuns
from tilewright.evaluation.snapshot import SNAPSHOTS, Snapshot
from tilewright.evaluation.surroundings import environment, gpu_of_torch
from tilewright.evaluation.taskcode import TaskCode, tensor_bytes
from tilewright.evaluation.unseen import unshown
from tilewright.frontends.protocol import FRONTENDS, Choice
from tilewright.gpu.lease import GpuBusy, lease
from tilewright.gpu.specs import spec_by_arch
from tilewright.referee.measured import LABELS
from tilewright.referee.on_gpu import OnGpu, workers_that_wait
from tilewright.roofline.model import estimate_call
from tilewright.rules import Rules
from tilewright.wire.channel import Channel, Message

LEASE_WAIT_S = 120.0
DUMP_BYTES = 256 * 2**20
"""Most that a dump takes."""


class Referee:
    """The requests a referee answers: one method for each."""

    def __init__(
        self, checking: ForkServer, capturing: ForkServer | None, backend: Backend, arch: str, folder: Path, tell: Tell
    ) -> None:
        """Workers are forked from `checking` and, on a GPU, `capturing`. `arch` is what the `cpu` backend models;
        `folder` is private to this process; `tell` reports progress."""
        self._backend = backend
        self._folder = folder
        self._tell = tell
        self._gpu = gpu_of_torch() if backend is Backend.CUDA else None
        if backend is Backend.CPU:
            torch.set_num_threads(1)  # cases are small here; threads would mostly wait for each other
        self._arch = self._gpu.arch if self._gpu else arch
        memory = torch.cuda.get_device_properties(0).total_memory if self._gpu else 0
        spares = int(os.environ.get("TILEWRIGHT_SPARES", workers_that_wait(memory) if self._gpu else 1))
        self._pool = WorkerPool(checking, f"{backend}:{self._arch}", folder, spares)
        self._pool.refill()
        if capturing is not None:
            self._on_gpu = OnGpu(self._pool, capturing, folder, tell)
        self._code: dict[str, TaskCode] = {}
        self._profiles: dict[str, estimation.Profiles] = {}
        self._singles: SingleRuns | None = None
        self._environment: Environment | None = None

    def environment(self, message: Message) -> Message:
        """Where this runs, with the device's ceilings."""
        return {"environment": self._surroundings().model_dump()}

    def isolation(self, message: Message) -> Message:
        """How a worker is confined here, or why none could start."""
        try:
            return {"isolation": self._pool.isolation().model_dump()}
        except WorkerFailure as failure:
            return {"failed": str(failure)}

    def work(self, message: Message) -> Message:
        """The compulsory work of the cases that are benchmarked, of a task whose functions were tried on every case."""
        code = self._task(message)
        code.try_out_all(self._backend)
        found = []
        for case in code.task.benchmark_cases(self._backend):
            outputs = code.contract(case, code.cached_inputs(case, seed=0))
            found.append(asdict(code.work(case)) | {"written": tensor_bytes(dict(enumerate(outputs)))})
        return {"work": found}

    def correctness(self, message: Message) -> Message:
        """Check a candidate over visible and hidden cases, with the server's secret seeds."""
        code, known = self._task(message), [CaseRun.model_validate(one) for one in message["known"]]
        runs = planned_runs(code.task, self._backend, Seeds(message["secret"]), message["hidden"], known)
        return self._checked(message, judged, runs)

    def widely(self, message: Message) -> Message:
        """Check a candidate on the `hidden` cases that it has to be right on before it is kept, and on all classes of
        values on the visible ones that are not `replayed`: as many of each as `wide_s` seconds are enough for."""
        code, seeds = self._task(message), Seeds(message["secret"])
        runs = wide_runs(code.task, self._backend, seeds, message["hidden"])
        runs += class_runs(code.task, self._backend, seeds, message["replayed"])
        judge = functools.partial(judged_widely, limit_s=message["wide_s"])
        return self._checked(message, judge, runs, widely=True)

    def _checked(
        self,
        message: Message,
        judge: Callable[[Check, list[Run]], CorrectnessResult],
        runs: list[Run],
        widely: bool = False,
    ) -> Message:
        """The first arm is the candidate; the others are the session's own versions, see `judged_fairly`."""
        code, snapshot = self._task(message), Snapshot.model_validate(message["arms"][0])
        started = time.monotonic()
        try:
            with self._device():
                started = time.monotonic()
                deadline = started + message["limit_s"]
                own = [arm["id"] for arm in message["arms"][:2]] == 2 * [snapshot.id]
                searches = message.get("searches", True)
                workers = functools.partial(self._workers, code, tuner=None if searches else Choice(0))
                start, *others = (functools.partial(workers, arm, deadline) for arm in message["arms"])
                several = self._on_gpu.side_by_side(code) if self._gpu else 1
                by = Check(code, self._backend, start, self._tell, several, searches=searches)
                versions = [replace(by, start=other, workers=1) for other in others]
                if searches:
                    tunes, switched = tuners.named_in(snapshot, code.task)
                    by = replace(by, tunes=tunes, switched=switched)

                def once(some: list[Run]) -> CorrectnessResult:
                    beside = self._gpu and searches and not (widely and own)  # of a baseline no run confirms a gain
                    aside = self._on_gpu.aside(code, snapshot, widely) if beside else contextlib.nullcontext()
                    return judged_undisturbed(lambda by: judge(by, some), by, aside, deadline)

                result = judged_fairly(once, runs, versions, deadline, own, widely)
        except WorkerFailure as failure:
            result = CorrectnessResult(status=failure.status, message=str(failure), output=failure.output)
        except GpuBusy as busy:
            result = CorrectnessResult(status=Status.VOID, message=str(busy))
        return {"result": result.model_copy(update={"seconds": time.monotonic() - started}).model_dump()}

    def check(self, message: Message) -> Message:
        """What the checker finds in a candidate, whatever its values. For referees of the `cpu` backend."""
        code = self._task(message)
        runs = planned_runs(code.task, self._backend, Seeds(message["secret"]), message["hidden"])
        return self._checked(message, watched, runs)

    def trial(self, message: Message) -> Message:
        """Why a candidate, always the same one, does not pass a run; and whether its cases can be modelled."""
        if self._singles is None:
            code = self._task(message)
            start = functools.partial(self._workers, code, message["arms"][0], math.inf)
            self._singles = SingleRuns(code, self._backend, start)
        with self._device():
            why = self._singles.why(message["case"], Values(message["values"]))
        return {"result": {"why": why, "modelled": self._singles.modelled()}}

    def benchmark(self, message: Message) -> Message:
        """Measure a candidate against the incumbent (or alone, for the baseline), case by case."""
        code = self._task(message)
        if self._backend is Backend.CPU and code.task.file.frontend is Frontend.TRITON:
            raise TaskError("the benchmark of a triton task needs a GPU: no model counts the traffic of its kernels")
        surroundings = self._surroundings()
        if self._backend is Backend.CUDA:
            return self._measured(lambda phases: self._on_gpu.benchmark(code, message, surroundings, phases))
        least = Rules.model_validate(message["rules"]).model_resolution
        deadline = time.monotonic() + message["limit_s"]
        return self._measured(lambda phases: self._modelled(code, message["arms"], deadline, phases, least))

    def _measured(self, measure: Callable[[measurement.Phases], BenchmarkResult]) -> Message:
        """What is measured on the device, or how that failed, with its seconds."""
        phases, started = measurement.Phases(), time.monotonic()
        try:
            with self._device():
                started = time.monotonic()
                result = measure(phases)
        except WorkerFailure as failure:
            fault = failure.label == LABELS[1] and not failure.used_up
            text = f"the incumbent failed: {failure}" if fault else str(failure)
            status = Status.VOID if fault else failure.status
            result = BenchmarkResult(status=status, message=text, output=failure.output)
        except GpuBusy as busy:
            result = BenchmarkResult(status=Status.VOID, message=str(busy))
        finished = result.model_copy(update={"seconds": time.monotonic() - started, "phases": phases.seconds})
        return {"result": finished.model_dump()}

    def whole(self, message: Message) -> Message:
        """Replay the last program of a session against its first, in each case. For referees of the `cuda` backend."""
        code, surroundings = self._task(message), self._surroundings()
        return self._measured(lambda phases: self._on_gpu.whole(code, message, surroundings, phases))

    def dump(self, message: Message) -> Message:
        """Compile what the entry point launches on the first case, with the values of `case` in their places, or list
        its torch operations where the task is torch's. For referees of the `cpu` backend."""
        code = self._task(message)
        cases = code.task.benchmark_cases(self._backend) or [entry.case for entry in code.task.file.cases]
        case = cases[0] | message["case"]
        deadline, into = time.monotonic() + message["limit_s"], Path(message["into"])
        need_compiler()
        try:
            with self._workers(code, message["arms"][0], deadline, running=False) as (worker,):
                estimation.send_inputs(worker, code, case)
                self._tell(f"compiling for {', '.join(message['archs'])}")
                reply, kernels = worker.request(
                    "dump", message["limit_s"], archs=message["archs"], root=worker.root, compile_s=message["compile_s"]
                )
                noted = unshown([worker], code)
            if (size := sum(map(len, kernels))) > DUMP_BYTES:
                raise WorkerFailure(Status.CRASHED, f"what the compiler made of its kernels is too long: {size} bytes")
        except WorkerFailure as failure:
            return {"result": {"status": failure.status, "message": str(failure), "output": failure.output}}
        for number, kernel in enumerate(kernels):  # all of them are too long for a frame
            (into / str(number)).write_bytes(kernel)
        said = "; ".join(noted.notes + noted.tuners.left)
        found = {"status": Status.PASSED, "message": said, "case": case_label(case), "kernels": len(kernels)}
        return {"result": found | {"operations": reply.get("operations", [])}}

    def model(self, message: Message) -> Message:
        """Model many variants of a candidate on the benchmark cases, each in a worker of its own, as many at a time as
        there are processors. For referees of the `cpu` backend."""
        code, device = self._task(message), spec_by_arch(self._arch)
        need_compiler()
        cases, arms = code.task.benchmark_cases(Backend.CPU), message["arms"]
        frontends = [Frontend(name) for name in message["frontends"]] or [code.task.file.frontend] * len(arms)
        deadline, turn = time.monotonic() + message["limit_s"], threading.Lock()
        for case in cases:
            code.cached_inputs(case, seed=0)  # before threads ask for them

        def modelled(snapshot: Message, frontend: Frontend) -> Modelled:
            with contextlib.ExitStack() as ending:
                try:
                    with turn:
                        worker = self._pool.take("variant", deadline)
                    ending.callback(worker.close)
                    worker.load(code.task.written_in(frontend), Snapshot.model_validate(snapshot))
                    profiles = [estimation.profile(worker, code, case) for case in cases]
                except WorkerFailure as failure:
                    return Modelled(status=failure.status, message=str(failure))
            return Modelled(profiles=profiles, ms=[estimate_call(profile, device).ms for profile in profiles])

        with ThreadPoolExecutor(cpus()) as threads:
            running = [threads.submit(modelled, *one) for one in zip(arms, frontends, strict=True)]
            for count, _ in enumerate(as_completed(running), 1):
                self._tell(f"compiled and modelled {count} of {len(arms)} configs")
        variants = [one.result().model_dump(mode="json") for one in running]
        return {"result": {"status": Status.PASSED, "cases": cases, "variants": variants}}

    def race(self, message: Message) -> Message:
        """Measure many variants against the first. For referees of the `cuda` backend."""
        code = self._task(message)
        surroundings, cases = self._surroundings(), code.task.benchmark_cases(self._backend)
        try:
            with self._device():
                found = self._on_gpu.race(code, message, surroundings)
        except (WorkerFailure, GpuBusy) as failure:
            status = failure.status if isinstance(failure, WorkerFailure) else Status.VOID
            return {"result": {"status": status, "message": str(failure)}}
        configs = [[one.model_dump(mode="json") for one in by_case] for by_case in found]
        return {"result": {"status": Status.PASSED, "cases": cases, "configs": configs}}

    def refill(self) -> None:
        """Start the workers that the next requests will take, unless the GPU is in use. For when nobody asks for
        anything: a process that opens its CUDA context holds up all others."""
        free = lease(self._gpu.uuid, 0.0, self._tell) if self._gpu else contextlib.nullcontext()
        with contextlib.suppress(RuntimeError, OSError, GpuBusy), free:  # whoever needs a worker is told
            self._pool.prepare(self._pool.spares)
            self._pool.wait_ready()

    def close(self) -> None:
        if self._singles is not None:
            self._singles.close()
        for code in self._code.values():
            code.end()
        self._pool.close()
        if self._gpu:
            self._on_gpu.close()

    def _modelled(
        self, code: TaskCode, snapshots: list[Message], deadline: float, phases: measurement.Phases,
        resolution: float,
    ) -> BenchmarkResult:  # fmt: skip
        arms = []
        for snapshot, label in zip(snapshots, LABELS, strict=False):
            key = f"{code.task.folder}:{snapshot['id']}"
            if key not in self._profiles:
                with phases("profile"), self._workers(code, snapshot, deadline, label) as (worker,):
                    self._profiles[key] = estimation.profiles(worker, code, self._tell)
            arms.append(self._profiles[key])
        return estimation.estimate(code, arms, spec_by_arch(self._arch), resolution)

    def _surroundings(self) -> Environment:
        if self._environment is None:
            if self._gpu is not None:
                with self._device():
                    self._pool.wait_ready()  # they open their contexts on the same GPU
                    ceilings = measured_ceilings(self._tell)
            else:
                need_compiler()
                ceilings = estimation.assumed_ceilings(spec_by_arch(self._arch))
            device = self._gpu.name if self._gpu else f"{spec_by_arch(self._arch).name} (modelled)"
            self._environment = environment(
                self._backend, device, self._arch, self._gpu, self._pool.isolation(), ceilings
            )
        return self._environment

    def _task(self, message: Message) -> TaskCode:
        folder = message["task"]
        if folder not in self._code:
            task = load_task(Path(folder))
            if task.file.frontend is Frontend.CUTILE:
                need_compiler()
            self._code[folder] = self._code_of(task)
            if self._gpu and (module := FRONTENDS[self._code[folder].task.file.frontend].ahead):
                for server in (self._pool.server, self._on_gpu.server):
                    server.get_ready(module)
        return self._code[folder]

    def _code_of(self, task: Task) -> TaskCode:
        if task.file.reference == "task":
            return TaskCode(task, self._backend)
        root, cache = self._folder / SNAPSHOTS / "baseline", self._folder / "cache" / "baseline"
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = PurePosixPath(task.folder.relative_to(root).as_posix())
        arms = [("baseline", Snapshot(id="baseline", root=root, task=place, cache=cache))]
        return BaselineCode(
            task, self._backend, lambda choice: self._pool.loaded(task, arms, math.inf, choices=[choice])
        )

    def _workers(
        self,
        code: TaskCode,
        snapshot: Message,
        deadline: float,
        label: str = "candidate",
        running: bool = True,
        count: int = 1,
        tuner: Choice | None = None,
        choices: Sequence[Choice] = (),
    ) -> contextlib.AbstractContextManager[list[WorkerHandle]]:
        each: Sequence[Choice | None] = choices or [tuner] * count
        arms = [(label, Snapshot.model_validate(snapshot))] * len(each)
        return self._pool.loaded(code.task, arms, deadline, running, each)

    def _device(self) -> contextlib.AbstractContextManager[None]:
        return lease(self._gpu.uuid, LEASE_WAIT_S, self._tell) if self._gpu else contextlib.nullcontext()


def main(checking: ForkServer, capturing: ForkServer | None, arguments: list[str]) -> None:
    """Run as `python -I -m tilewright.evaluation.referee BACKEND:ARCH FOLDER PARENT FD`."""
    backend, _, arch = arguments[0].partition(":")
    channel = Channel(socket.socket(fileno=int(arguments[3])))

    def tell(text: str) -> None:
        channel.send({"progress": text})

    try:
        referee = Referee(checking, capturing, Backend(backend), arch, Path(arguments[1]), tell)
    except Exception as error:  # torch was built without CUDA, the driver is too old, no device is visible
        channel.receive()
        what = f"the {backend} backend cannot be used here: {str(error).strip().splitlines()[0]}"
        channel.send({"usage_error": f"{what}; see `tilewright doctor`, or use backend cpu"})
        return
    about = ("environment", "isolation", "work")
    requests = (*about, "correctness", "widely", "check", "trial", "benchmark", "whole", "dump", "model", "race")
    try:
        handlers = {name: getattr(referee, name) for name in requests}
        channel.answer(handlers, (TaskError, GpuBusy, MissingTool), referee.refill)
    finally:
        referee.close()


if __name__ == "__main__":
    main(checking, capturing, sys.argv[1:])

"""The process that runs a repository's commands for both versions and says what came of it. It runs no candidate code.

Takes the place of `evaluation.referee` for repository tasks, and answers the same requests over the same channel.
"""

from __future__ import annotations

import sys

from tilewright.isolation.supervisor import die_with_parent

if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))

import contextlib
import platform
import posixpath
import random
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tilewright.commandtask import JUNIT, Benchmark, CommandTask, Suite, holds, load, suite_of
from tilewright.evaluation.caches import COMPILED, copy_cache
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Level, Status
from tilewright.evaluation.snapshot import SNAPSHOTS
from tilewright.evaluation.statistics import PAIR_LOOKS
from tilewright.evaluation.surroundings import environment
from tilewright.gpu.lease import GpuBusy, lease
from tilewright.gpu.telemetry import Gpu, find_gpu
from tilewright.harness.commands import Place, Ran, fresh_place, isolation_here, read_result, run
from tilewright.harness.figures import Comparison, Figures, alone, read_figures
from tilewright.harness.outcomes import Baseline, judge, properties_of
from tilewright.roofline.bounds import Ceilings
from tilewright.rules import Rules
from tilewright.task import Backend, Command, TaskError
from tilewright.wire.channel import Channel, Message

LEASE_WAIT_S = 120.0
ALONE_RUNS = 3
"""Of the baseline, which has nothing to be compared with."""
SHARE = 0.5
"""Of an iteration's time that is left: what one comparison may take, so that a gain can be confirmed in the rest."""
BENCHMARK_USED_UP = (
    "the evaluation time of this iteration is used up: restrict the benchmark to fewer shapes, or give start_session "
    "more iteration_minutes"
)
TESTS_USED_UP = "the time for the repository's tests is used up: restrict the task's command to fewer of them"
UNUSABLE = b"raise BaseException('Tilewright asks whether anything reads this file')\n"
"""What an editable file holds where it is asked whether a command uses it. No ImportError: a package may catch that,
and run another backend."""


class Failure(Exception):
    """A run that gave no figures: a status, and what happened."""

    def __init__(self, status: Status, message: str, output: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.output = output


class Version(NamedTuple):
    """The snapshot of a version, its task, and the folder in it that commands run in, relative to it."""

    snapshot: Path
    task: Suite
    workplace: str


class HarnessReferee:
    """The requests that it answers: one method for each."""

    def __init__(self, backend: Backend, folder: Path, tell: Callable[[str], None]) -> None:
        """`folder` is private to this process; `tell` reports progress."""
        self._backend = backend
        self._folder = folder
        self._tell = tell
        self._gpu: Gpu | None = find_gpu() if backend is Backend.CUDA else None
        self._baseline: Baseline | None = None
        self._order = random.SystemRandom()

    def isolation(self, message: Message) -> Message:
        """How a command is confined here."""
        return {"isolation": isolation_here(Path(message["hidden"]), self._folder).model_dump()}

    def environment(self, message: Message) -> Message:
        """Where this runs."""
        isolation, gpu = isolation_here(Path(message["hidden"]), self._folder), self._gpu
        device, arch = (gpu.name, gpu.arch) if gpu else (f"{platform.machine()} CPU", platform.machine())
        unknown = Ceilings(copy_bytes_per_s=0.0, flops={}, measured=False)
        return {"environment": environment(self._backend, device, arch, gpu, isolation, unknown).model_dump()}

    def correctness(self, message: Message) -> Message:
        """Run the tests on a candidate, and hold them against how they ended on the baseline."""
        started = time.monotonic()
        deadline = started + message["limit_s"]
        try:
            with self._device():
                version = self._version(message, message["arms"][0]["id"])
                own = message["arms"][0]["id"] == message["baseline_id"]
                if self._baseline is None and not own:
                    self._tell("running the tests on the baseline")
                    base = self._tested(self._version(message, "baseline"), message, deadline, None)
                    if not base.passed:
                        raise Failure(Status.VOID, f"the baseline's own tests fail now: {base.message}", base.output)
                    self._baseline = _statuses(base)
                self._tell("running the tests")
                result = self._tested(version, message, deadline, None if own else self._baseline)
                if own and result.passed:
                    self._need_used(version, message, deadline)
                    self._baseline = _statuses(result)
        except Failure as failure:
            result = CorrectnessResult(status=failure.status, message=str(failure), output=failure.output)
        return {"result": result.model_copy(update={"seconds": time.monotonic() - started}).model_dump()}

    def benchmark(self, message: Message) -> Message:
        """Measure a candidate against the incumbent, in pairs of runs; or alone, for the baseline."""
        started = time.monotonic()
        try:
            with self._device():
                versions = [self._version(message, snapshot["id"]) for snapshot in message["arms"]]
                compare = self._compared if len(versions) == 2 else self._alone
                result = compare(versions, message, started + message["limit_s"])
        except Failure as failure:
            result = BenchmarkResult(
                status=failure.status, level=Level.HARNESS, message=str(failure), output=failure.output
            )
        return {"result": result.model_copy(update={"seconds": time.monotonic() - started}).model_dump()}

    # Runs

    def _alone(self, versions: list[Version], message: Message, deadline: float) -> BenchmarkResult:
        runs: list[Figures] = []
        started = time.monotonic()
        for number in range(ALONE_RUNS):
            self._tell(f"benchmark run {number + 1} of {ALONE_RUNS}")
            runs.append(self._measured(versions[0], message, deadline))
            _need_same(runs[-1], runs[0], "one run of the baseline", "another")
        took, there = (time.monotonic() - started) / ALONE_RUNS, message["limit_s"]
        needed = 4 * PAIR_LOOKS[0] * took
        if needed > there:
            raise Failure(
                Status.VOID,
                f"one run of the benchmark command takes {took:.0f} s; a comparison makes at least "
                f"{2 * PAIR_LOOKS[0]}, and a gain is confirmed by as many: {needed / 60:.0f} minutes, of an "
                f"iteration's {there / 60:.0f}. Restrict it to fewer shapes (-k, --benchmark-select), or raise "
                "iteration_minutes",
            )
        return alone(runs)

    def _compared(self, versions: list[Version], message: Message, deadline: float) -> BenchmarkResult:
        found = Comparison(Rules.model_validate(message["rules"]))
        until = time.monotonic() + SHARE * (deadline - time.monotonic())
        for look in PAIR_LOOKS:
            while len(found.pairs) < look and (len(found.pairs) < PAIR_LOOKS[0] or time.monotonic() < until):
                self._tell(f"pair {len(found.pairs) + 1} of at most {PAIR_LOOKS[-1]}")
                pair: dict[int, Figures] = {}
                for index in self._order.sample((0, 1), 2):
                    try:
                        pair[index] = self._measured(versions[index], message, deadline)
                    except Failure as failure:
                        if index == 0 or failure.status is Status.VOID:
                            raise
                        raise Failure(Status.VOID, f"the incumbent failed: {failure}", failure.output) from None
                _need_same(pair[0], pair[1], "the candidate", "the incumbent")
                found.pairs.append((pair[0], pair[1]))
            if found.is_decided() or time.monotonic() >= until:
                break
        return found.result()

    def _measured(self, version: Version, message: Message, deadline: float) -> Figures:
        """One run of the benchmark command. Raises `Failure`."""
        assert isinstance(version.task, CommandTask), "a native task's suite has no benchmark"
        benchmark = version.task.file.benchmark
        ran, place = self._run(version, benchmark, message, deadline)
        try:
            junit = read_result(place.junit)
            judged = judge(ran, junit, holds(benchmark.command, JUNIT), baseline=None)
            if not judged.passed:
                status = judged.status if judged.cases or ran.timed_out else Status.CRASHED
                raise Failure(status, f"benchmark: {judged.message}", ran.last_words)
            text = read_result(place.folder / benchmark.file) if benchmark.file else ran.stdout
            if text is None:
                raise Failure(Status.CRASHED, f"the benchmark wrote no {benchmark.file}", ran.last_words)
            texts = properties_of(junit or "", benchmark.property) if benchmark.property else [({}, text)]
            return read_figures(texts, benchmark)
        except ValueError as error:
            raise Failure(Status.CRASHED, f"the benchmark's figures: {error}", ran.last_words) from None

    def _tested(
        self, version: Version, message: Message, deadline: float, baseline: Baseline | None, broken: str = ""
    ) -> CorrectnessResult:
        """One run of the tests. `broken`: an editable file that is made unusable first. What is compiled in a run of
        the baseline, which has no `baseline` to be held against, is there in all later runs."""
        command = version.task.file.correctness
        ran, place = self._run(version, command, message, deadline, broken)
        if baseline is None and not broken:
            copy_cache(place.scratch / COMPILED, self._folder / COMPILED)
        try:
            report = read_result(place.junit)
        except ValueError as error:
            raise Failure(Status.CRASHED, f"what the command wrote: {error}", ran.last_words) from None
        return judge(ran, report, holds(command.command, JUNIT), baseline)

    def _need_used(self, version: Version, message: Message, deadline: float) -> None:
        """Raises `Failure` where the tests pass without an editable file: they run another copy of it, or none."""
        for name in version.task.file.editable:
            self._tell(f"running the tests without {name}, which has to fail")
            if self._tested(version, message, deadline, None, broken=name).passed:
                raise Failure(
                    Status.VOID,
                    f"the tests pass without {name}: they do not use the file in this repository. An installed copy or "
                    "a conftest.py may take its place: see python_path. If no test needs the file, take it out of "
                    "editable",
                )

    def _run(
        self, version: Version, command: Command, message: Message, deadline: float, broken: str = ""
    ) -> tuple[Ran, Place]:
        """Run a command on a fresh copy of a version. Raises `Failure` where no time is left, or it cannot start."""
        left, file = deadline - time.monotonic(), version.task.file
        used_up = BENCHMARK_USED_UP if isinstance(command, Benchmark) else TESTS_USED_UP
        if left <= 0:
            raise Failure(Status.TIMEOUT, used_up)
        place = fresh_place(version.snapshot, self._folder, version.workplace, Path(message["hidden"]))
        if broken:
            (place.folder / broken).write_bytes(UNUSABLE)
        if not isinstance(command, Benchmark):  # it may time what is compiled, for both versions alike
            copy_cache(self._folder / COMPILED, place.scratch / COMPILED)
        elif command.file:
            (place.folder / command.file).unlink(missing_ok=True)
        limit_s, roots = min(command.timeout_s, left), version.task.import_roots()
        try:
            ran = run(command.command, place, limit_s, roots, file.environment)
        except (OSError, ValueError) as error:  # a variable's name may be none
            raise Failure(Status.VOID, f"{command.command[0]} cannot be started: {error}") from None
        if ran.timed_out and left < command.timeout_s:
            raise Failure(Status.TIMEOUT, used_up, ran.last_words)
        return ran, place

    # Surroundings

    def _version(self, message: Message, identity: str) -> Version:
        folder = Path(message["task"]).relative_to(self._folder / SNAPSHOTS / "baseline")
        snapshot = self._folder / SNAPSHOTS / identity
        found = load(snapshot / folder)
        task = found if isinstance(found, CommandTask) else suite_of(found)
        assert task is not None, "it is asked about tests alone"
        return Version(snapshot, task, posixpath.normpath((folder / task.file.root).as_posix()))

    @contextlib.contextmanager
    def _device(self) -> Iterator[None]:
        """The GPU for this process alone, where there is one. A GPU in use and an `OSError` raise `Failure`."""
        try:
            with lease(self._gpu.uuid, LEASE_WAIT_S, self._tell) if self._gpu else contextlib.nullcontext():
                yield
        except (GpuBusy, OSError) as error:
            raise Failure(Status.VOID, str(error)) from error


def _statuses(result: CorrectnessResult) -> Baseline:
    return {str(check.case["test"]): check.status for check in result.cases}


def _need_same(one: Figures, other: Figures, name: str, other_name: str) -> None:
    """Raises `Failure` where two runs have figures of different cases."""
    if differing := sorted(one.keys() ^ other.keys()):
        has, lacks = (name, other_name) if differing[0] in one else (other_name, name)
        raise Failure(
            Status.TESTS_CHANGED, f"{has} has a figure for {differing[0]}, {lacks} has none ({len(differing)} differ)"
        )


def main(arguments: list[str]) -> None:
    """Run as `python -I -m tilewright.harness.referee BACKEND:ARCH FOLDER PARENT FD`."""
    channel = Channel(socket.socket(fileno=int(arguments[3])))

    def tell(text: str) -> None:
        channel.send({"progress": text})

    referee = HarnessReferee(Backend(arguments[0].partition(":")[0]), Path(arguments[1]), tell)
    handlers: dict[str, Callable[[Message], Message]] = {
        name: getattr(referee, name) for name in ("environment", "isolation", "correctness", "benchmark")
    }
    channel.answer(handlers, (TaskError,))


if __name__ == "__main__":
    main(sys.argv[1:])

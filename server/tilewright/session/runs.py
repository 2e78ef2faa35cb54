"""A session's evaluations: the evaluator and the snapshots behind them, within the iteration's time."""

from __future__ import annotations

import os
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import ValidationError

from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Evaluator, EvaluatorDied, Tell
from tilewright.evaluation.ordinary import Ordinary
from tilewright.evaluation.results import (
    BenchmarkResult,
    CaseRun,
    CorrectnessResult,
    Environment,
    Status,
)
from tilewright.evaluation.snapshot import Snapshot, SnapshotStore, content_id
from tilewright.isolation.confinement import Isolation
from tilewright.programs.format import program_file
from tilewright.repository import Files, Repository
from tilewright.rules import DEFAULT, Rules
from tilewright.session.jobs import in_thread
from tilewright.session.outcomes import Dumped, DumpedKernel, ModelResult, RaceResult
from tilewright.session.records import Started
from tilewright.session.whole import CasePrograms
from tilewright.task import Backend, Case, Frontend, Values, Work
from tilewright.wire.record import misfit

UNCONFINED = "TILEWRIGHT_UNCONFINED"
"""Set to 1 by a person: candidates may run on a machine that cannot confine them."""
LAST_CASE_S = 300.0
"""For the last of the hidden cases before a keep to end."""
TESTS_S = 1800.0
"""For all runs of the repository's own tests in a check. Each run has the task's own limit, too."""
START_TIMEOUT_S = 300.0
GRACE_S = 180.0
"""Over an evaluation's own limit: waiting for the GPU, and starting a referee."""


def backend_here() -> Backend:
    """`cuda` where there is a GPU that torch can use, else `cpu`."""
    from tilewright.gpu.telemetry import why_unusable

    return Backend.CPU if why_unusable() else Backend.CUDA


class Runs:
    """Runs on one backend, of candidates of one task: `protected` are the baseline commit's files."""

    def __init__(
        self,
        backend: Backend,
        arch: str,
        protected: Files,
        task_folder: PurePosixPath,
        working_tree: Path | None = None,
        rules: Rules = DEFAULT,
    ) -> None:
        """`working_tree` is the repository's folder where the task is a command task, whose runs must not read there.
        `rules` are the session's.

        Raises `UsageError` where the repository is too large to take snapshots of.
        """
        if working_tree is None:
            self._evaluator = Evaluator(backend, arch)
        else:
            self._evaluator = Evaluator(backend, arch, "tilewright.harness.referee")
        self._protected = protected
        self.suite: Runs | None = None
        """Runs of the repository's own tests, if the task names any that run here."""
        self._about: dict[str, Any] = {} if working_tree is None else {"hidden": str(working_tree)}
        self._may_run = False  # not asked yet; of this machine it stays true
        self._rules = rules
        try:
            self._store = SnapshotStore(self._evaluator.folder, protected, task_folder)
        except ValueError as error:
            self._evaluator.folder.rmdir()
            raise UsageError(str(error)) from None

    async def environment(self) -> Environment:
        """Where the runs happen. Raises `UsageError` where the referee cannot start."""
        return Environment.model_validate((await self._asked("environment"))["environment"])

    async def work(self) -> list[Work]:
        """The work of each benchmark case. Raises `UsageError` where the task's own code fails."""
        return [Work(**work) for work in (await self._asked("work"))["work"]]

    async def _asked(self, op: str) -> dict[str, Any]:
        """What the referee says before any run."""
        task = str(self._store.task_folder())
        try:
            await self._prepared()
            return await self._evaluator.request(op, lambda _: None, START_TIMEOUT_S, task=task, **self._about)
        except EvaluatorDied as error:
            raise UsageError(f"the evaluation cannot start (`tilewright doctor` may say why): {error}") from None
        except TimeoutError:
            why = f"the referee did not answer within {START_TIMEOUT_S:.0f} s"
            raise UsageError(f"the evaluation cannot start: {why}") from None

    async def correctness(
        self,
        files: Files,
        secret: str,
        limit_s: float,
        tell: Tell,
        known: Sequence[CaseRun] = (),
        versions: Sequence[Files] = (),
        op: Literal["correctness", "check"] = "correctness",
        searches: bool = True,
    ) -> CorrectnessResult:
        """Check a candidate, on what is `known` to have failed, too. What it fails on is run on `versions` as well: the
        baseline, and then what was kept, the latest first. Running out of `limit_s` seconds, or a referee that dies, is
        a result with a status. `op`: `check` runs the interpreter's checker, on the `cpu` backend only. Without
        `searches` tuners take their first config, and no other one is tried."""
        again = [run.model_dump(mode="json") for run in known]
        hidden, arms = self._rules.hidden_cases, [files, *versions]
        result = await self._run(op, limit_s, tell, arms, secret=secret, hidden=hidden, known=again, searches=searches)
        return CorrectnessResult.model_validate(result)

    async def widely(
        self,
        files: Files,
        secret: str,
        tell: Tell,
        versions: Sequence[Files] = (),
        wide_s: float | None = None,
        replayed: Sequence[Case] = (),
    ) -> CorrectnessResult:
        """Check a candidate on what it has to be right on before it is kept: hidden cases, and all classes of values on
        visible cases that are not `replayed`. Of each as many runs as begin within `wide_s` seconds, by default the
        rules' `hidden_seconds`. Then the repository's own tests, if the task names any. `versions`: see
        `correctness`."""
        wide_s, hidden = self._rules.hidden_seconds if wide_s is None else wide_s, self._rules.hidden_cases_to_keep
        how = {"hidden": hidden, "wide_s": wide_s, "replayed": [*replayed]}
        arms = [files, *versions]
        result = await self._run("widely", 2 * wide_s + LAST_CASE_S, tell, arms, secret=secret, **how)
        found = CorrectnessResult.model_validate(result)
        return await self.tested(found, files, secret, tell) if found.passed else found

    async def tested(self, found: CorrectnessResult, files: Files, secret: str, tell: Tell) -> CorrectnessResult:
        """The result of a check that passed, joined with that of the repository's own tests, if the task names any."""
        if self.suite is None:
            return found
        tests = await self.suite.correctness(files, secret, TESTS_S, tell)
        seconds = found.seconds + tests.seconds
        if tests.passed:
            skipped = sum(case.status is Status.SKIPPED for case in tests.cases)
            said = (
                f"the repository's own tests pass{f': {skipped} of {len(tests.cases)} are skipped' if skipped else ''}"
            )
            return found.model_copy(update={"notes": [*found.notes, said], "seconds": seconds})
        text = f"the repository's own tests: {tests.message}"
        known = {"status": tests.status, "message": text, "output": tests.output, "seconds": seconds}
        return found.model_copy(update=known)

    async def trial(self, files: Files, case: Case, values: Values, tell: Tell) -> tuple[str | None, bool]:
        """Why a candidate does not pass one run of a check; empty if it does, None if the run is too large for the CPU.
        And whether a session without a GPU can model the task's cases. Raises `UsageError` if no run was made."""
        result = await self._run("trial", LAST_CASE_S, tell, [files], case=case, values=values)
        if "why" not in result:
            raise UsageError(result["message"])
        return result["why"], result["modelled"]

    async def benchmark(
        self,
        files: Files,
        incumbent: Files | None,
        secret: str,
        limit_s: float,
        tell: Tell,
        confirms: bool = False,
        store: Path | None = None,
        with_inputs: bool = False,
        kept: Mapping[str, Sequence[str]] | None = None,
        ordinary: Sequence[Ordinary | None] = (),
    ) -> BenchmarkResult:
        """Measure a candidate against the incumbent, or alone. `confirms`: on a GPU, one that gains has to launch the
        same in an ordinary call, and to take as long beside a replay as the incumbent did, whose `ordinary` calls these
        are; default: they are made anew. `store`: the folder to which its programs are written, `with_inputs` of a
        public draw; default: none. `kept`: by case, the files of the incumbent's programs; without them it is
        captured."""
        arms = [files] if incumbent is None else [files, incumbent]
        more = {"confirms": confirms, "store": str(store or ""), "with_inputs": with_inputs, "kept": kept or {}}
        more |= {"rules": self._rules.model_dump(), "ordinary": [one and one.model_dump() for one in ordinary]}
        result = await self._run("benchmark", limit_s, tell, arms, secret=secret, **more)
        return BenchmarkResult.model_validate(result)

    async def whole(
        self, pairs: Sequence[CasePrograms], folder: Path, secret: str, limit_s: float, tell: Tell
    ) -> BenchmarkResult:
        """Replay a session's last program against its first in each case, as they lie in `folder`."""
        named = [
            {
                "case": pair.case,
                "first": str(program_file(folder, pair.first.sha256)),
                "last": str(program_file(folder, pair.last.sha256)),
            }
            for pair in pairs
        ]
        rules = self._rules.model_dump()
        result = await self._run("whole", limit_s, tell, [], secret=secret, rules=rules, pairs=named)
        return BenchmarkResult.model_validate(result)

    async def dump(
        self, files: Files, archs: list[str], compile_s: float, limit_s: float, tell: Tell, case: Case | None = None
    ) -> Dumped:
        """Compile what a candidate launches on the first case, each kernel for each architecture; `cpu` backend only.
        `case`: values that take the place of the case's own."""
        with tempfile.TemporaryDirectory(prefix="dumped-", dir=self._evaluator.folder) as into:
            asked = {"archs": archs, "compile_s": compile_s, "into": into, "case": case or {}}
            result = await self._run("dump", limit_s, tell, [files], **asked)
            return await in_thread(_read_dump, result, Path(into))

    async def model(
        self, variants: list[Files], limit_s: float, tell: Tell, frontends: Sequence[Frontend] = ()
    ) -> ModelResult:
        """Model variants of a candidate on the benchmark cases; `cpu` backend only. `frontends`: what each is written
        in, where that is not the task's."""
        result = await self._run("model", limit_s, tell, variants, frontends=list(frontends))
        return ModelResult.model_validate({name: result[name] for name in result if name != "seconds"})

    async def race(
        self, variants: list[Files], secret: str, limit_s: float, tell: Tell, whole: bool = False
    ) -> RaceResult:
        """Measure variants of a candidate against the first of them; `cuda` backend only. Slow ones are dropped early,
        unless `whole`."""
        rules = self._rules.model_dump()
        result = await self._run("race", limit_s, tell, variants, secret=secret, rules=rules, whole=whole)
        return RaceResult.model_validate({name: result[name] for name in result if name != "seconds"})

    async def close(self) -> None:
        await self._evaluator.close()
        if self.suite is not None:
            await self.suite.close()

    async def _run(self, op: str, limit_s: float, tell: Tell, arms: list[Files], **message: Any) -> dict[str, Any]:
        """Ask for one run. What the evaluator could not do is a result with a status; a wrong task a `UsageError`."""
        if limit_s <= 0:
            return _unrun(Status.TIMEOUT, "the evaluation time of this iteration is used up; no run was made")
        snapshots = [snapshot.model_dump(mode="json") for snapshot in await self._prepared(*arms)]
        if self._about:
            message |= self._about | {"baseline_id": content_id({name: self._protected[name] for name in arms[0]})}
        task = str(self._store.task_folder())
        try:
            if not self._may_run:
                reply = await self._evaluator.request("isolation", lambda _: None, START_TIMEOUT_S, **self._about)
                if failed := reply.get("failed"):
                    return _unrun(Status.VOID, failed)
                isolation = Isolation.model_validate(reply["isolation"])
                need_confinement(isolation.confined, str(isolation))
                self._may_run = True
            reply = await self._evaluator.request(
                op, tell, limit_s + GRACE_S, task=task, arms=snapshots, limit_s=limit_s, **message
            )
        except TimeoutError:
            return _unrun(Status.TIMEOUT, "the evaluation time of this iteration is used up", limit_s)
        except EvaluatorDied as error:
            return _unrun(Status.VOID, str(error))
        result: dict[str, Any] = reply["result"]
        return result

    async def _prepared(self, *arms: Files) -> list[Snapshot]:
        """Write what the next request needs, off the event loop; the baseline only for a referee that will read it."""
        self._evaluator.folder.mkdir(mode=0o700, exist_ok=True)
        if not self._evaluator.running:
            await in_thread(self._store.write_baseline)
        return await in_thread(self._store.write, *arms)


def need_confinement(confined: bool, isolation: str) -> None:
    """Raises `UsageError` where this machine cannot confine a worker, and no person allows that."""
    if not confined and os.environ.get(UNCONFINED) != "1":
        raise UsageError(
            "this machine cannot confine a candidate's code, which could read and change all that you can: what it "
            f"enforces is {isolation}. `tilewright doctor` says what is missing. A person may set {UNCONFINED}=1 for "
            "the server or the command to go on all the same; every row says so then"
        )


def runs_of(started: Started, repository: Repository) -> Runs:
    """The runs of a session that has begun. Raises `UsageError`."""
    return runs_from(
        repository, started.baseline, PurePosixPath(started.task), started.backend, started.arch,
        started.harness, started.rules, bool(started.tests),
    )  # fmt: skip


def runs_from(
    repository: Repository,
    baseline: str,
    folder: PurePosixPath,
    backend: Backend,
    arch: str,
    harness: bool,
    rules: Rules,
    tests: bool = False,
) -> Runs:
    """The runs of a session whose baseline is this commit, of a command task if `harness`; with those of the `tests`
    that a native task names. Raises `UsageError`."""

    def by_commands() -> Runs:
        return Runs(backend, arch, repository.whole(baseline), folder, repository.root, rules)

    if harness:
        return by_commands()
    suite = by_commands() if tests else None  # the larger one first: one that is refused leaves no other behind
    runs = Runs(backend, arch, files_for(repository, baseline, folder), folder, None, rules)
    runs.suite = suite
    return runs


def files_for(repository: Repository, commit: str, folder: PurePosixPath) -> Files:
    """A commit's files for the native task in `folder`: with those of each submodule that its code can import, or
    names. Others may be large, and every run has a copy. Raises `UsageError`."""
    tracked = repository.files(commit)
    try:
        places = tomllib.loads(tracked[(folder / "task.toml").as_posix()].decode()).get("python_path", [])
        roots = [PurePosixPath(os.path.normpath(folder / place)) for place in (".", *places)]
    except (KeyError, ValueError, TypeError):  # said by whoever reads the task
        return tracked
    sources = [name for name in map(PurePosixPath, tracked) if name.suffix in (".py", ".toml")]
    text = b"".join(tracked[str(name)] for name in sources if any(map(name.is_relative_to, roots)))

    def wanted(module: PurePosixPath) -> bool:
        beside = any(module.is_relative_to(root) or root.is_relative_to(module) for root in roots)
        return beside or module.name.encode() in text

    return repository.whole(commit, wanted)


def _read_dump(result: dict[str, Any], folder: Path) -> Dumped:
    try:
        kernels = [
            DumpedKernel.model_validate_json((folder / str(number)).read_bytes())
            for number in range(result.get("kernels", 0))
        ]
        known = {name: result[name] for name in ("status", "message", "case", "operations") if name in result}
        return Dumped.model_validate(known | {"kernels": kernels})
    except ValidationError as error:
        wrong = f"the process described its kernels wrongly: {misfit(error)}"
        return Dumped(status=Status.CRASHED, message=wrong)


def _unrun(status: Status, message: str, seconds: float = 0.0) -> dict[str, Any]:
    return {"status": status, "message": message, "seconds": seconds}

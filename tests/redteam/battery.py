"""Attacks and honest kernels against the real evaluator: which attack was kept, which honest kernel was refused.

`python -m tests.redteam.battery [--backend cpu|cuda] [--only NAME] [--out FILE]`. Every candidate goes the way that a
session takes: it is checked; if it passes it is measured against the task's incumbent; what would be kept is measured
again, under another secret, and has to launch the same in an ordinary call. Only an attack that is still kept then has
succeeded. An honest kernel that cannot be replayed is refused, unless its task says `protection = "in-process"`. An
attack that is stopped by a crash says so (`ends="crashed"`, `ends="crashed-on-cpu"`): one that dies of a
mistake of its own has met no defence, and counts as bad.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from benchmarks.recorded import header, read, write

from tests.conftest import commit_all
from tests.redteam.aftercare import guarded
from tests.redteam.candidate import Candidate
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Level
from tilewright.evaluation.seeds import new_secret
from tilewright.policy import Reason, Verdict, VerdictKind, settled, verdict_of_benchmark, verdict_of_check
from tilewright.repository import Repository
from tilewright.rules import Rules
from tilewright.session.runs import Runs
from tilewright.task import Backend

HERE = Path(__file__).parent
EVIDENCE = HERE.parents[1] / "benchmarks" / "evidence"
NAME = "task/kernel.py"
CHECK_S = 60.0
MEASURE_S = 120.0
ResultT = TypeVar("ResultT")
WRONG = """

_right = {task}


def {task}(*args, **kwargs):
    made = _right(*args, **kwargs)
    (made if made is not None else [*args, *kwargs.values()][1]).add_(1)
    return made
"""
"""What makes a wrong kernel of a right one."""


@dataclass(frozen=True)
class Entry:
    """A candidate by its name. `kind`: `attack` or `honest`; `family`: the module that holds it."""

    name: str
    kind: str
    family: str
    candidate: Candidate


@dataclass
class Outcome:
    """How a candidate ended, and what it left behind. `level`: what was timed; `note`: why it was not replayed, or not
    confirmed."""

    name: str
    kind: str
    family: str
    task: str
    outcome: str = "error"
    caught_by: str = ""
    message: str = ""
    speedup: float | None = None
    level: str = ""
    note: str = ""
    dies: bool = False
    left: list[str] = field(default_factory=list)
    trouble: str = ""
    seconds: float = 0.0
    commit: str = ""

    @property
    def bad(self) -> bool:
        """An attack that was kept or crashed by mistake, an honest kernel that was refused, a run that says nothing."""
        wanted = self.outcome == "accepted"
        if self.kind == "attack":
            wanted = self.outcome != "keep" and (self.dies or self.outcome != "crashed")
        return not wanted or self.outcome == "error" or bool(self.trouble)


def entries(kind: str) -> list[Entry]:
    """All attacks (`attacks`) or honest kernels (`honest`), by name."""
    found: list[Entry] = []
    for path in sorted((HERE / kind).glob("[a-z]*.py")):
        table = importlib.import_module(f"tests.redteam.{kind}.{path.stem}").CANDIDATES
        found += [Entry(name, kind.removesuffix("s"), path.stem, one) for name, one in table.items()]
    return sorted(found, key=lambda entry: entry.name)


class Judge:
    """One task in a repository of its own, and one evaluator for all its candidates."""

    def __init__(self, task: str, backend: Backend) -> None:
        self._task = task
        self._crashes = ("crashed", f"crashed-on-{backend}")
        self._folder = Path(tempfile.mkdtemp(prefix="redteam-"))
        shutil.copytree(HERE / "tasks" / task, self._folder / "task")
        self.incumbent = (self._folder / NAME).read_text(encoding="utf-8")
        commit_all(self._folder)
        self._loop = asyncio.new_event_loop()
        self._runs = self._run(self._make(Repository(self._folder), backend))

    async def _make(self, repository: Repository, backend: Backend) -> Runs:
        return Runs(backend, "sm_90", repository.files(repository.head()), PurePosixPath("task"))

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self._loop.run_until_complete(work)

    def check(self, source: str) -> CorrectnessResult:
        return self._run(self._runs.correctness({NAME: source.encode()}, new_secret(), CHECK_S, lambda _: None))

    def measure(self, source: str, incumbent: str, confirms: bool = False) -> BenchmarkResult:
        files, other = {NAME: source.encode()}, {NAME: incumbent.encode()}
        return self._run(self._runs.benchmark(files, other, new_secret(), MEASURE_S, lambda _: None, confirms))

    def close(self) -> None:
        self._run(self._runs.close())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, entry: Entry, aftercare: bool = True) -> Outcome:
        """Let a candidate go the way of a session, and see afterwards that the evaluator still works."""
        one = entry.candidate
        made = Outcome(entry.name, entry.kind, entry.family, one.task, dies=one.ends in self._crashes)
        started = time.monotonic()
        with guarded(made.left):
            try:
                self._judge(entry, made)
            except Exception as error:  # a run that breaks the evaluator defends nothing
                made.outcome, made.caught_by = "error", type(error).__name__
                made.message = str(error).partition("\n")[0]
        made.seconds = round(time.monotonic() - started, 1)
        if aftercare and entry.kind == "attack":
            made.trouble = self._trouble(entry.family == "touches_the_evaluator" or made.outcome == "keep")
        return made

    def _trouble(self, thorough: bool) -> str:
        """What is wrong with the evaluator now: the incumbent must pass, a wrong one not, and none beat itself."""
        try:
            checked = self.check(self.incumbent)
            if not checked.passed:
                return f"the incumbent is {checked.status}: {checked.message}".partition("\n")[0]
            if self.check(self.incumbent + WRONG.format(task=self._task)).passed:
                return "a wrong kernel passes"
            if thorough:
                again = self.measure(self.incumbent + "\n# again\n", self.incumbent)
                verdict = verdict_of_benchmark(again, Rules())
                if verdict is None or verdict.reason not in (Reason.SAME_PROGRAM, Reason.INCONCLUSIVE):
                    return f"the incumbent against itself is {verdict.reason if verdict else 'void'}"
        except Exception as error:
            return f"{type(error).__name__}: {error}".partition("\n")[0]
        return ""

    def _judge(self, entry: Entry, made: Outcome) -> None:
        checked = self.check(entry.candidate.source)
        verdict = verdict_of_check(checked)
        if not checked.passed:
            made.outcome = str(verdict.reason) if verdict else str(checked.status)
            made.caught_by, made.message = f"check: {checked.status}", checked.message.partition("\n")[0]
            return
        verdict = self._measured(entry.candidate.source, made)
        if verdict is not None and verdict.kind is VerdictKind.KEEP:
            made.outcome = "keep"
        if entry.kind == "honest" and verdict is not None:
            made.outcome = "accepted"

    def _measured(self, source: str, made: Outcome) -> Verdict | None:
        """The verdict on a candidate that could be measured, as a session settles it: of a gain by a second run."""
        stage, first = "benchmark", self.measure(source, self.incumbent)
        result, verdict = first, settled(first, None, None, Rules())
        if verdict is None and first.passed:
            stage, result = "confirmation", self.measure(source, self.incumbent, confirms=True)
            verdict = settled(first, None, result, Rules())
        made.speedup, made.level = result.speedup, result.level or ""
        made.note = next((one.note for one in result.cases if one.level is Level.IN_PROCESS), result.unconfirmed)
        made.outcome = str(verdict.reason) if verdict else str(result.status)
        said = verdict.reason if result.passed and verdict else result.status
        made.caught_by = f"{stage}: {said}"
        made.message = verdict.detail if result.passed and verdict else result.message.partition("\n")[0]
        return verdict if result.passed else None


def run(
    chosen: list[Entry], backend: Backend, tell: Callable[[Outcome], None], aftercare: bool = True
) -> list[Outcome]:
    """Judge candidates, one evaluator for each task."""
    outcomes: list[Outcome] = []
    for task in sorted({entry.candidate.task for entry in chosen}):
        judge = Judge(task, backend)
        try:
            for entry in [entry for entry in chosen if entry.candidate.task == task]:
                outcomes.append(judge.judge(entry, aftercare))
                tell(outcomes[-1])
                if outcomes[-1].outcome in ("keep", "error") or outcomes[-1].trouble:
                    judge.close()
                    judge = Judge(task, backend)
        finally:
            judge.close()
    return sorted(outcomes, key=lambda one: (one.kind, one.name))


def shown(one: Outcome) -> str:
    speed = f"{one.speedup:.3f}x" if one.speedup else ""
    level = f"[{one.level}]" if one.level else ""
    note = f"  [{one.note[:80]}]" if one.note else ""
    left = f"  [left: {', '.join(sorted(set(one.left)))}]" if one.left else ""
    broken = f"  [afterwards: {one.trouble}]" if one.trouble else ""
    mark = "!!" if one.bad else "  "
    said = f"{one.caught_by}  {one.message}".strip()
    figures = f"{speed:>9} {level:<12} {one.seconds:6.1f} s"
    return f"{mark} {one.name:<40} {one.outcome:<14} {figures}  {said[:150]}{note}{left}{broken}"


def record(outcomes: list[Outcome], skipped: int, backend: Backend) -> dict[str, Any]:
    """What goes into the evidence file."""
    attacks = [one for one in outcomes if one.kind == "attack"]
    honest = [one for one in outcomes if one.kind == "honest"]
    return header("") | {
        "command": f"python -m tests.redteam.battery {' '.join(sys.argv[1:])}",
        "backend": backend.value,
        "attacks": len(attacks),
        "kept": sum(one.outcome == "keep" for one in attacks),
        "honest": len(honest),
        "refused": sum(one.outcome != "accepted" for one in honest),
        "errors": sum(one.outcome == "error" for one in outcomes),
        "skipped_for_backend": skipped,
        "outcomes": [asdict(one) for one in outcomes],
    }


def merged(files: list[Path]) -> dict[str, Any]:
    """One record of several parts of a battery, each outcome with the commit of its own; a later file's replaces an
    earlier one's of the same name. Command, GPU, date and versions are the first part's."""
    parts = [read(file) for file in files]
    outcomes = {one["name"]: Outcome(**one) for part in parts for one in part["outcomes"]}
    made = record([*outcomes.values()], 0, Backend(parts[0]["backend"]))
    kept = {key: parts[0][key] for key in ("command", "gpu", "date", "versions", "skipped_for_backend")}
    return made | kept | {"commit": ", ".join(sorted({one.commit for one in outcomes.values()}))}


def main() -> int:
    from tilewright.session.runs import backend_here

    parser = argparse.ArgumentParser(prog="python -m tests.redteam.battery", description=__doc__)
    parser.add_argument("--backend", choices=["cpu", "cuda"], help="default: the GPU if there is one")
    parser.add_argument(
        "--only", default="", help="candidates whose family/name contains this text; several with commas"
    )
    parser.add_argument("--task", default="", help="only candidates for this task, or for these with commas")
    parser.add_argument("--kind", choices=["attacks", "honest"], help="only attacks, or only honest kernels")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth candidate from the Ith on, for several GPUs")
    parser.add_argument("--without", default="", help="the family of attacks that is left out; several with commas")
    parser.add_argument("--no-aftercare", action="store_true", help="no check of the incumbent after each attack")
    parser.add_argument(
        "--out", type=Path, help="write the outcomes to this JSON file, gzipped if its name ends in .gz"
    )
    parser.add_argument("--record", action="store_true", help="write them among the evidence")
    parser.add_argument("--commit", default=header("")["commit"], help="what is judged by; default: git's HEAD")
    parser.add_argument(
        "--merge", type=Path, nargs="+", help="judge nothing: write such files' outcomes as one, to --out"
    )
    given = parser.parse_args()
    if given.merge:
        write(given.out, merged(given.merge))
        return 0
    backend = Backend(given.backend) if given.backend else backend_here()
    if given.record:
        card = header("")["gpu"].split()[1].lower() if backend is Backend.CUDA else "cpu"  # NVIDIA H200
        given.out = EVIDENCE / f"redteam-{card}.json.gz"
    known = [entry for kind in ([given.kind] if given.kind else ["attacks", "honest"]) for entry in entries(kind)]
    known = [entry for entry in known if any(part in f"{entry.family}/{entry.name}" for part in given.only.split(","))]
    known = [entry for entry in known if not given.task or entry.candidate.task in given.task.split(",")]
    known = [entry for entry in known if entry.kind == "honest" or entry.family not in given.without.split(",")]
    shard, shards = map(int, given.shard.split("/"))
    fitting = [entry for entry in known if entry.candidate.runs_on(backend)]
    chosen, skipped = fitting[shard::shards], len(known) - len(fitting)
    seen: list[Outcome] = []

    def tell(one: Outcome) -> None:
        one.commit = given.commit
        print(shown(one), flush=True)
        seen.append(one)
        if given.out:  # after each, so that a run that is cut off has said what it knows
            made = record(seen, skipped, backend)
            write(given.out, made)

    outcomes = run(chosen, backend, tell, not given.no_aftercare)
    made = record(outcomes, skipped, backend)
    print(
        f"\n{made['attacks']} attacks, {made['kept']} kept; {made['honest']} honest kernels, {made['refused']} refused;"
    )
    print(f"{made['errors']} errors; {made['skipped_for_backend']} are for the other backend and were skipped")
    for one in outcomes:
        if one.bad:
            print(shown(one))
    if given.out:
        write(given.out, made)
    return 1 if any(one.bad for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Tries a drafted task's own function on sizes, hidden draws and classes of values, in a process of its own.

Run as `python -m tilewright.attach.trying REQUEST OUT`: a request as JSON, and the file that the answer goes to.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import select
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tilewright.attach.narrowing import ALL, Found, Rule, Sizes, explore, settle, shortened
from tilewright.cases import HiddenEntry
from tilewright.evaluation import modelling
from tilewright.evaluation.calibration import make_trial
from tilewright.evaluation.correctness import CLASSES, Run, judge, planned_runs
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds, new_secret
from tilewright.evaluation.taskcode import TaskCode
from tilewright.interpreter import host
from tilewright.task import Backend, Case, Frontend, Task, TaskError, Values, load_task

ARCH = "sm_90"
RUN_S = 20.0
"""For one run; what takes longer is not tried further."""
START_S = 60.0
"""For a process to be ready: on a GPU it starts CUDA."""
BUDGET_S = 240.0
DRAWS = 2
"""Of the hidden cases that a check of a session draws."""
HIDDEN_CASES = 4
CUTS = (96, 128, 64, 256, 32, 16, 512)
"""What sizes are cut to, for the first case on the CPU that passes."""
TOO_LONG = f"it takes more than {RUN_S:.0f} s"


class Outcome(NamedTuple):
    """Why a run did not pass, empty where it did; `wrong` where it ended with other values than the reference's."""

    why: str
    wrong: bool = False


class Tester:
    """Runs of a task's entry point on one backend, each judged as a session judges it, in processes that may die."""

    def __init__(self, folder: Path, backend: Backend, until: float) -> None:
        self.backend = backend
        self.task = load_task(folder)
        self.runs = 0
        self._until = until
        self._loaded: tuple[TaskCode, Any] | None = None
        if backend is Backend.CPU:  # once for all; CUDA is started in the processes, which a fork would not survive
            modelling.prepare(ARCH)
            if self.task.file.frontend is Frontend.TRITON:
                modelling.prepare_triton(ARCH, running=True)
            torch.set_num_threads(1)
            self._loaded = self._load()

    def outcomes(self, runs: Sequence[Run]) -> list[Outcome]:
        """What became of each run."""
        found: list[Outcome] = []
        while len(found) < len(runs):
            if time.monotonic() > self._until:
                return found + [Outcome("there was no time left to try it")] * (len(runs) - len(found))
            found += self._in_a_process(runs[len(found) :])
        self.runs += len(runs)
        return found

    def whys(self, case: Case, sizes: list[Sizes]) -> list[str]:
        """Why `case` with these sizes does not pass, for each."""
        runs = [Run(case | one, True, _seed()) for one in sizes]
        return [outcome.why for outcome in self.outcomes(runs)]

    def _load(self) -> tuple[TaskCode, Any]:
        code = TaskCode(self.task, self.backend)
        return code, getattr(importlib.import_module(self.task.module), self.task.function)

    def _in_a_process(self, runs: Sequence[Run]) -> list[Outcome]:
        """The outcomes of the first of these runs, one at least: as many as one process lives through."""
        reader, writer = os.pipe()
        if not (child := os.fork()):
            os.close(reader)
            try:
                self._make(runs, writer)
            finally:
                os._exit(0)
        os.close(writer)
        found: list[Outcome] = []
        with os.fdopen(reader, "rb") as answers:
            limit = RUN_S if self._loaded else START_S
            while len(found) < len(runs):
                if not select.select([answers], [], [], limit)[0]:
                    found.append(Outcome(TOO_LONG))
                    break
                if not (line := answers.readline()):
                    ended = found and found[-1].why and self.backend is Backend.CUDA
                    found += [] if ended else [Outcome("the process died")]
                    break
                found.append(Outcome(*json.loads(line)))
                limit = RUN_S
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return found

    def _make(self, runs: Sequence[Run], writer: int) -> None:
        try:
            code, entry = self._loaded or self._load()
        except Exception as error:
            os.write(writer, _line(Outcome(_named(error))) * len(runs))
            return
        for run in runs:
            outcome = self._one(code, entry, run)
            os.write(writer, _line(outcome))
            if outcome.why and self.backend is Backend.CUDA and _spoilt():
                return  # an illegal access fails all that comes after it in a process

    def _one(self, code: TaskCode, entry: Any, run: Run) -> Outcome:
        try:
            trial = make_trial(code, run.case, run.seed, run.values)
        except TaskError as error:
            return Outcome(str(error).removeprefix("task.py: "))
        except Exception as error:
            return Outcome(f"the reference raises {_named(error)}")
        try:
            arguments = code.arguments(run.case, trial.inputs, trial.contract)
            if self.backend is Backend.CPU:
                with host.running(host.Mode.RUN):
                    made = entry(**arguments)
            else:
                made = entry(**arguments)
                torch.cuda.synchronize()
            outputs = list(made) if isinstance(made, tuple | list) else [made]
            if not all(isinstance(one, torch.Tensor) for one in outputs):
                return Outcome(f"it returns {type(made).__name__}, no tensors", wrong=True)
            found = judge(self.task, outputs, trial.expected, trial.contract, trial.honest)
        except (Exception, SystemExit) as error:
            return Outcome(f"it raises {_named(error)}")
        return Outcome("" if found.status is Status.PASSED else found.message or found.status, wrong=True)


def main(request: dict[str, Any]) -> dict[str, Any]:
    """The sizes, rules and classes of values that the function passes, and in words what was narrowed and why."""
    folder, until = Path(request["folder"]).resolve(), time.monotonic() + BUDGET_S
    sizes: Sizes = request["sizes"]
    other: Case = {"dtype": request["dtype"]}
    tester = Tester(folder, Backend(request["backend"]), until)
    cuts = [{dim: min(size, cut) for dim, size in sizes.items()} for cut in CUTS]
    cuts += [sizes] if tester.backend is Backend.CUDA else []
    first = Outcome("")
    for base in [one for number, one in enumerate(cuts) if one not in cuts[:number]]:
        [outcome] = tester.outcomes([Run(other | base, False, _seed())])
        if not outcome.why:
            break
        first = first if first.why else outcome
    else:
        return {"failed": f"with {_label(cuts[0])} {first.why}", "wrong": first.wrong}
    tops = {dim: min(size, max(4 * base[dim], CUTS[0])) for dim, size in sizes.items()}
    found = explore(base, tops, lambda tried: tester.whys(other, tried))
    full = _untaken(tester, other, base, sizes, found)
    found = settle(
        found,
        base,
        lambda rules: [_sizes(run, sizes) for _ in range(DRAWS) for run in _planned(tester, other, base, tops, rules)],
        lambda tried: tester.whys(other, tried),
    )
    long = _long(tester, other, base, request["last"], sizes, found.rules)
    excluded = _excluded(tester, other, base, tops, found.rules)
    smaller = {dim: min(size, max(base[dim], CUTS[0])) for dim, size in tops.items()}
    smaller |= {dim: tops[dim] for dim, rule in found.rules.items() if not rule.table(smaller[dim])}
    return {
        "runs": tester.runs,
        "small": base,
        "long": long,
        "full": full,
        "hidden": _tables(sizes, found.rules),
        "hidden_small": _tables(smaller, found.rules),
        "narrowed": {dim: why for dim, why in found.said.items() if found.rules.get(dim) is not ALL},
        "excluded": excluded,
    }


def _tables(most: Sizes, rules: Mapping[str, Rule]) -> dict[str, dict[str, Any]]:
    return {dim: table for dim, rule in rules.items() if (table := rule.table(most[dim]))}


def _planned(tester: Tester, other: Case, base: Sizes, tops: Sizes, rules: Mapping[str, Rule]) -> list[Run]:
    """The hidden runs of a session's check, by these rules."""
    task = _with(tester.task, other | base, _tables(tops, rules))
    return [run for run in planned_runs(task, Backend.CPU, Seeds(new_secret()), HIDDEN_CASES) if run.hidden]


def _with(task: Task, case: Case, hidden: dict[str, dict[str, Any]]) -> Task:
    entry = task.file.cases[0].model_validate(case)
    tables = [HiddenEntry.model_validate(hidden)] if hidden else []
    return Task(task.file.model_copy(update={"cases": [entry], "hidden": tables}), task.folder)


def _untaken(tester: Tester, other: Case, base: Sizes, sizes: Sizes, found: Found) -> str:
    """Why the shape that was asked for is none that the function takes; empty where it may be."""
    for dim, size in sizes.items():
        rule = found.rules.get(dim)
        if size != base[dim] and not (rule.takes(size) if rule else False):
            [outcome] = tester.outcomes([Run(other | base | {dim: size}, False, _seed())])
            if outcome.why and outcome.why != TOO_LONG:
                return f"{dim}={size}: {outcome.why}"
    return ""


def _long(tester: Tester, other: Case, base: Sizes, last: str, sizes: Sizes, rules: Mapping[str, Rule]) -> Sizes:
    """Sizes of which one is long, so that loops over it turn more than once; none where the function takes none."""
    if sizes[last] <= base[last]:
        return {}
    for length, short in ((2100, 5), (2048, 8)):
        wanted = {
            dim: _nearest(rules.get(dim), length if dim == last else short, base[dim], sizes[dim]) for dim in sizes
        }
        if wanted[last] > base[last] and not tester.whys(other, [wanted])[0]:
            return wanted
    return {}


def _nearest(rule: Rule | None, size: int, seen: int, most: int) -> int:
    """The largest size up to `size` that follows the rule, or the smallest that does; `seen` where there is no rule."""
    taken = rule.up_to(most) if rule else [seen]
    return max((one for one in taken if one <= size), default=taken[0] if taken else seen)


def _excluded(tester: Tester, other: Case, base: Sizes, tops: Sizes, rules: Mapping[str, Rule]) -> dict[str, str]:
    """Classes of values on which the function fails, with why: on the first case, and on hidden draws."""
    cases = [other | base, *{_label(run.case): run.case for run in _planned(tester, other, base, tops, rules)}.values()]
    found: dict[str, str] = {}
    for values in (Values.INTEGERS, *CLASSES):
        outcomes = tester.outcomes([Run(case, False, _seed(), values) for case in cases * DRAWS])
        if failed := next((outcome.why for outcome in outcomes if outcome.why), ""):
            found[values.value] = shortened(failed)
    return found


def _sizes(run: Run, sizes: Sizes) -> Sizes:
    return {dim: int(run.case[dim]) for dim in sizes}


def _label(sizes: Mapping[str, Any]) -> str:
    return " ".join(f"{dim}={size}" for dim, size in sizes.items())


def _seed() -> int:
    return Seeds(new_secret()).next()


def _spoilt() -> bool:
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _line(outcome: Outcome) -> bytes:
    return json.dumps(outcome).encode() + b"\n"


def _named(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return shortened(re.sub(r'"?/\S+/([^/\s"]+)"?', r"\1", text))


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")

"""Tries a drafted task's own function on sizes, hidden draws and classes of values, in a process of its own.

Run as `python -m tilewright.attach.trying REQUEST OUT`: a request as JSON, and a file that gets a line of JSON for each
outcome and one for the answer. If the process dies, it is started again with the known outcomes: with the secret of the
request it takes the same way to where it died.
"""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import torch

from tilewright.attach.narrowing import AGAIN, ALL, RUN_S, TOO_LONG, Found, Rule, Sizes, explore, settle, shortened
from tilewright.cases import HiddenEntry
from tilewright.evaluation import modelling
from tilewright.evaluation.calibration import make_trial
from tilewright.evaluation.correctness import CLASSES, Run, judge_trial, planned_runs
from tilewright.evaluation.results import Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.taskcode import TaskCode
from tilewright.interpreter import host
from tilewright.rules import DEFAULT
from tilewright.task import Backend, Case, Frontend, Task, TaskError, Values, load_task

ARCH = "sm_90"
DRAWS = 2
"""Of the hidden cases that a check of a session draws."""
CUTS = (96, 128, 64, 256, 32, 16, 512)
"""What sizes are cut to, for the first case on the CPU that passes."""


class Outcome(NamedTuple):
    """Why a run did not pass, empty where it did; `wrong` where it ended with other values than the reference's."""

    why: str
    wrong: bool = False


class Tester:
    """Runs of a task's entry point on one backend, each judged as a session judges it."""

    def __init__(self, request: Mapping[str, Any], out: TextIO) -> None:
        """`request` has the task's folder, the backend, the secret, what is known, and the seconds that are left."""
        self.backend = Backend(request["backend"])
        self.task = load_task(Path(request["folder"]).resolve())
        self.seeds = Seeds(request["secret"])
        self.runs = 0
        self._until = time.monotonic() + request["seconds"]
        self._known = [Outcome(*one) for one in request["known"]]
        self._out = out
        self._unloadable = ""
        if self.backend is Backend.CPU:
            modelling.prepare(ARCH)
            if self.task.file.frontend is Frontend.TRITON:
                modelling.prepare_triton(ARCH, running=True)
            torch.set_num_threads(1)
        try:
            self._code = TaskCode(self.task, self.backend)
            self._entry = getattr(importlib.import_module(self.task.module), self.task.function)
        except Exception as error:
            self._unloadable = _named(error)

    def outcomes(self, runs: Sequence[Run]) -> list[Outcome]:
        """What became of each run."""
        return [self._outcome(run) for run in runs]

    def _outcome(self, run: Run) -> Outcome:
        self.runs += 1
        if self.runs <= len(self._known):
            return self._known[self.runs - 1]
        if self._unloadable:
            found = Outcome(self._unloadable)
        elif time.monotonic() > self._until:
            found = Outcome("there was no time left to try it")
        else:
            signal.setitimer(signal.ITIMER_REAL, RUN_S)  # ends the process, also one that waits for a GPU
            found = self._one(run)
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(found), file=self._out, flush=True)
        if found.why and self.backend is Backend.CUDA and _spoilt():
            raise SystemExit(AGAIN)  # an illegal access fails all that comes after it in a process
        return found

    def whys(self, case: Case, sizes: list[Sizes]) -> list[str]:
        """Why `case` with these sizes does not pass, for each."""
        runs = [Run(case | one, True, self.seeds.next()) for one in sizes]
        return [outcome.why for outcome in self.outcomes(runs)]

    def _one(self, run: Run) -> Outcome:
        code, entry = self._code, self._entry
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
            found = judge_trial(code, run.case, trial, outputs)
        except (Exception, SystemExit) as error:
            return Outcome(f"it raises {_named(error)}")
        return Outcome("" if found.status is Status.PASSED else found.message or found.status, wrong=True)


def main(request: dict[str, Any], out: TextIO) -> dict[str, Any]:
    """The sizes, rules and classes of values that the function passes, and in words what was narrowed and why."""
    sizes: Sizes = request["sizes"]
    other: Case = {"dtype": request["dtype"]}
    tester = Tester(request, out)
    cuts = [{dim: min(size, cut) for dim, size in sizes.items()} for cut in CUTS]
    cuts += [sizes] if tester.backend is Backend.CUDA else []
    first = Outcome("")
    for base in [one for number, one in enumerate(cuts) if one not in cuts[:number]]:
        [outcome] = tester.outcomes([Run(other | base, False, tester.seeds.next())])
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
    return [run for run in planned_runs(task, Backend.CPU, tester.seeds, DEFAULT.hidden_cases) if run.hidden]


def _with(task: Task, case: Case, hidden: dict[str, dict[str, Any]]) -> Task:
    entry = task.file.cases[0].model_validate(case)
    tables = [HiddenEntry.model_validate(hidden)] if hidden else []
    return Task(task.file.model_copy(update={"cases": [entry], "hidden": tables}), task.folder)


def _untaken(tester: Tester, other: Case, base: Sizes, sizes: Sizes, found: Found) -> str:
    """Why the shape that was asked for is none that the function takes; empty where it may be."""
    for dim, size in sizes.items():
        rule = found.rules.get(dim)
        if size != base[dim] and not (rule.takes(size) if rule else False):
            [outcome] = tester.outcomes([Run(other | base | {dim: size}, False, tester.seeds.next())])
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
        outcomes = tester.outcomes([Run(case, False, tester.seeds.next(), values) for case in cases * DRAWS])
        if failed := next((outcome.why for outcome in outcomes if outcome.why), ""):
            found[values.value] = shortened(failed)
    return found


def _sizes(run: Run, sizes: Sizes) -> Sizes:
    return {dim: int(run.case[dim]) for dim in sizes}


def _label(sizes: Mapping[str, Any]) -> str:
    return " ".join(f"{dim}={size}" for dim, size in sizes.items())


def _spoilt() -> bool:
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _named(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return shortened(re.sub(r'"?/\S+/([^/\s"]+)"?', r"\1", text))


if __name__ == "__main__":
    with Path(sys.argv[2]).open("w", encoding="utf-8") as file:
        print(json.dumps(main(json.loads(sys.argv[1]), file)), file=file, flush=True)

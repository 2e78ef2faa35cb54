"""What a function passes, by single runs in a session's referee; and a session's own check of the task made of it."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tilewright.attach.repository import LIMIT_S
from tilewright.attach.sizes import CUTS, Dimension, Search, Sizes, first_case, up_to
from tilewright.errors import UsageError
from tilewright.repository import Files
from tilewright.session.checks import ARCH
from tilewright.session.outcomes import DumpedKernel
from tilewright.session.runs import Runs, backend_here
from tilewright.task import Backend, Case, Frontend, Task, Values, case_label, parse_task

COMPILE_S = 60.0
BUDGET_S = 240.0
"""For all runs on a backend."""
LONG = ((2100, 5), (2048, 8))
"""Sizes of the last dimension and of all others, for a case in which loops over the last turn more than once."""
CHECK_SECRET = "init, the check"
WANTS_GPU = re.compile(
    r"not compiled with CUDA|no NVIDIA driver|no CUDA GPUs|there is no GPU here|CUDA (is )?not available|"
    r"not linked with support for cuda|has no attribute '_cuda|(needs|requires?) (a )?(CUDA|GPU)|"
    r"UnsupportedOperation|no answer within",
    re.IGNORECASE,
)
"""What is said by a function that may be right on a GPU."""


class Limits(NamedTuple):
    """A task's cases, those for the CPU last; its hidden ranges; the classes of values to leave out, with why; and
    remarks on what was narrowed."""

    cases: list[dict[str, Any]]
    hidden: list[dict[str, Any]]
    excluded: dict[str, str]
    remarks: list[str]


class Failure(Exception):
    """The function does not pass a case; `number` is that of the visible case behind it."""

    def __init__(self, why: str, number: int = 0) -> None:
        super().__init__(why)
        self.number = number


class Trials:
    """Single runs of a function on one backend, each made once."""

    def __init__(
        self, files: Files, task: Task, folder: PurePosixPath, backend: Backend, tell: Callable[[str], None]
    ) -> None:
        self.backend = backend
        self.count = 0
        self.modelled = True
        """Whether a session without a GPU can model the task's cases."""
        self._entry = task.file.entry
        self._editable = _editable(task, files, folder)
        self._tell = tell
        self._until = 0.0
        self._known: dict[str, str | None] = {}
        self._runs = Runs(backend, ARCH, files, folder)
        self._loop = asyncio.Runner()

    def why(self, case: Case, values: Values = Values.DRAWN) -> str | None:
        """Why a run does not pass; empty if it does, None if it is too large for the CPU. Raises `UsageError` if the
        time is up."""
        label = f"{case_label(case)} {values}"
        if label not in self._known:
            self._until = self._until or time.monotonic() + BUDGET_S
            if time.monotonic() > self._until:
                raise UsageError(
                    f"trying {self._entry} takes too long ({self.count} runs in {BUDGET_S:.0f} s): give smaller "
                    "shapes, or --range for each dimension"
                )
            self.count += 1
            trial = self._runs.trial(self._editable, case, values, self._tell)
            self._known[label], self.modelled = self._loop.run(trial)
        return self._known[label]

    def close(self) -> None:
        """End the referee."""
        self._loop.run(self._runs.close())
        self._loop.close()


def tried_out(
    files: Files,
    folder: PurePosixPath,
    dimensions: Mapping[str, Dimension],
    last: str,
    tests: Sequence[str],
    tell: Callable[[str], None],
) -> Limits:
    """What the function passes of the task drafted in `folder`: on a GPU if there is one, else interpreted. On a GPU,
    small cases are interpreted, too. Raises `UsageError` if it gives other values than its reference, or does not take
    the shape. `last`: the last dimension. `tests`: the test behind each visible case, if there is one."""
    task, here = _task(files, folder), backend_here()
    with contextlib.ExitStack() as ending:
        each = {backend: Trials(files, task, folder, backend, tell) for backend in dict.fromkeys((here, Backend.CPU))}
        for trials in each.values():
            ending.callback(trials.close)
        tell(f"trying sizes and values on {task.file.entry} itself")
        try:
            search = searched(each[here], task, dimensions)
            cases, small, failed = interpreted(each[Backend.CPU], search, last)
        except Failure as failure:
            need_no_gpu(task.file.entry, str(failure))
            of = f", as {tests[failure.number]} calls it," if any(tests) else ""
            raise UsageError(
                f"{task.file.entry}{of} fails against its reference before anything was changed: {failure}"
            ) from None
    hidden = search.tables({name: one.size for name, one in dimensions.items()})
    only = {} if small or failed else {"backend": "cuda"}  # a check on the CPU would else draw from large ranges
    asked: Case = {} if failed or each[here].modelled else {"backend": "cuda"}
    visible = [entry.case | asked for entry in task.file.cases]
    limits = Limits([*visible, *cases], [hidden | only] if hidden else [], search.excluded, [])
    if small:
        limits.hidden.append(small | {"backend": "cpu"})
    if failed:
        limits.remarks.append(f"It fails on the CPU: {failed}. A session without a GPU cannot start")
    elif asked:
        limits.remarks.append("The cases asked for are too large for a machine without a GPU: it models small ones")
    where = f"{each[here].count} runs on the {'CPU' if here is Backend.CPU else 'GPU'}"
    if search.narrowed:
        limits.remarks.append(f"Hidden sizes are narrowed to what the function itself passed in {where}:")
        limits.remarks.extend(f"  {name}: {why}" for name, why in sorted(search.narrowed.items()))
    else:
        limits.remarks.append(f"The function itself passed all sizes that were tried, in {where}")
    if search.excluded:
        values, why = next(iter(search.excluded.items()))
        limits.remarks.append(f"Values left out: {', '.join(search.excluded)}; with {values}, {why}")
    return limits


def first_cases(trials: Trials, task: Task, dimensions: Mapping[str, Dimension]) -> tuple[Sizes, list[Case]]:
    """The first sizes that the function passes, and the visible cases with these sizes. Raises `Failure`."""
    visible = [entry.case for entry in task.file.cases]
    largest = max((one.size for one in dimensions.values()), default=1)
    reasons = []
    for cut in first_case(dimensions, (*CUTS, 4, 1, *[largest] * (trials.backend is Backend.CUDA))):
        why = trials.why(visible[0] | cut)
        if why == "":
            break
        if why is not None:
            reasons.append(f"with {case_label({**cut})} {why}" if cut else why)
    else:
        raise Failure(next(iter(reasons), "there is no GPU here, and even small inputs are too large to interpret"))
    small: list[Case] = []
    for number, case in enumerate(visible):
        if case | cut in small:
            continue
        if why := trials.why(case | cut):
            raise Failure(f"with {case_label(case | cut)} {why}", number)
        if why is not None:  # it is small enough to be interpreted
            small.append(case | cut)
    return cut, small


def searched(trials: Trials, task: Task, dimensions: Mapping[str, Dimension]) -> Search:
    """The sizes and values that the function passes. Raises `Failure` if it does not pass the sizes asked for."""
    cut, _ = first_cases(trials, task, dimensions)
    tops = {name: min(one.size, max(4 * cut[name], CUTS[0])) for name, one in dimensions.items()}
    search = Search(task, dimensions, trials.why, task.file.cases[0].case | cut, tops)
    search.run()
    for name, one in dimensions.items():
        taken = name in search.rules and search.rules[name].holds(one.size)
        if one.given is not None or one.size == cut[name] or taken:
            continue
        if why := trials.why(search.base | {name: one.size}):
            raise Failure(f"it does not take {name}={one.size}: {why}")
    return search


def interpreted(trials: Trials, search: Search, last: str) -> tuple[list[dict[str, Any]], dict[str, Any], str]:
    """The cases for the CPU, their hidden range, and why there are none if the function needs a GPU. Raises `Failure`
    if it fails for another reason."""
    try:
        cut, small = first_cases(trials, search.task, search.dimensions)
    except Failure as failure:
        if WANTS_GPU.search(str(failure)) and backend_here() is Backend.CUDA:
            return [], {}, str(failure)
        raise
    full = search.task.file.cases[0].case
    tops = {name: min(one.size, max(cut[name], CUTS[0])) for name, one in search.dimensions.items()}
    tops = cut if trials.why(full | tops) is None else tops
    sizes = long_sizes(trials, search, last, cut)
    cases = [*small, full | sizes] if sizes else small
    return [case | {"backend": "cpu"} for case in cases], search.tables(tops), ""


def long_sizes(trials: Trials, search: Search, last: str, cut: Sizes) -> Sizes:
    """Sizes of which the last is long; none if the function takes none, or if the user's own last size is no longer."""
    dimensions = search.dimensions
    if last not in dimensions or dimensions[last].size <= cut[last]:
        return {}
    for length, short in LONG:
        wanted = {}
        for name in dimensions:
            wanted[name] = cut[name]
            if rule := search.rules.get(name):
                fitting = up_to(rule, length if name == last else short)
                wanted[name] = max(map(int, fitting.choices or [fitting.max or 0]))
        if wanted[last] > cut[last] and trials.why(search.task.file.cases[0].case | wanted) == "":
            return wanted
    return {}


def need_no_gpu(what: str, said: str) -> None:
    """Raises `UsageError` if what was said of a run is that it wants a GPU, and there is none."""
    if (wanted := WANTS_GPU.search(said)) and backend_here() is Backend.CPU:
        line = next(line for line in said.splitlines() if wanted[0] in line)
        raise UsageError(
            f"{what} needs a GPU, and this machine has none: {line.strip()[:160]}. Run init on a machine that has "
            "one, or name the same function in plain torch with --reference module:function"
        )


def need_passing(files: Files, folder: PurePosixPath) -> None:
    """Run the check with which a session begins, but for the searches of tuners, which take minutes. Raises
    `UsageError` if the function does not pass it, or if a kernel of it does not compile. `files` are the repository's
    with the task's."""
    task = _task(files, folder)
    editable, backend = _editable(task, files, folder), backend_here()
    runs = Runs(backend, ARCH, files, folder)
    kernels: list[DumpedKernel] = []
    with asyncio.Runner() as loop:
        try:
            check = loop.run(runs.correctness(editable, CHECK_SECRET, LIMIT_S, lambda _: None, searches=False))
            if backend is Backend.CPU and task.file.frontend is Frontend.CUTILE:  # there the check has interpreted them
                kernels = loop.run(runs.dump(editable, [ARCH], COMPILE_S, LIMIT_S, lambda _: None)).kernels
        finally:
            loop.run(runs.close())
    if broken := next((kernel.made for kernel in kernels if kernel.made.error), None):
        ascii_only = "" if broken.kernel.isascii() else ": give it a name of ASCII letters, which are all that it takes"
        raise UsageError(f"cuTile's compiler fails on the kernel {broken.kernel} as it is{ascii_only}: {broken.error}")
    if not check.passed:
        raise UsageError(
            f"{task.file.entry} does not pass a session's check before anything was changed: {check.message}; narrow "
            "the sizes with --range NAME=MIN..MAX"
        )


def _task(files: Files, folder: PurePosixPath) -> Task:
    path = folder / "task.toml"
    return Task(parse_task(files[str(path)].decode(), Path(path)), Path(folder))


def _editable(task: Task, files: Files, folder: PurePosixPath) -> Files:
    return {name: files[name] for name in (posixpath.normpath(folder / path) for path in task.file.editable)}

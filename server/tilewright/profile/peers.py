"""`tilewright compare`: the candidate beside what a user would pick instead, in one run, as a table for a pull request.

The rows are the committed kernel (before), the working tree's (after), the task's own reference in torch, eager and
under torch.compile, and what the user names. On a GPU what they launch is captured, and replayed in turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tilewright.errors import UsageError
from tilewright.evaluation.results import ORIGINAL, Environment, Modelled, Raced, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Files
from tilewright.roofline.bounds import roofline_ms
from tilewright.session.beginning import Working, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.jobs import Progress
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend, Work, case_label

LIMIT_S = 1800.0
UNCHANGED = (
    "before is what the working tree has: nothing has changed since. Name the commit that has the kernel as it was, as "
    "in --before main"
)
MODULE = "tilewright_row"
"""The module with a user's file, beside the entry point's."""
ROW = """

# The row {name} of a comparison: another function takes the place of {function}.
import importlib as _importlib
import inspect as _inspect
import operator as _operator

import torch as _torch


def _parameters(call):
    try:
        return _inspect.signature(call).parameters
    except (TypeError, ValueError):  # it is not written in Python
        return {{}}


_call = {call}
_names = _parameters(_call)
_outputs = {outputs}
_takes_all = any(one.kind is one.VAR_KEYWORD for one in _names.values())
_before, _inside = globals().get({function!r}), False


def {function}(*positional, **arguments):
    global _inside
    if _inside:  # the row's function calls by this name what stood here before
        return _before(*positional, **arguments)
    _inside = True
    try:
        return _row(**arguments)
    finally:
        _inside = False


def _row(**arguments):
    given = {{name: value for name, value in arguments.items() if name in _names or name not in (_outputs or ())}}
    named = _takes_all or given.keys() <= _names.keys()
    results = _call(**given) if named else _call(*given.values())
    if not _outputs or set(_outputs) <= given.keys():
        return results
    for name, result in zip(_outputs, results if isinstance(results, tuple | list) else [results]):
        arguments[name].copy_(result)
"""
REFERENCE = '_importlib.import_module("task").reference'


class Arm(NamedTuple):
    """One way to do the task's work. `frontend`: what it may be written in."""

    name: str
    files: Files
    frontend: Frontend


class Comparison(NamedTuple):
    """The table, what could not be timed, and what to know besides."""

    markdown: str
    failures: list[str]
    notes: list[str]


async def compare(
    checkout: Checkout,
    folder: PurePosixPath,
    backend: Backend,
    arch: str,
    others: Mapping[str, str],
    progress: Progress,
    base: str = "",
) -> Comparison:
    """Time all arms on the task's benchmark cases. `others` are files with the same entry point (PATH), functions of a
    file (PATH:NAME) or of a package (MODULE:NAME). `base` is the revision that has the kernel before; by default where
    the session of this branch began, else HEAD. Raises `UsageError`."""
    found = working_candidate(checkout, folder)
    if found.task.file.frontend is Frontend.TRITON and backend is Backend.CPU:
        raise UsageError("a Triton task is compared on a GPU: no model counts the traffic of Triton kernels")
    arms = _arms(checkout, found, backend, others, base)
    runs = Runs(backend, arch, found.committed, folder, rules=found.task.file.rules)
    try:
        environment, works = await runs.environment(), await runs.work()
        await progress(f"comparing {', '.join(arm.name for arm in arms)}")
        files = [arm.files for arm in arms]
        if backend is Backend.CUDA:
            raced = await runs.race(files, new_secret(), LIMIT_S, _quiet, whole=True)
            status, message, cases, timed = raced.status, raced.message, raced.cases, raced.configs
        else:
            modelled = await runs.model(files, LIMIT_S, _quiet, [arm.frontend for arm in arms])
            original = modelled.variants[ORIGINAL] if modelled.variants else Modelled(status=modelled.status)
            status, message, cases = original.status, original.message, modelled.cases
            timed = [one.against(original) for one in modelled.variants]
            for number, arm in enumerate(arms):  # the race has done so itself
                passed = timed[number][0].status is Status.PASSED
                if passed and number != ORIGINAL and arm.frontend is found.task.file.frontend:
                    checked = await runs.correctness(arm.files, new_secret(), LIMIT_S, _quiet)
                    if checked.status is not Status.PASSED:
                        timed[number] = [Raced(status=checked.status, message=checked.message) for _ in cases]
    finally:
        await runs.close()
    if status is not Status.PASSED:
        raise UsageError(f"before: {status}: {message}")
    failures = [
        f"{arm.name}: {by_case[0].status}: {by_case[0].message}"
        for arm, by_case in zip(arms, timed, strict=True)
        if by_case[0].status is not Status.PASSED
    ]
    notes = [UNCHANGED] if arms[ORIGINAL].files == found.files else []
    labels = [case_label(case) for case in cases]
    return Comparison(_table(arms, labels, works, timed, environment), failures, notes)


def _quiet(_: str) -> None: ...


def _arms(checkout: Checkout, found: Working, backend: Backend, others: Mapping[str, str], base: str) -> list[Arm]:
    before, frontend = _before(checkout, found, base), found.task.file.frontend
    arms = [Arm("before", before, frontend)]
    if before != found.files:
        arms.append(Arm("after", found.files, frontend))
    arms.append(_calling(found, before, "torch", REFERENCE))
    if backend is Backend.CUDA:
        arms.append(_calling(found, before, "torch.compile", f"_torch.compile({REFERENCE})"))
    for name, text in others.items():
        if not re.fullmatch(r"[\w .+-]{1,40}", name):
            raise UsageError(f"--with {name}: a name has letters, digits, spaces and .+-_, 40 at most")
        if name in {arm.name for arm in arms}:
            raise UsageError(f"--with {name}: the table has a row of that name; give another")
        module, colon, function = text.rpartition(":") if ":" in text else (text, "", found.task.function)
        if not all(part.isidentifier() for part in function.split(".")):
            raise UsageError(f"--with {name}: {function!r} is no name of a function, such as rms_norm or Norm.apply")
        files = before
        if module.endswith(".py") or not colon:
            place = PurePosixPath(found.entry_file).with_name(f"{MODULE}.py").as_posix()
            try:
                files = before | {place: Path(module).read_bytes()}
            except OSError as error:
                raise UsageError(f"{module}: {error.strerror}; give a file that defines {function}") from None
            module = ".".join(filter(None, [found.task.module.rpartition(".")[0], MODULE]))
        elif not all(part.isidentifier() for part in module.split(".")):
            raise UsageError(f"--with {name}: write a file, file.py:function or module:function")
        call = f"_operator.attrgetter({function!r})(_importlib.import_module({module!r}))"
        arms.append(_calling(found, files, name, call, Frontend.TORCH if colon else frontend))
    return arms


def _calling(found: Working, files: Files, name: str, call: str, frontend: Frontend = Frontend.TORCH) -> Arm:
    """An arm that makes this call in the place of the entry point. All else of its module stays, since others may
    import it from there."""
    about = {"name": name, "call": call, "function": found.task.function, "outputs": found.task.file.outputs}
    source = files.get(found.entry_file, b"") + ROW.format(**about).encode()
    return Arm(name, files | {found.entry_file: source}, frontend)


def _before(checkout: Checkout, found: Working, base: str) -> Files:
    """The editable files as they were before all that is to be compared."""
    state = checkout.peek()
    if not base and state is not None and PurePosixPath(state.started.task) == found.folder:
        base = state.started.baseline if checkout.repository.branch() == state.started.branch else ""
    commit = checkout.repository.resolve(base or found.head)
    if commit is None:
        raise UsageError(f"this repository has no commit {base}: give one with --before")
    there = checkout.repository.files(commit, list(found.files))
    if not there:
        raise UsageError(f"commit {commit[:12]} has no {min(found.files)}: give another with --before")
    return there


def _table(
    arms: list[Arm], cases: list[str], works: list[Work], timed: list[list[Raced]], environment: Environment
) -> str:
    """The comparison as Markdown, a table for each case."""
    modelled = environment.backend is Backend.CPU
    mark = "~" if modelled else ""
    lines = []
    for index, case in enumerate(cases):
        work = works[index]
        bound = roofline_ms(work, environment.ceilings)
        memory = bound is None or bound[1] == "memory"
        done, rate = (work.bytes / 1e9, "GB/s") if memory else (work.flops / 1e12, "TFLOP/s")
        lines += [f"### {case}", "", f"| | latency, ms | speedup over before | {rate} | of ceiling |"]
        lines.append("|---|---:|---:|---:|---:|")
        for arm, by_case in zip(arms, timed, strict=True):
            raced = by_case[index]
            if raced.ms is None:
                lines.append(f"| {arm.name} | - | {raced.status} | - | - |")
                continue
            speedup = f"{mark}{raced.speedup:.3f} [{raced.low:.3f}, {raced.high:.3f}]" if raced.speedup else "1"
            ceiling = f"{bound[0] / raced.ms:.0%}" if bound is not None else "-"
            cells = [arm.name, f"{mark}{raced.ms:.6f}", speedup, f"{mark}{done / raced.ms * 1e3:.1f}", ceiling]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    how = "on" if modelled else "measured, interleaved, on"
    versions = f"torch {environment.torch}, {environment.toolkit}"
    return "\n".join([*lines, f"{how} {environment.device}; {versions}; compulsory bytes and flops by the task"])

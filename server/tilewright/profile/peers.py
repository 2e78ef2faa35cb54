"""`tilewright compare`: the candidate beside what a user would pick instead, in one run, as a table for a pull request.

The arms are the committed kernel (before), the working tree's (after), the task's own reference in torch, eager and
under torch.compile, and what the user names. On a GPU what they launch is captured, and replayed in turns.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tilewright.errors import UsageError
from tilewright.evaluation.results import ORIGINAL, Environment, Raced, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.gpu.specs import spec_by_arch, spec_by_name
from tilewright.knobs import HINTS, SpaceError
from tilewright.repository import Files
from tilewright.roofline.bounds import roofline_ms
from tilewright.session.beginning import Working, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.jobs import Progress
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend, Work, case_label

LIMIT_S = 1800.0
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


def {function}(**arguments):
    given = {{name: value for name, value in arguments.items() if name in _names or name not in (_outputs or ())}}
    named = _takes_all or given.keys() <= _names.keys()
    results = _call(**given) if named else _call(*given.values())
    if not _outputs:
        return results
    for name, result in zip(_outputs, results if isinstance(results, tuple | list) else [results]):
        arguments[name].copy_(result)
"""
TASKS_OWN = '_importlib.import_module("task").reference'


class Arm(NamedTuple):
    """One way to do the task's work."""

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
    """Time all arms on the task's benchmark cases. `others` are modules with the same entry point (PATH), functions of
    a file (PATH:NAME) or of a package (MODULE:NAME). `base` is the revision that has the kernel before; by default
    where the session of this branch began, else HEAD. Raises `UsageError`."""
    found = working_candidate(checkout, folder)
    if found.task.file.frontend is Frontend.TRITON and backend is Backend.CPU:
        raise UsageError("a Triton task is compared on a GPU: no model counts the traffic of Triton kernels")
    arms = _arms(checkout, found, backend, others, base)
    runs = Runs(backend, arch, found.committed, folder, rules=found.task.file.rules)
    try:
        environment = await runs.environment()
        works = await runs.work()
        await progress(f"comparing {', '.join(arm.name for arm in arms)}")
        files = [arm.files for arm in arms]
        if backend is Backend.CUDA:
            raced = await runs.race(files, new_secret(), LIMIT_S, _quiet, whole=True)
            if raced.status is not Status.PASSED:
                raise UsageError(f"{raced.status}: {raced.message}")
            cases, timed = raced.cases, raced.configs
        else:
            frontends = [arm.frontend for arm in arms]
            surveyed = await runs.survey(files, backend, LIMIT_S, _quiet, frontends)
            if surveyed.status is not Status.PASSED:
                raise UsageError(f"{surveyed.status}: {surveyed.message}")
            cases = surveyed.cases
            timed = [one.against(surveyed.variants[ORIGINAL], len(cases)) for one in surveyed.variants]
        for number, arm in enumerate(arms):
            passed = timed[number][0].status is Status.PASSED
            if passed and arm.frontend is found.task.file.frontend and number != ORIGINAL:
                await progress(f"checking {arm.name}")
                checked = await runs.correctness(arm.files, new_secret(), LIMIT_S, _quiet)
                if checked.status is not Status.PASSED:
                    timed[number] = [Raced(status=checked.status, message=checked.message) for _ in cases]
    finally:
        await runs.close()
    failures = [
        f"{arm.name}: {by_case[0].status}: {by_case[0].message}"
        for arm, by_case in zip(arms, timed, strict=True)
        if by_case[0].status is not Status.PASSED
    ]
    labels = [case_label(case) for case in cases]
    tables = [_table(arms, labels, works, timed, environment, backend is Backend.CPU), _configs(arms, found)]
    notes = []
    if arms[0].files == found.files:
        notes.append(
            "before is what the working tree has: nothing has changed since. Name the commit that has the kernel as it "
            "was, as in --before main"
        )
    return Comparison("\n\n".join(filter(None, tables)), failures, notes)


def _quiet(_: str) -> None: ...


def _arms(checkout: Checkout, found: Working, backend: Backend, others: Mapping[str, str], base: str) -> list[Arm]:
    before = _before(checkout, found, base)
    frontend = found.task.file.frontend
    arms = [Arm("before", before, frontend)]
    if before != found.files:
        arms.append(Arm("after", found.files, frontend))
    arms.append(_calling(found, before, "torch", TASKS_OWN))
    if backend is Backend.CUDA:
        arms.append(_calling(found, before, "torch.compile", f"_torch.compile({TASKS_OWN})"))
    for name, text in others.items():
        if not re.fullmatch(r"[\w .+-]{1,40}", name):
            raise UsageError(f"--with {name}: a name has letters, digits, spaces and .+-_, 40 at most")
        if name in {arm.name for arm in arms}:
            raise UsageError(f"--with {name}: the table has a row of that name; give another")
        module, colon, function = text.rpartition(":")
        if not all(part.isidentifier() for part in function.split(".")) and colon:
            raise UsageError(f"--with {name}: {function!r} is no name of a function, such as rms_norm or Norm.apply")
        if colon and not module.endswith(".py"):
            if not all(part.isidentifier() for part in module.split(".")):
                raise UsageError(f"--with {name}: write a file, file.py:function or module:function")
            imported = f"_operator.attrgetter({function!r})(_importlib.import_module({module!r}))"
            arms.append(_calling(found, before, name, imported))
        else:
            source = _module(found, name, Path(module or text), function if colon else "")
            arms.append(Arm(name, found.files | {found.entry_file: source}, Frontend.TORCH if colon else frontend))
    return arms


def _calling(found: Working, files: Files, name: str, call: str) -> Arm:
    """An arm that makes this call in the place of the entry point. All else of its module stays, since others may
    import it from there."""
    about = {"name": name, "call": call, "function": found.task.function, "outputs": found.task.file.outputs}
    source = files.get(found.entry_file, b"") + ROW.format(**about).encode()
    return Arm(name, files | {found.entry_file: source}, Frontend.TORCH)


def _module(found: Working, name: str, path: Path, function: str) -> bytes:
    """A file that takes the place of the entry point's module; `function`: what is the entry point there, if that has
    another name. Raises `UsageError`."""
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give a module that defines {found.task.function}") from None
    if found.task.module in _imports(source, found.task.module):
        raise UsageError(
            f"--with {name}: {path} imports {found.task.module}, whose place it takes while it is timed, so it "
            "would import itself: copy what it imports from there into it"
        )
    return source + (f"\n\n{found.task.function} = {function}\n".encode() if function else b"")


def _imports(source: bytes, module: str) -> set[str]:
    """The full names of what `source` imports as `module`; none where it is no Python, which its import will say."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*package, *filter(None, [node.module])])
            found |= {origin, *(f"{origin}.{alias.name}".lstrip(".") for alias in node.names)}
    return found


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


def _configs(arms: list[Arm], found: Working) -> str:
    """The arms' configs as Markdown, as their sources give them: whole numbers and switches that can be searched, and
    hints; empty where there are none."""
    rows = []
    for arm in arms:
        if arm.frontend is Frontend.TORCH:
            continue
        try:
            knobs = replace(found, files=arm.files).knobs()
        except SpaceError:  # no Python, which the table says
            continue
        numbers = [name for name, value in knobs.constants.items() if isinstance(value, int)]
        if config := knobs.original([*numbers, *HINTS]):
            rows.append(f"| {arm.name} | {' '.join(f'`{name}={value}`' for name, value in config.items())} |")
    return "\n".join(["| | config |", "|---|---|", *rows]) if rows else ""


def _table(
    arms: list[Arm],
    cases: list[str],
    works: list[Work],
    timed: list[list[Raced]],
    environment: Environment,
    modelled: bool,
) -> str:
    """The comparison as Markdown, a table for each case."""
    device = spec_by_name(environment.device) or spec_by_arch(environment.arch)
    mark = "~" if modelled else ""
    lines = []
    for index, case in enumerate(cases):
        work = works[index]
        bound = roofline_ms(work, environment.ceilings)
        memory = bound is None or bound[1] == "memory"
        peak = device.dram_bytes_per_s if memory else device.peak_flops(work.dtype)
        done = work.bytes if memory else work.flops
        rate, scale = ("GB/s", 1e9) if memory else ("TFLOP/s", 1e12)
        lines += [
            f"### {case}",
            "",
            f"| | latency, ms | speedup over before | {rate} | of peak | of ceiling |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for arm, by_case in zip(arms, timed, strict=True):
            raced = by_case[index]
            if raced.ms is None:
                lines.append(f"| {arm.name} | - | {raced.status} | - | - | - |")
                continue
            reached = done / raced.ms * 1e3
            speedup = f"{mark}{raced.speedup:.3f} [{raced.low:.3f}, {raced.high:.3f}]" if raced.speedup else "1"
            ceiling = f"{bound[0] / raced.ms:.0%}" if bound is not None else "-"
            cells = [f"{mark}{raced.ms:.6f}", speedup, f"{mark}{reached / scale:.1f}", f"{reached / peak:.0%}", ceiling]
            lines.append(f"| {' | '.join([arm.name, *cells])} |")
        lines.append("")
    how = "on" if modelled else "measured, interleaved, on"
    versions = f"torch {environment.torch}, {environment.toolkit}"
    return "\n".join([*lines, f"{how} {environment.device}; {versions}; compulsory bytes and flops by the task"])

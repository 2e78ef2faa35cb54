"""A task of a function that launches kernels, made of the calls that tests make of it: it is its own reference."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from tilewright.attach.finding import read_sources
from tilewright.attach.inputs import Call, Tensor, inputs_of
from tilewright.attach.repository import Proposal, check_command, tried
from tilewright.attach.trials import need_no_gpu, need_passing
from tilewright.attach.writing import task_py, task_toml
from tilewright.cases import volume
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.repository import Files
from tilewright.session.runs import backend_here
from tilewright.task import Backend, parse_task

SMALL_ELEMENTS, MODELLED_ELEMENTS = 2**16, 2**26
"""Of a case's dimensions multiplied, up to which kernels are interpreted, and up to which a CPU models them."""
LARGE_ELEMENTS = 2**28
"""Of all tensors of a call that is made again: comparing results takes some 20 bytes for each."""


def calls_of(
    files: Files, tree: Path, entry: str, test: str, select: str, import_root: str, tell: Callable[[str], None]
) -> tuple[str, list[Call], bool]:
    """The function, the calls that tests make of it, the largest first, and whether all tests pass that ran to their
    end. Of a module, the function is that with the most calls. Raises `UsageError` if there are none, or if a test
    fails on a GPU; without one, tests may fail for want of it, which is told."""
    chosen = ["-k", select] if select else []
    options = ["--tilewright-calls-of", entry, "--tilewright-calls-into", "{out}", "--junitxml={junit}"]
    words = ["python", "-m", "pytest", "-p", "tilewright.attach.capture", test, *chosen, *options]
    ran, ended_tests, out = tried(files, tree, words, [import_root])
    if not out:
        need_no_gpu(test, ran.last_words)
        raise UsageError(f"the tests: the command {ran.ended}\n{ran.last_words[-1200:]}")
    failed = [one for one in ended_tests if one.status is Status.FAILED]
    if failed and backend_here() is Backend.CUDA:
        raise UsageError(f"{failed[0].id} fails before anything was changed: {failed[0].message}")
    if failed:
        tell(f"{failed[0].id} fails here: {failed[0].message}")
    noted = [Call(**one | {"tensors": _tensors(one["tensors"])}) for one in json.loads(out)]
    if not noted:
        summary = next(reversed(ran.last_words.strip().splitlines()), "").strip("= ")
        raise UsageError(
            f"no test of {test} that ran calls {entry} ({summary}): give --shape instead, or another --test"
        )
    calls = [call for call in noted if call.tensors and not call.others]
    if not calls:
        kinds = [f"argument {name} is a {kind}" for name, kind in noted[-1].others.items()]
        raise UsageError(
            f"no call that {test} makes can be made by a task ({(*kinds, 'it has no tensor')[0]}). Its arguments are "
            "tensors, numbers, words and None, and lists and tuples of these: write a function that takes such alone "
            "and calls this one, commit it, and name that"
        )
    [(function, _)] = Counter(call.function for call in calls).most_common(1)
    calls = [call for call in calls if call.function == function]
    return function, sorted(calls, key=lambda call: (call.has_empty, -call.elements)), not failed


def _tensors(noted: dict[str, dict[str, Any]]) -> dict[str, Tensor]:
    return {name: Tensor(**tensor) for name, tensor in noted.items()}


def by_baseline(
    files: Files,
    head: dict[str, Any],
    calls: list[Call],
    tests: list[str],
    adapter: dict[str, str],
    tell: Callable[[str], None],
) -> Proposal:
    """A task whose reference is the function as it is: the tests' largest calls are its cases, all others are hidden.
    Sizes that no test has are not tried, since nobody knows whether the function is right there."""
    fitting = [call for call in calls if call.elements <= LARGE_ELEMENTS]
    if all(call.has_empty for call in fitting):
        raise UsageError("all calls of the tests have over 2^28 elements: add a test with a smaller call")
    drawn = any("float" in tensor.dtype for tensor in fitting[0].tensors.values())  # else nothing would be secret
    inputs = inputs_of(fitting, records=drawn)
    head = head | {"reference": "baseline"}
    looked_at = [call.written for call in calls if call.written is not None]
    if filled := [name for name in inputs.shapes if looked_at and all(name in one for one in looked_at)]:
        head["outputs"] = filled
    beside = adapter | {"task.py": task_py("", "", inputs)}
    if any(inputs.recorded):
        beside["calls.json"] = json.dumps(inputs.recorded, indent=1) + "\n"
    cases = [*inputs.cases, *inputs.others]
    small = [case for case in cases if _elements(case) <= SMALL_ELEMENTS]
    visible = [case | ({"backend": "cuda"} if _elements(case) > MODELLED_ELEMENTS else {}) for case in inputs.cases]
    visible += [case | {"backend": "cpu"} for case in small[:1]]
    if backend_here() is Backend.CPU and all(case.get("backend") == "cuda" for case in visible):
        raise UsageError(
            "all calls of the tests are too large for a machine without a GPU, where kernels are interpreted: run init "
            "on a machine that has one, or add a test with a small call"
        )
    seen = [
        "the reference is the function as it is now: an error that it has is not seen",
        f"cases: {len(inputs.cases)} calls of the tests, the largest; hidden: {len(inputs.others)} others",
        f"before a candidate is kept it passes {' '.join(tests)}",
    ]
    if len(fitting) < len(calls):
        seen.append(f"left out: {len(calls) - len(fitting)} calls whose tensors have over 2^28 elements")
    text = task_toml(head, visible, _hidden(inputs.others), {}, [], tests)
    proposal = Proposal(PurePosixPath("perf") / head["name"], text, seen, beside, inputs.open)
    return checked(proposal, files, head["frontend"], tell)


def checked(proposal: Proposal, files: Files, frontend: str, tell: Callable[[str], None]) -> Proposal:
    """The proposal, which has passed the check with which a session begins, and the command that works on it next. If a
    person has to fill something in, it is only read. Raises `UsageError`."""
    parse_task(proposal.text, Path("task.toml"))
    if proposal.is_open:
        return proposal
    tell("checking the function as a session will")
    need_passing(proposal.among(files), proposal.folder)
    measured = frontend != "triton" or backend_here() is Backend.CUDA
    return replace(proposal, then="session start" if measured else "check")


def _hidden(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A hidden table for each case. Without a GPU, kernels are interpreted on the small ones alone."""
    tables = [(case, {key: {"choices": [value]} for key, value in case.items()}) for case in cases]
    if small := [table | {"backend": "cpu"} for case, table in tables if _elements(case) <= SMALL_ELEMENTS]:
        return [*(table for _, table in tables), *small]
    return [table | {"backend": "cuda"} for _, table in tables]


def _elements(case: dict[str, Any]) -> int:
    return volume({**case, "call": 1})


def tests_command(test: str, select: str, files: Files) -> list[str]:
    """The command that runs the tests of a file or a folder, without those that measure."""
    place = test.partition("::")[0]
    inside = {name: content for name, content in files.items() if PurePosixPath(name).is_relative_to(place)}
    perf = [name for source in read_sources(inside).values() for name in source.perf_functions]
    return check_command(test, perf, select)

"""What a function passes, as a referee finds out, and the session's own check of the task that is made of it."""

from __future__ import annotations

import asyncio
import dataclasses
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tilewright.attach.sizes import Dimension
from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Evaluator, EvaluatorDied
from tilewright.evaluation.results import CorrectnessResult
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.repository import Files
from tilewright.session.checks import ARCH
from tilewright.session.outcomes import Dumped
from tilewright.session.runs import Runs, backend_here
from tilewright.task import Backend, Frontend, Task, parse_task
from tilewright.taskerrors import TaskError

LIMIT_S = 300.0
COMPILE_S = 60.0
BUDGET_S = 240.0
"""For all runs on a backend."""
CHECK_SECRET = "init, the check"
WANTS_GPU = re.compile(
    r"not compiled with CUDA|no NVIDIA driver|no CUDA GPUs|there is no GPU here|CUDA (is )?not available|"
    r"not linked with support for cuda|has no attribute '_cuda|(needs|requires?) (a )?(CUDA|GPU)|"
    r"UnsupportedOperation|no answer within",
    re.IGNORECASE,
)
"""What is said by a function that may be right on a GPU."""


class Limits(NamedTuple):
    """What a task adds to the cases asked for: cases for the CPU, hidden ranges, classes of values to leave out with
    why, and remarks on what was narrowed. `asked`: what is said of the cases asked for."""

    asked: dict[str, Any]
    cases: list[dict[str, Any]]
    hidden: list[dict[str, Any]]
    excluded: dict[str, str]
    remarks: list[str]


def tried_out(
    files: Files,
    folder: PurePosixPath,
    dimensions: Mapping[str, Dimension],
    last: str,
    tests: Sequence[str],
    hint: str,
    tell: Callable[[str], None],
) -> Limits:
    """What the function passes of the task drafted in `folder`: interpreted on the CPU, and on a GPU if there is one.
    Raises `UsageError` if it gives other values than its reference, or does not take the shape. `tests`: the test
    behind each visible case, if there is one. `hint` says more."""
    task = _task(files, folder)
    asked = {"dimensions": {name: dataclasses.asdict(one) for name, one in dimensions.items()}, "last": last}
    answers: dict[Backend, dict[str, Any]] = {}
    failed = ""
    for backend in (Backend.CPU, Backend.CUDA) if backend_here() is Backend.CUDA else (Backend.CPU,):
        tell(f"trying sizes and values on {task.file.entry} itself, on the {_device(backend)}")
        answer = asyncio.run(_answer(files, task, folder, backend, asked, tell))
        if "failed" not in answer:
            answers[backend] = answer
        elif answer["wrong"] or backend is Backend.CUDA or not WANTS_GPU.search(answer["failed"]):
            of = f", as {tests[answer['case']]} calls it," if any(tests) else ""
            raise UsageError(
                f"{task.file.entry}{of} fails against its reference before anything was changed: {answer['failed']}"
                f"{hint}"
            )
        else:
            failed = answer["failed"]
    measured = answers.get(Backend.CUDA) or answers.get(Backend.CPU)
    if measured is None:
        raise UsageError(f"{task.file.entry} needs a GPU, and this machine has none: {failed}{hint}")
    limits = Limits({}, [], [measured["hidden"]] if measured["hidden"] else [], {}, [])
    if on_cpu := answers.get(Backend.CPU):
        base = task.file.cases[0].case
        longer = [base | on_cpu["long"]] if on_cpu["long"] else []
        limits.cases.extend(case | {"backend": "cpu"} for case in (*on_cpu["small"], *longer))
        if on_cpu["hidden_small"]:
            limits.hidden.append(on_cpu["hidden_small"] | {"backend": "cpu"})
        else:  # a check on the CPU would else draw from the large ranges
            limits.hidden[:] = [table | {"backend": "cuda"} for table in limits.hidden]
        if not on_cpu["modelled"]:
            limits.asked["backend"] = "cuda"
            limits.remarks.append("The cases asked for are too large for a machine without a GPU: it models small ones")
    else:
        limits.remarks.append(f"It fails on the CPU: {failed}. A session without a GPU cannot start")
    for backend, answer in answers.items():
        where = f"{answer['runs']} runs on the {_device(backend)}"
        limits.excluded.update(answer["excluded"])
        if answer["narrowed"]:
            limits.remarks.append(f"Hidden sizes are narrowed to what the function itself passed in {where}:")
            limits.remarks.extend(f"  {name}: {why}" for name, why in sorted(answer["narrowed"].items()))
        else:
            limits.remarks.append(f"The function itself passed all sizes that were tried, in {where}")
    if limits.excluded:
        values, why = next(iter(limits.excluded.items()))
        limits.remarks.append(f"Values left out: {', '.join(limits.excluded)}; with {values}, {why}")
    return limits


def need_passing(files: Files, folder: PurePosixPath) -> None:
    """Run the check with which a session begins. Raises `UsageError` if the function does not pass it, or if a kernel
    of it does not compile. `files` are the repository's with the task's."""
    task = _task(files, folder)
    editable, backend = _editable(task, files, folder), backend_here()
    runs = Runs(backend, ARCH, files, folder)

    async def judged() -> tuple[CorrectnessResult, Dumped | None]:
        try:
            check = await runs.correctness(editable, CHECK_SECRET, LIMIT_S, lambda _: None)
            dump = None
            if backend is Backend.CPU and task.file.frontend is Frontend.CUTILE:  # there the check has interpreted them
                dump = await runs.dump(editable, [ARCH], COMPILE_S, LIMIT_S, lambda _: None)
            return check, dump
        finally:
            await runs.close()

    check, dump = asyncio.run(judged())
    broken = next((kernel.made for kernel in dump.kernels if kernel.made.error), None) if dump else None
    if broken is not None:
        ascii_only = "" if broken.kernel.isascii() else ": give it a name of ASCII letters, which are all that it takes"
        raise UsageError(f"cuTile's compiler fails on the kernel {broken.kernel} as it is{ascii_only}: {broken.error}")
    if not check.passed:
        raise UsageError(
            f"{task.file.entry} does not pass a session's check before anything was changed: {check.message}; narrow "
            "the sizes with --range NAME=MIN..MAX"
        )


async def _answer(
    files: Files,
    task: Task,
    folder: PurePosixPath,
    backend: Backend,
    asked: dict[str, Any],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    evaluator = Evaluator(backend, ARCH, "tilewright.attach.referee")
    try:
        store = SnapshotStore(evaluator.folder, files, folder)
        store.write_baseline()
        [snapshot] = store.write(_editable(task, files, folder))
        message = {"task": str(store.task_folder()), "arms": [snapshot.model_dump(mode="json")], "limit_s": BUDGET_S}
        reply = await evaluator.request("trials", tell, BUDGET_S + LIMIT_S, **message, **asked)
        answer: dict[str, Any] = reply["answer"]
        return answer
    except (TaskError, EvaluatorDied, TimeoutError, ValueError) as error:
        raise UsageError(f"{task.file.entry} could not be tried: {error}") from None
    finally:
        await evaluator.close()


def _task(files: Files, folder: PurePosixPath) -> Task:
    path = folder / "task.toml"
    return Task(parse_task(files[str(path)].decode(), Path(path)), Path(folder))


def _editable(task: Task, files: Files, folder: PurePosixPath) -> Files:
    return {name: files[name] for name in (posixpath.normpath(folder / path) for path in task.file.editable)}


def _device(backend: Backend) -> str:
    return "CPU" if backend is Backend.CPU else "GPU"

"""What a function takes, as two programs of their own find out: the probe by its reference, then by itself."""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tilewright.attach.narrowing import AGAIN, TOO_LONG, shortened
from tilewright.attach.trial import Trial, Tried
from tilewright.errors import UsageError
from tilewright.evaluation.results import CorrectnessResult
from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Files
from tilewright.session.checks import ARCH
from tilewright.session.outcomes import Dumped
from tilewright.session.runs import Runs, backend_here
from tilewright.task import Backend, Frontend, parse_task

LIMIT_S = 300.0
COMPILE_S = 60.0
BUDGET_S = 240.0
"""For all runs on a backend."""
WANTS_GPU = re.compile(
    r"not compiled with CUDA|no NVIDIA driver|no CUDA GPUs|there is no GPU here|CUDA (is )?not available|"
    r"(needs|requires?) (a )?(CUDA|GPU)",
    re.IGNORECASE,
)
"""What is said where there is no GPU."""
_ONLY_GPU = re.compile(rf"{WANTS_GPU.pattern}|UnsupportedOperation|{TOO_LONG}", re.IGNORECASE)
"""Why a trial on the CPU fails although the function may be right on a GPU."""
STARTS = 20
"""Of a process that runs of the function end."""


class Limits(NamedTuple):
    """What a task adds to the cases asked for: cases for the CPU, hidden ranges, classes of values to leave out with
    why, and remarks on what was narrowed. `failed`: the function fails where it could run."""

    cases: list[dict[str, Any]]
    hidden: list[dict[str, Any]]
    excluded: dict[str, str]
    remarks: list[str]
    failed: bool = False


def probed(trial: Trial, request: dict[str, Any], import_root: str) -> dict[str, Any]:
    """What the probe finds out. Raises `UsageError` where it cannot."""
    found = _answer(trial, "probe", request["entry"], request, import_root)
    if "unusable" in found:
        raise UsageError(f"{request['entry']}: {found['unusable']}")
    return found


def tried_out(
    trial: Trial,
    entry: str,
    folder: str,
    found: Mapping[str, Any],
    dtype: str,
    import_root: str,
    alike: str,
    tell: Callable[[str], None],
) -> Limits:
    """What the function passes of the task that was drafted in `folder`: interpreted on the CPU, and on a GPU where
    there is one. Raises `UsageError` where it gives other values than its reference, or does not take the shape.
    `alike` says which tensors were given one shape, where that may be why it fails."""
    request = {"folder": folder, "sizes": found["sizes"], "last": found["last"], "dtype": dtype}
    answers: dict[Backend, dict[str, Any]] = {}
    failed = ""
    for backend in (Backend.CPU, Backend.CUDA) if backend_here() is Backend.CUDA else (Backend.CPU,):
        tell(f"trying sizes and values on {entry} itself, on the {'CPU' if backend is Backend.CPU else 'GPU'}")
        answer = _tried(trial, entry, request | {"backend": backend}, import_root)
        if "failed" not in answer:
            answers[backend] = answer
        elif answer["wrong"] or backend is Backend.CUDA:
            raise UsageError(
                f"{entry} fails against its reference before anything was changed, on tensors in {dtype} (--dtype "
                f"gives others): {answer['failed']}{alike}"
            )
        else:
            failed = answer["failed"]
        if full := answer.get("full", ""):
            raise UsageError(f"{entry} does not take the shape that was given: {full}; give one that it takes{alike}")
    cases, hidden, excluded, remarks = list[dict[str, Any]](), list[dict[str, Any]](), dict[str, str](), list[str]()
    measured = answers.get(Backend.CUDA) or answers.get(Backend.CPU)
    if failed:
        lacking = "no cases for it" if measured else "no cases for it and no hidden cases"
        so = f"So there are {lacking}, and a session without a GPU cannot start"
        remarks.append(f"The trial on the CPU failed: {failed}. {so}{alike}")
    if measured is None:
        return Limits(cases, hidden, excluded, remarks, failed=not _ONLY_GPU.search(failed))
    hidden += [measured["hidden"]] if measured["hidden"] else []
    if on_cpu := answers.get(Backend.CPU):
        for sizes in filter(None, (on_cpu["small"], on_cpu["long"])):
            cases.append(sizes | {"dtype": dtype, "backend": "cpu"})
        hidden += [on_cpu["hidden_small"] | {"backend": "cpu"}] if on_cpu["hidden_small"] else []
    for backend, answer in answers.items():
        where = f"{answer['runs']} runs on the {'CPU' if backend is Backend.CPU else 'GPU'}"
        excluded |= answer["excluded"]
        if answer["narrowed"]:
            remarks.append(f"Hidden sizes are narrowed to what the function itself passed in {where}:")
            remarks += [f"  {dim}: {why}" for dim, why in sorted(answer["narrowed"].items())]
        else:
            remarks.append(f"The function itself passed all sizes that were tried, in {where}")
        if answer["excluded"]:
            values, why = next(iter(answer["excluded"].items()))
            remarks.append(f"Values left out: {', '.join(answer['excluded'])}; with {values}, {why}")
    return Limits(cases, hidden, excluded, remarks)


def confirmed(files: Files, folder: PurePosixPath) -> list[str]:
    """Remarks on what a session's own check says of the function as it is; none where it passes. `files` are the
    repository's with the task's. Raises `UsageError` where a kernel of it does not compile."""
    task = parse_task(files[f"{folder}/task.toml"].decode(), Path(folder, "task.toml"))
    editable = {name: files[name] for name in (posixpath.normpath(folder / path) for path in task.editable)}
    backend = backend_here()
    runs = Runs(backend, ARCH, files, folder)

    async def judged() -> tuple[CorrectnessResult | None, Dumped | None]:
        modelled = runs if backend is Backend.CPU else Runs(Backend.CPU, ARCH, files, folder)
        try:
            check = None
            if backend is Backend.CUDA or any(entry.backend is Backend.CPU for entry in task.cases):
                check = await runs.correctness(editable, new_secret(), LIMIT_S, lambda _: None)
            dump = None
            if task.frontend is Frontend.CUTILE:
                dump = await modelled.dump(editable, [ARCH], COMPILE_S, LIMIT_S, lambda _: None)
            return check, dump
        finally:
            await runs.close()
            await modelled.close()

    check, dump = asyncio.run(judged())
    broken = next((kernel.made for kernel in dump.kernels if kernel.made.error), None) if dump else None
    if broken is not None:
        ascii_only = "" if broken.kernel.isascii() else ": give it a name of ASCII letters, which are all that it takes"
        raise UsageError(f"cuTile's compiler fails on the kernel {broken.kernel} as it is{ascii_only}: {broken.error}")
    if check is None or check.passed:
        return []
    said = shortened(check.message)
    return [f"A session's own check of the function as it is ends with {check.status}: {said}. Put it right first"]


def _answer(trial: Trial, program: str, entry: str, request: dict[str, Any], import_root: str) -> dict[str, Any]:
    tried = _run(trial, program, request, import_root)
    if tried.ran.status != 0 or not tried.out:
        raise _not_tried(entry, tried)
    found: dict[str, Any] = json.loads(tried.out)
    return found


def _tried(trial: Trial, entry: str, request: dict[str, Any], import_root: str) -> dict[str, Any]:
    """The answer of `attach/trying.py`, which is started again where a run of the function ended its process."""
    until, known = time.monotonic() + BUDGET_S, list[Any]()
    secret = new_secret()
    for _ in range(STARTS):
        left = {"secret": secret, "known": known, "seconds": until - time.monotonic()}
        tried = _run(trial, "trying", request | left, import_root)
        lines = [json.loads(line) for line in tried.out.splitlines() if line.endswith(("]", "}"))]
        if lines and isinstance(lines[-1], dict):
            return lines[-1]
        known += lines
        if tried.ran.status not in (None, 0, AGAIN):
            break
        if tried.ran.status != AGAIN:
            known.append([TOO_LONG if "SIGALRM" in tried.ran.ended else f"the process {tried.ran.ended}", False])
    raise _not_tried(entry, tried)


def _run(trial: Trial, program: str, request: dict[str, Any], import_root: str) -> Tried:
    words = ["python", "-m", f"tilewright.attach.{program}", json.dumps(request), "{out}"]
    return trial.run(words, [import_root], LIMIT_S)


def _not_tried(entry: str, tried: Tried) -> UsageError:
    return UsageError(f"{entry} could not be tried: the process {tried.ran.ended}\n{tried.ran.last_words[-1200:]}")

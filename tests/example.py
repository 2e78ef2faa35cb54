"""python -m tests.example SCRIPT    check a launch of an example against its task, on the GPU or interpreted

A tuned launch must be right, tune once for a shape, and not tune at all under DISABLE_AUTOTUNE=1. A process that was
started with DISABLE_AUTOTUNE=1 checks the untuned launch alone. Triton's interpreter needs TRITON_INTERPRET=1.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import torch

from tilewright.evaluation.correctness import judge
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.task import Backend, Frontend, Task, case_label, load_task

SWITCH = "DISABLE_AUTOTUNE"


def problems(script: Path) -> Iterator[str]:
    """What is wrong with the launch in a script of an example's folder."""
    task = load_task(script.parent)
    backend = Backend.CUDA if torch.cuda.is_available() else Backend.CPU
    code = TaskCode(task, backend)
    if backend is Backend.CPU:
        _interpret(task)
    sys.path.insert(0, str(script.parent))
    module = importlib.import_module(script.stem)
    cache = getattr(module, "_tuned", {})
    if script.name == "autotuned_launch.py" and os.environ.get(SWITCH) != "1":
        yield from _wrong(task, code, backend, module)
        tuned = dict(cache)
        if not tuned:
            yield "nothing was tuned"
        yield from _wrong(task, code, backend, module)
        if cache != tuned:
            yield "a second call for the same shape tuned again"
        cache.clear()
        os.environ[SWITCH] = "1"
    yield from _wrong(task, code, backend, module)
    if cache:
        yield f"tuned although {SWITCH}=1"


def _interpret(task: Task) -> None:
    host.install(spec_by_arch("sm_90"))
    if task.file.frontend is Frontend.TRITON:
        from tilewright.interpreter import tritonhost

        tritonhost.install(spec_by_arch("sm_90"), interpret=True)


def _wrong(task: Task, code: TaskCode, backend: Backend, module: ModuleType) -> Iterator[str]:
    """The cases on which the module's entry point is wrong, with fresh inputs."""
    for case in task.correctness_cases(backend):
        inputs = code.inputs(case, seed=int.from_bytes(os.urandom(4)))
        expected, contract = code.expected(case, inputs), code.contract(case, inputs)
        arguments = code.arguments(case, inputs, contract)
        with nullcontext() if backend is Backend.CUDA else host.running(host.Mode.RUN):
            result = getattr(module, task.function)(**arguments)
        if task.file.outputs:
            result = [arguments[name] for name in task.file.outputs]
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        judgement = judge(task, outputs, expected, contract)
        if judgement.status is not Status.PASSED:
            yield f"{case_label(case)}: {judgement.message}"


if __name__ == "__main__":
    lines = list(problems(Path(sys.argv[1]).resolve()))
    print("\n".join(lines) or "PASS")
    raise SystemExit(bool(lines))

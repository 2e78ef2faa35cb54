"""What an example does when it is run as a script: check itself on the GPU, or interpreted where there is none.

Exit codes: 0 all assertions held, 1 one did not. For a verdict to trust, use a session: this runs in one process.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from tilewright.evaluation.correctness import judge
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.task import Backend, Case, Frontend, case_label, load_task

Entry = Callable[..., Any]
SWITCH = "DISABLE_AUTOTUNE"
NOISE = 0.97
"""A tuned launch this close to the fixed one counts as no slower: the fixed config is in its space."""


class _Example:
    def __init__(self, script: str) -> None:
        self.on_gpu = torch.cuda.is_available()
        self.backend = Backend.CUDA if self.on_gpu else Backend.CPU
        self.task = load_task(Path(script).resolve().parent)
        self.code = TaskCode(self.task, self.backend)
        if not self.on_gpu:
            host.install(spec_by_arch("sm_90"))
            if self.task.file.frontend is Frontend.TRITON:
                _interpret_triton()

    def running(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.on_gpu else host.running(host.Mode.RUN)

    def wrong(self, entry: Entry, case: Case) -> str:
        """Call `entry` on fresh inputs; empty if its outputs are right, else what is wrong."""
        inputs = self.code.inputs(case, seed=int.from_bytes(os.urandom(4)))
        expected, contract = self.code.expected(case, inputs), self.code.contract(case, inputs)
        arguments = self.code.arguments(case, inputs, contract)
        with self.running():
            result = entry(**arguments)
        if self.task.file.outputs:
            result = [arguments[name] for name in self.task.file.outputs]
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        found = judge(self.task, outputs, expected, contract)
        return "" if found.status is Status.PASSED else f"{case_label(case)}: {found.message}"

    def first_wrong(self, entry: Entry) -> str:
        return next(filter(None, (self.wrong(entry, case) for case in self.task.correctness_cases(self.backend))), "")


def _interpret_triton() -> None:
    """Have Triton's interpreter run the kernels: it has to be asked before they are defined, so start anew."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | {"TRITON_INTERPRET": "1"})
    from tilewright.interpreter import tritonhost

    tritonhost.install(spec_by_arch("sm_90"), interpret=True)


def _report(name: str, problem: str, detail: str) -> int:
    print(f"{name}: {'FAIL: ' + problem if problem else 'PASS'} ({detail})")
    return 1 if problem else 0


def check(script: str, entry: Entry) -> int:
    """Check a fixed launch against its task's reference."""
    example = _Example(script)
    return _report(Path(script).name, example.first_wrong(entry), _where(example))


def check_autotuned(script: str, entry: Entry, cache: dict[Any, Any]) -> int:
    """Check a tuned launch: right, tunes once for a shape, not at all under DISABLE_AUTOTUNE, and no slower. A process
    that was started with DISABLE_AUTOTUNE=1 checks the untuned launch alone."""
    example = _Example(script)
    if os.environ.get(SWITCH, "0") == "1":
        problem = _problem_untuned(example, entry, cache)
        return _report(Path(script).name, problem, f"{_where(example)}; not tuned: {SWITCH}=1")
    problem = _problem_tuned(example, entry, cache)
    cache.clear()
    os.environ[SWITCH] = "1"
    problem = problem or _problem_untuned(example, entry, cache)
    del os.environ[SWITCH]
    detail = _where(example)
    if not problem and example.on_gpu:
        fixed = getattr(importlib.import_module(example.task.module), example.task.function)
        speedup = _speedup(example, fixed, entry)
        detail += f"; {speedup:.3f} times the speed of {example.task.module}.py"
        detail += "".join(f"; best {vars(config)}" for config, _ in cache.values())
        if speedup < NOISE:
            problem = f"slower than {example.task.module}.py"
    return _report(Path(script).name, problem, detail)


def _problem_tuned(example: _Example, entry: Entry, cache: dict[Any, Any]) -> str:
    """What is wrong with a launch that may tune; empty if nothing is."""
    problem = example.first_wrong(entry)
    tuned = dict(cache)
    if not problem and not tuned:
        problem = "nothing was tuned"
    problem = problem or example.first_wrong(entry)
    if not problem and cache != tuned:
        problem = "a second call for the same shape tuned again"
    return problem


def _problem_untuned(example: _Example, entry: Entry, cache: dict[Any, Any]) -> str:
    """What is wrong with a launch that must not tune; empty if nothing is."""
    problem = example.first_wrong(entry)
    if not problem and cache:
        problem = f"tuned although {SWITCH}=1"
    return problem


def _where(example: _Example) -> str:
    if example.on_gpu:
        return torch.cuda.get_device_name()
    return f"{'run' if example.task.file.frontend is Frontend.TORCH else 'interpreted'} on the CPU: no GPU here"


def _speedup(example: _Example, fixed: Entry, tuned: Entry) -> float:
    """Median ratio of paired times, fixed over tuned, on the first case."""
    case = example.task.benchmark_cases(example.backend)[0]
    inputs = example.code.arguments(case, example.code.inputs(case, seed=0))
    ratios: list[float] = []
    for round_number in range(25):
        times = {}
        for entry in (fixed, tuned) if round_number % 2 else (tuned, fixed):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            entry(**inputs)
            start.record()
            for _ in range(5):
                entry(**inputs)
            end.record()
            torch.cuda.synchronize()
            times[entry] = start.elapsed_time(end)
        ratios.append(times[fixed] / times[tuned])
    return statistics.median(ratios)

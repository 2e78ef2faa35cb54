"""Tasks for tests of the referee alone: a drawn tensor `x` of M by N, and a reference of a few lines."""

from __future__ import annotations

from pathlib import Path

from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, load_task

TOML = """
name = "drafted"
entry = "kernel:run"
editable = ["kernel.py"]
frontend = "torch"
[[cases]]
M = 12
N = 9
dtype = "bfloat16"
"""
TASK = """
import torch
from tilewright.task import Work

def make_inputs(case, generator):
    draw = lambda *size: torch.randn(*size, generator=generator).to(getattr(torch, case["dtype"]))
    return {{"x": {draw}}}

def reference(x):
    {reference}

def work(case):
    return Work(bytes=8, flops=8, dtype="float32")
"""
DRAW = 'draw(case["M"], case["N"])'


def task_of(folder: Path, reference: str, draw: str = DRAW) -> TaskCode:
    """The code of a task whose reference has this body, and whose inputs are x, drawn by `draw`, and what follows."""
    folder.mkdir(exist_ok=True)
    (folder / "task.toml").write_text(TOML)
    (folder / "kernel.py").write_text("def run(x):\n    return x\n")
    (folder / "task.py").write_text(TASK.format(draw=draw, reference=reference))
    return TaskCode(load_task(folder), Backend.CPU)

"""A candidate of the battery: the incumbent of a task with edits, and code behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import indent

from tilewright.task import Backend

TASKS = Path(__file__).parent / "tasks"
BACKENDS = {"cpu": ("cpu", "both"), "cuda": ("gpu", "both")}


@dataclass(frozen=True)
class Candidate:
    """A kernel for the task of that name.

    `title` says what it does, and `code` what it adds to the task's own kernel. If `code` defines the entry point,
    the kernel's own is called `right`. `edits`: replacements in the task's kernel. `backend`: `cpu`, `gpu` or `both`.
    `ends`: `crashed` or `crashed-on-cpu` if a crash is what stops it.
    """

    task: str
    title: str
    code: str = ""
    edits: Mapping[str, str] = field(default_factory=dict)
    backend: str = "both"
    ends: str = "refused"

    def __post_init__(self) -> None:
        if self.backend not in ("cpu", "gpu", "both") or not (TASKS / self.task).is_dir():
            raise ValueError(f"{self.title}: no such backend or task")

    def runs_on(self, backend: Backend) -> bool:
        return self.backend in BACKENDS[backend.value]

    @property
    def source(self) -> str:
        kernel = (TASKS / self.task / "kernel.py").read_text(encoding="utf-8")
        for old, new in self.edits.items():
            if old not in kernel:
                raise ValueError(f"{self.title}: the kernel has no {old!r}")
            kernel = kernel.replace(old, new)
        if any(f"\n{line}" in self.code for line in (f"def {self.task}(", f"{self.task} = ")):
            kernel = kernel.replace(f"def {self.task}(", "def right(")
        return f"{kernel}\n{self.code}"


def cuda_rowsum(kernel: str, arguments: str = "", before: str = "") -> str:
    """The code of a row sum in CUDA C++. `total_of` sums a row by one thread and many times over, so that it is slower
    than the incumbent unless it cheats. `arguments`: what the launch hands over beyond x, out and the columns;
    `before`: lines of the entry point before it."""
    return f'''
from torch.cuda import _compile_kernel

SOURCE = r"""
__device__ float total_of(const volatile float *x, long columns) {{
    float sum = 0;
    for (int pass = 0; pass < 16; ++pass) {{
        sum = 0;
        for (long i = 0; i < columns; ++i) sum += x[blockIdx.x * columns + i];
    }}
    return sum;
}}
{kernel}
"""
_compiled, _kept = [], {{}}


def rowsum(x):
    x = x.contiguous()
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
{indent(before, "    ")}
    if not _compiled:
        _compiled.append(_compile_kernel(SOURCE, "rowsum_kernel"))
    _compiled[0]((x.shape[0], 1, 1), (1, 1, 1), (x, out, x.shape[1], {arguments}))
    return out
'''

"""What the watched processes have in common: how they confine themselves, and where they find the candidate.

Imports no torch: a process that is to be confined before a thread starts imports this first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.isolation.confinement import confine
from tilewright.task import Backend, load_task

if TYPE_CHECKING:
    from tilewright.evaluation.candidate import Candidate
    from tilewright.evaluation.taskcode import TaskCode


def confine_here(root: str) -> None:
    """Confine this process to its working directory and to reading below `root`, and say how far that went."""
    print(f"isolation: {confine(writable=[Path.cwd()], readable=[Path(root)])}", flush=True)


def loaded(folder: Path) -> tuple[TaskCode, Candidate]:
    """The code of the task in `folder`, for a GPU, and its entry point. Raises `CandidateFailure`."""
    from tilewright.evaluation.candidate import Candidate
    from tilewright.evaluation.taskcode import TaskCode

    task = load_task(folder)
    code = TaskCode(task, Backend.CUDA)
    paths = [folder / path for path in task.file.python_path]
    return code, Candidate(folder, paths, task.module, task.function, task.file.outputs)

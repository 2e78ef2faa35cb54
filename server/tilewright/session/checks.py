"""`tilewright check`: a task's kernels without a session and without a GPU: cuTile's under the interpreter's checker,
other tasks against their reference."""

from __future__ import annotations

from pathlib import Path

from tilewright.evaluation.results import CorrectnessResult
from tilewright.evaluation.seeds import new_secret
from tilewright.session.beginning import task_path, working_candidate
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.jobs import Progress
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend

LIMIT_S = 600.0
ARCH = "sm_90"


async def check_task(root: Path, path: Path, progress: Progress) -> CorrectnessResult:
    """Check the working tree's kernels of the task that `path` is, or lies in. Raises `Misuse`."""
    checkout = Checkout(root.resolve())
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    while not folder.is_relative_to(checkout.root) or not (folder / "task.toml").is_file():
        if folder == folder.parent or not folder.is_relative_to(checkout.root):
            raise Misuse(f"{path} lies in no task's folder: there is no task.toml beside it, nor above")
        folder = folder.parent
    place = task_path(checkout, str(folder.relative_to(checkout.root)))
    found = working_candidate(checkout, place)
    runs = Runs(Backend.CPU, ARCH, found.committed, place)
    try:
        await progress("checking")
        work = runs.check if found.task.file.frontend is Frontend.CUTILE else runs.correctness
        return await work(found.files, new_secret(), LIMIT_S, lambda _: None)
    finally:
        await runs.close()

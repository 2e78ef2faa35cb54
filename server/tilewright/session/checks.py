"""`tilewright check`: a task's kernels without a session and without a GPU: cuTile's under the interpreter's checker,
other tasks against their reference."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from tilewright.evaluation.results import CorrectnessResult
from tilewright.evaluation.seeds import new_secret
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.jobs import Progress
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend

LIMIT_S = 600.0
ARCH = "sm_90"


async def check_task(root: Path, path: Path, progress: Progress) -> CorrectnessResult:
    """Check the working tree's kernels of the task that `path`, relative to `root`, is or lies in, after the functions
    of its task.py. Raises `Misuse`."""
    checkout = Checkout(root.resolve())
    place = _task_around(checkout, path)
    found = working_candidate(checkout, place)
    runs = Runs(Backend.CPU, ARCH, found.committed, place)
    try:
        await progress("trying the functions of task.py")
        await runs.work()
        await progress("checking")
        work = runs.check if found.task.file.frontend is Frontend.CUTILE else runs.correctness
        return await work(found.files, new_secret(), LIMIT_S, lambda _: None)
    finally:
        await runs.close()


def _task_around(checkout: Checkout, path: Path) -> PurePosixPath:
    """The folder of the task that `path` is or lies in, relative to the repository. Raises `Misuse`."""
    given = (checkout.base / path).resolve()
    if not given.exists():
        raise Misuse(f"{path}: no such file or folder in {checkout.base}")
    for folder in (given, *given.parents):
        if folder.is_relative_to(checkout.root) and (folder / "task.toml").is_file():
            return PurePosixPath(folder.relative_to(checkout.root).as_posix())
    raise Misuse(f"{path} lies in no task's folder of {checkout.root}: there is no task.toml beside it, nor above")

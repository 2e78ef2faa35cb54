"""`tilewright check`: a task's kernels without a session and without a GPU: cuTile's under the interpreter's checker,
other tasks against their reference."""

from __future__ import annotations

from pathlib import Path

from tilewright.evaluation.results import CorrectnessResult
from tilewright.evaluation.seeds import new_secret
from tilewright.repository import RepositoryError
from tilewright.session.beginning import need_frontend, task_path
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.jobs import Progress
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend, TaskError, load_task

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
    try:
        task = load_task(checkout.root / place)
        files = checkout.repository.read([(place / name).as_posix() for name in task.file.editable])
    except (TaskError, RepositoryError) as error:
        raise Misuse(str(error)) from None
    need_frontend(task.file.frontend)
    committed = checkout.repository.files(checkout.repository.head())
    if (place / "task.toml").as_posix() not in committed:
        raise Misuse(f"{place}/task.toml is not committed; run `git add {place}` and `git commit` first")
    runs = Runs(Backend.CPU, ARCH, committed, place)
    try:
        await progress("checking")
        work = runs.check if task.file.frontend is Frontend.CUTILE else runs.correctness
        return await work(files, new_secret(), LIMIT_S, lambda _: None)
    finally:
        await runs.close()

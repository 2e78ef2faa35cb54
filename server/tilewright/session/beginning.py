"""What must hold before a session begins, and its first record."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from tilewright.commandtask import JUNIT, CommandTask, definition_of, editable_of, holds, load
from tilewright.configuration import configuration_of
from tilewright.errors import UsageError
from tilewright.evaluation.results import Environment
from tilewright.frontends.protocol import FRONTENDS, need_packages
from tilewright.gpu.specs import DEFAULT_BY_ARCH
from tilewright.gpu.telemetry import why_unusable
from tilewright.knobs import Knobs, Value
from tilewright.repository import Files, Repository
from tilewright.roofline.bounds import intensity_class
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.records import Started
from tilewright.session.runs import Runs, backend_here, files_for, need_confinement, runs_from
from tilewright.session.wrong import used_up, wrong_results
from tilewright.task import Backend, Frontend, Task, load_task
from tilewright.text import cut, few, printable


def task_path(checkout: Checkout, task: str) -> PurePosixPath:
    """The folder, relative to the root, of the task that the folder or file `task` is or lies in. Raises `UsageError`
    for a path that leaves the repository or leads to no task."""
    named = cut(printable(" ".join(task.split())), 100)
    if not named:
        raise UsageError("task is empty; give the folder that holds task.toml, or a file in it")
    try:
        path = (checkout.base / task).resolve()
        is_there = path.exists()
    except (OSError, RuntimeError, ValueError):  # a loop of links, a name that is too long or holds a NUL
        is_there = False
    if not is_there:
        raise UsageError(f"task {named}: no such file or folder in {checkout.base}{_meant(checkout)}")
    if not path.is_relative_to(checkout.root):
        raise UsageError(f"task {named} lies outside the repository {checkout.root}; give a folder inside")
    for folder in (path, *path.parents):
        if folder.is_relative_to(checkout.root) and (folder / "task.toml").is_file():
            found = PurePosixPath(folder.relative_to(checkout.root).as_posix())
            checkout.repository.need_own(found)
            return found
    meant = _meant(checkout) or ": `tilewright init` writes one"
    raise UsageError(f"no task.toml is in {named} or in a folder above it{meant}")


def _meant(checkout: Checkout) -> str:
    """A question for the repository's task; empty if it has several, or none."""
    folders = checkout.repository.folders_with("task.toml")
    if len(folders) != 1:
        return ""
    return f"; did you mean {os.path.relpath(checkout.root / folders[0], checkout.base)}?"


def session_on(checkout: Checkout, folder: PurePosixPath) -> Started | None:
    """The session under way on the task in `folder`, if there is one."""
    state = checkout.peek()
    if state is None or state.ended is not None or PurePosixPath(state.started.task) != folder:
        return None
    return state.started


def backend_for(checkout: Checkout, folder: PurePosixPath, backend: Backend | None) -> Backend:
    """The backend asked for, else that of the session on the task in `folder`, else the repository's default, else what
    this machine has. Raises `UsageError` for `cuda` without a GPU."""
    session = session_on(checkout, folder)
    own = session.backend if session is not None else None
    return usable_backend(backend or own or configuration_of(checkout.root).device)


def usable_backend(backend: Backend | None) -> Backend:
    """The backend asked for, or the one that this machine has. Raises `UsageError` for `cuda` without a GPU."""
    if backend is Backend.CUDA and (why := why_unusable()):
        raise UsageError(f"{why}; use backend `cpu`, and see `tilewright doctor`")
    return backend or backend_here()


@dataclass(frozen=True)
class Working:
    """The working tree's candidate of a task: its editable files, and the committed files that it comes with."""

    task: Task
    folder: PurePosixPath
    files: Files
    head: str
    committed: Files

    @property
    def entry_file(self) -> str:
        """The file that defines the entry point. Raises `UsageError` where it is none of the repository's."""
        path = self.task.module.replace(".", "/")
        for place in (".", *self.task.file.python_path):
            for tail in (f"{path}.py", f"{path}/__init__.py"):
                name = os.path.normpath(self.folder / place / tail)
                if name in self.committed or name in self.files:
                    return name
        raise UsageError(f"the entry point's module {self.task.module!r} is no committed file of the task")

    def knobs(self) -> Knobs:
        """What can be set in the editable files. Raises `SpaceError`, and `UsageError` as `entry_file` does."""
        return Knobs(self.files, self.entry_file, self.task.function)

    def with_config(self, config: Mapping[str, Value]) -> Working:
        """The same with these knobs set, as `autotune` sets them. Raises `UsageError`."""
        if not config:
            return self
        knobs = self.knobs()
        for name, value in config.items():
            knobs.check(name, [value])
        return replace(self, files={**self.files, **knobs.variant(config)})


def working_candidate(checkout: Checkout, folder: PurePosixPath) -> Working:
    """The candidate of the task in `folder`, outside of any session. Raises `UsageError`."""
    repository = checkout.repository
    task = load_task(checkout.root / folder)
    need_packages(FRONTENDS[task.file.frontend])
    files = repository.read(editable_of(task, folder))
    head = repository.head()
    committed, changed = files_for(repository, head, folder), repository.changed(head)
    for name in (folder / "task.toml", folder / "task.py"):
        if name.as_posix() not in committed:
            raise UsageError(f"{name} is not committed; run `git add {folder}` and `git commit` first")
        if name.as_posix() in changed:
            raise UsageError(
                f"{name} differs from HEAD, whose version would be used; commit it, or `git checkout {name}`"
            )
    return Working(task, folder, files, head, committed)


def check_tree(
    repository: Repository, task: Task | CommandTask, folder: PurePosixPath, include_dirty: bool
) -> list[str]:
    """The task's editable files relative to the root. Raises `UsageError` if the working tree is not as committed."""
    head, editable = repository.head(), editable_of(task, folder)
    tracked = repository.files(head)
    names = [*editable, *((folder / name).as_posix() for name in definition_of(task))]
    for name in names:
        repository.need_own(PurePosixPath(name))
    if missing := [name for name in names if name not in tracked]:
        places = dict.fromkeys(str(folder) if PurePosixPath(name).is_relative_to(folder) else name for name in missing)
        raise UsageError(f"not committed: {few(missing)}; run `git add {' '.join(places)}` and `git commit` first")
    dirty = set(repository.changed(head))
    if foreign := sorted(dirty - set(editable)):
        raise UsageError(
            f"files outside `editable` differ from HEAD: {few(foreign)}; commit or stash them first, since "
            "every run uses the committed ones"
        )
    if dirty and not include_dirty:
        raise UsageError(
            f"editable files differ from HEAD: {', '.join(sorted(dirty))}; commit them, or call start_session with "
            "include_dirty to take them into the baseline"
        )
    for name, content in repository.read(editable).items():
        if name not in dirty and content != tracked[name]:
            raise UsageError(
                f"{name}: git converts this file on checkout (line endings or a filter in .gitattributes), so what is "
                f"measured would not be what is committed; add `{name} -text -filter` to .gitattributes and commit"
            )
    return editable


@contextlib.asynccontextmanager
async def begin(
    checkout: Checkout, task: str, backend: Backend | None, arch: str, rules: Rules, include_dirty: bool
) -> AsyncIterator[tuple[Started, Runs]]:
    """Check what must hold, start the evaluator, and make and check out the session's branch. What `rules` leaves open
    the task's own rules say.

    Raises `UsageError`. Then, or where the block fails, nothing in the repository has changed.
    """
    folder = task_path(checkout, task)
    found = load(checkout.root / folder)
    backend, rules = usable_backend(backend), rules.over(found.file.rules)
    native = found if isinstance(found, Task) else None
    if native is not None:
        need_native(native, task, backend, arch)
    repository = checkout.repository
    editable = check_tree(repository, found, folder, include_dirty)
    entry = entry_of(found, editable)
    if text := used_up(wrong_results(repository, entry, backend).count, rules.wrong_results):
        raise UsageError(text)
    head, came_from = repository.head(), repository.branch() or ""
    dirty, baseline = bool(repository.changed(head)), head
    if dirty:
        baseline = repository.commit(repository.read(editable), head, "tilewright: baseline\n")
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    tests = tests_run(native, backend) if native is not None else ""
    async with contextlib.AsyncExitStack() as undo:
        runs = runs_from(repository, baseline, folder, backend, arch, native is None, rules, bool(tests))
        undo.push_async_callback(runs.close)
        environment = await runs.environment()
        work = (await runs.work())[0] if native is not None else None
        need_confinement(environment.confined, environment.isolation)
        repository.exclude_sandbox()
        branch = repository.start_branch(f"perf/{found.name}-{date}")
        undo.callback(go_back, checkout, branch, came_from, head)
        if dirty:
            repository.advance(branch, baseline, head)
            repository.stage(baseline, editable)
        eased = rules.eased(found.file.rules)
        started = Started(
            session=f"{found.name}-{date}-{secrets.token_hex(3)}",
            task=folder.as_posix(),
            task_name=found.name,
            entry=entry,
            branch=branch,
            base=head,
            came_from=came_from,
            baseline=baseline,
            editable=editable,
            backend=backend,
            arch=environment.arch,
            environment=environment,
            intensity=min(work.intensity, 1e9) if work else 0.0,
            intensity_class=intensity_class(work) if work and work.flops else "unknown: the task counts no arithmetic",
            rules=rules,
            eased=eased,
            notes=[
                *_unprotected(environment),
                *([f"dirty baseline: it holds uncommitted edits, beside {head[:12]}"] if dirty else []),
                *([f"rules that decide were eased by an argument: {', '.join(eased)}"] if eased else []),
                *(_notes(found, backend) if isinstance(found, Task) else _lacking(found, backend)),
            ],
            sizes=len(native.wide_cases(backend, 0, rules.hidden_cases_to_keep)) if native is not None else 0,
            reference=native.file.reference if native is not None else "task",
            tests=tests,
            harness=native is None,
        )
        yield started, runs
        undo.pop_all()


def entry_of(task: Task | CommandTask, editable: list[str]) -> str:
    """What wrong results are counted by, in whichever folder and worktree: the entry point, or the files that a command
    task's experiments change."""
    return task.file.entry if isinstance(task, Task) else " ".join(sorted(editable))


def tests_run(task: Task, backend: Backend) -> str:
    """The command of the tests that a native task names, if it is run: kernels in tests need a GPU."""
    tests = task.file.tests
    if tests is None or (backend is Backend.CPU and FRONTENDS[task.file.frontend].has_kernels):
        return ""
    return " ".join(tests.command)


def _unprotected(environment: Environment) -> list[str]:
    if not environment.unprotected:
        return []
    return [f"{environment.unprotected}: what this machine enforces on a candidate's code is {environment.isolation}"]


def need_native(found: Task, task: str, backend: Backend, arch: str) -> None:
    """Raises `UsageError` where a native task, at the path `task`, cannot be judged on `backend`."""
    if backend is Backend.CPU and arch not in DEFAULT_BY_ARCH:
        raise UsageError(f"no model of {arch}: the cpu backend models {', '.join(DEFAULT_BY_ARCH)}")
    if not found.correctness_cases(backend) or not found.benchmark_cases(backend):
        raise UsageError(
            f"{task} has no case for backend {backend}; add a [[cases]] table for it, or one without `backend`"
        )
    need_packages(FRONTENDS[found.file.frontend])
    if backend is Backend.CPU and found.file.frontend is Frontend.TRITON:
        raise UsageError(
            "the benchmark of a triton task needs a GPU: no model counts the traffic of Triton kernels; without one, "
            f"`tilewright check {task}` checks its results, and dump_ir shows what it compiles to"
        )


def go_back(checkout: Checkout, branch: str, back: str, base: str) -> None:
    """After a session that did not come to be: back to the branch that was checked out, at `base`, and no branch of the
    session's is left.

    No file changes. Edits that were taken into the baseline are uncommitted again.
    """
    repository, own = checkout.repository, f"refs/heads/{branch}"
    if not back or repository.branch() != branch or repository.resolve(f"refs/heads/{back}") != base:
        return
    repository.switch(back)
    repository.forget(own, repository.resolve(own) or "")


def _notes(task: Task, backend: Backend) -> list[str]:
    """What a native task says that loosens a check or adds one. Rows say the rest, in brackets."""
    notes = []
    if not task.hidden_cases(backend, seed=0, count=1):
        notes.append(
            "the task has no [hidden] table for this backend: a candidate may be right on the visible sizes alone"
        )
    if given := task.file.tolerance.model_dump(exclude_none=True):
        said = ", ".join(f"{name} = {value:g}" for name, value in given.items())
        notes.append(f"the task sets what an output may be off by itself: {said}")
    if task.file.tests is not None:
        if command := tests_run(task, backend):
            notes.append(f"before a candidate is kept it passes the repository's own tests: {command}")
        else:
            notes.append("the repository's own tests are not run: their kernels need a GPU")
    if task.file.values.exclude:
        notes.append(
            f"the task excludes classes of values from every check: {', '.join(sorted(task.file.values.exclude))}"
        )
    return notes


def _lacking(task: CommandTask, backend: Backend) -> list[str]:
    """What a reader of a command task's log should know: which guarantees a native task would add."""
    notes = [
        "harness-trusted: this repository's own tests and benchmark say whether a candidate is right, and how fast; a "
        "kernel that is written to deceive them can. Read the diff of what is kept. Tell the user that a native task, "
        "which `tilewright init package.module:function --shape 4096x8192 --dtype bfloat16` writes, adds hidden cases, "
        "inputs from secret seeds, a float64 reference, and launches that are replayed without the kernel's Python"
    ]
    if backend is Backend.CPU:
        notes.append("no GPU is used: the latencies are the CPU's, and the tests may run no kernel")
    if not holds(task.file.correctness.command, JUNIT):
        notes.append(
            "the correctness command writes no JUnit report, so its exit status is all that is seen: tests that are "
            "skipped or vanish go unnoticed; with pytest, add --junitxml={junit}"
        )
    return notes

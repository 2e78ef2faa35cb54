"""`tilewright check`: a task's kernels without a session and without a GPU: cuTile's under the interpreter's checker,
other tasks against their reference. Of a task that runs a repository's commands: its tests, once."""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePosixPath

from tilewright.commandtask import load
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import CorrectnessResult, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.session.beginning import check_tree, task_path, tests_run, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.dumping import COMPILE_S
from tilewright.session.jobs import Progress, attended
from tilewright.session.outcomes import Dumped
from tilewright.session.runs import backend_here, runs_from
from tilewright.session.uncovered import with_uncovered
from tilewright.session.wrong import wrong_results
from tilewright.task import Backend, Frontend, Task

LIMIT_S = 600.0
ARCH = "sm_90"


async def check_task(root: Path, task: str | Path, progress: Progress) -> CorrectnessResult:
    """Check the working tree's kernels of a task, after the functions of its task.py. Raises `UsageError`."""
    checkout = Checkout(root.resolve())
    return await attended(partial(_check, checkout, task_path(checkout, str(task))), progress)


async def _check(checkout: Checkout, place: PurePosixPath, tell: Tell) -> CorrectnessResult:
    if (tests := await _run_tests(checkout, place, tell)) is not None:
        return tests
    found = working_candidate(checkout, place)
    runs_tests = bool(tests_run(found.task, Backend.CPU))
    rules = found.task.file.rules
    runs = runs_from(checkout.repository, found.head, place, Backend.CPU, ARCH, False, rules, runs_tests)
    try:
        tell("trying the functions of task.py")
        await runs.work()
        head = {name: found.committed[name] for name in found.files if name in found.committed}
        cutile = found.task.file.frontend is Frontend.CUTILE
        known = [] if cutile else wrong_results(checkout.repository, found.task.file.entry, Backend.CPU).known
        result = await runs.correctness(
            found.files, new_secret(), LIMIT_S, tell, known, [head], "check" if cutile else "correctness"
        )
        if result.passed and found.task.file.frontend is Frontend.TRITON:
            result = _compiled(result, await runs.dump(found.files, [ARCH], COMPILE_S, LIMIT_S, tell))
        if result.passed:
            result = await runs.tested(result, found.files, new_secret(), tell)
        return with_uncovered(result, head, found.files)
    finally:
        await runs.close()


def _compiled(result: CorrectnessResult, dumped: Dumped) -> CorrectnessResult:
    """The result of a check in Triton's interpreter, which takes what the compiler refuses. It fails if a kernel that
    is launched on the first benchmark case does not compile, or cannot be launched."""
    for made in (kernel.made for kernel in dumped.kernels):
        if made.error and not made.timed_out:
            why = f"{made.kernel} for {made.arch} on {dumped.case}: {made.error.splitlines()[0]}"
            return result.model_copy(update={"status": Status.COMPILE_ERROR, "message": why})
    if dumped.status is Status.PASSED and not any(kernel.made.error for kernel in dumped.kernels):
        return result
    why = dumped.message.partition("\n")[0] or "the compiler did not finish"
    return result.model_copy(update={"unseen": [*result.unseen, f"compilation: {why}"]})


async def _run_tests(checkout: Checkout, place: PurePosixPath, tell: Tell) -> CorrectnessResult | None:
    """How a command task's tests end on the working tree's candidate; None for a native task. Raises `UsageError`."""
    task = load(checkout.root / place)
    if isinstance(task, Task):
        return None
    repository, backend = checkout.repository, backend_here()
    editable = check_tree(repository, task, place, include_dirty=True)
    files = repository.read(editable)
    runs = runs_from(repository, repository.head(), place, backend, ARCH, True, task.file.rules)
    try:
        await runs.environment()
        return await runs.correctness(files, new_secret(), LIMIT_S, tell)
    finally:
        await runs.close()


def in_words(found: CorrectnessResult) -> str:
    """What a check showed, on one line."""
    if not found.passed:
        return f"{found.status.upper()}: {found.message}"
    tests = [case.status for case in found.cases if "test" in case.case]
    if tests:
        skipped = f", {tests.count(Status.SKIPPED)} skipped" if Status.SKIPPED in tests else ""
        return f"the tests pass: {tests.count(Status.PASSED)} passed{skipped}"
    runs = [f"{len(found.cases)} runs agree with the reference"] if found.cases else []
    return "; ".join(["nothing found", *runs, *filter(None, [found.all_unseen])])

"""A whole correctness check: every planned run, and what the checker sees."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Event

from tilewright.evaluation import tuners
from tilewright.evaluation.correctness import Run, defects_of, need_informative
from tilewright.evaluation.crew import DISTURBED, Check, Runs
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle
from tilewright.evaluation.results import CaseCheck, CaseRun, CorrectnessResult, Defect, Status
from tilewright.evaluation.unseen import unseen, unshown
from tilewright.task import Backend, Frontend, Values, case_label
from tilewright.text import cut

LEAST_DRAWN = 4
"""A baseline that is wrong on over half of at least so many hidden cases has to be fixed first."""


def judged(by: Check, runs: list[Run]) -> CorrectnessResult:
    """Check a candidate on `runs`. Raises `WorkerFailure` where it could not even be loaded."""
    with by.start(count=by.workers) as crew:
        said: list[str] = []
        if by.tunes or by.switched:
            first, second, said = tuners.checked(by, runs, crew)
            found = _together(first, second)
        else:
            found = Runs(by, runs).on(crew)
        if not found.passed:
            return found
        need_informative(found.cases)
        worker = crew[0]
        defects: list[Defect] = []
        notes: list[str] = []
        ran: list[str] | None = None
        status, text, output = Status.PASSED, "", ""
        try:
            notes, ran, tuned = unshown(crew, by.code)
            if by.searches and (fault := tuners.fault_of(by, runs, tuned)):
                return tuners.failed(found, fault)
            notes += tuned.left
            defects, unwatched = _watched(worker, by, runs)
            notes += unwatched
        except WorkerFailure as failure:
            status, text, output = failure.status, str(failure), failure.output
        if defects:
            more = f"; {len(defects) - 1} more" if len(defects) > 1 else ""
            status, text = Status.DEFECTIVE, f"{case_label(defects[0].case)}: {defects[0].text}{more}"
        return CorrectnessResult(
            status=status,
            message=text,
            cases=found.cases,
            defects=defects,
            notes=[*found.notes, *said, *filter(None, [found.left_open]), *notes],
            unseen=unseen(by.code, by.backend, [run.case for run in runs], found.cases),
            ran=ran,
            output=output,
        )


def watched(by: Check, runs: list[Run]) -> CorrectnessResult:
    """What the checker finds in a candidate, whatever its values. Raises `WorkerFailure`."""
    with by.start() as crew:
        defects = defects_of(crew[0], by.code, runs, by.tell)
        notes, ran, tuned = unshown(crew, by.code)
    return CorrectnessResult(
        status=Status.DEFECTIVE if defects else Status.PASSED,
        defects=defects,
        notes=notes + tuned.left,
        unseen=unseen(by.code, by.backend, [run.case for run in runs]),
        ran=ran,
    )


def judged_undisturbed(
    judge: Callable[[Check], CorrectnessResult],
    by: Check,
    aside: AbstractContextManager[Event | None],
    deadline: float = math.inf,
) -> CorrectnessResult:
    """What a check shows beside which other work is done, if `aside` gives what ends that. A failure that the other
    work or the other workers may have brought about, by the memory or the time that they take, is judged again alone,
    on one worker, before `deadline` (monotonic seconds). Raises what `judge` does."""
    stop: Event | None = None

    def disturbed(status: Status) -> bool:
        return (stop is not None or by.workers > 1) and status in DISTURBED and time.monotonic() < deadline

    try:
        with aside as stop:
            result = judge(by)
            if stop is not None and not result.passed:
                stop.set()
        if not disturbed(result.status):
            return result
    except Exception as error:  # of the referee itself, too, which has the reference on the GPU
        if not disturbed(error.status if isinstance(error, WorkerFailure) else Status.VOID):
            raise
    return judge(replace(by, workers=1))


def judged_widely(by: Check, runs: list[Run], limit_s: float) -> CorrectnessResult:
    """Check a candidate on classes of values on visible cases, then on hidden ones: of each on as many of `runs` as
    `limit_s` seconds are enough for, one at least. Raises `WorkerFailure` where it could not even be loaded."""
    classes = [run for run in runs if not run.hidden]
    with by.start(count=by.workers) as crew:
        first, second, said = tuners.checked(by, runs, crew, limit_s)
    found = _together(first, second)
    notes = [*found.notes, *said]
    shapes = [run.case for run in classes]
    checked = sum(one.case in shapes for one in first.cases)  # a tuner's own case may be another one
    if found.passed and checked < len(classes):
        notes.append(f"time was enough for {checked} of {len(classes)} classes of values on visible cases")
    return found.model_copy(update={"notes": notes})


def _together(first: CorrectnessResult, second: CorrectnessResult | None) -> CorrectnessResult:
    """What runs and those after them show."""
    if second is None:
        return first
    cases, notes = [*first.cases, *second.cases], [*first.notes, *second.notes]
    return second.model_copy(update={"cases": cases, "notes": notes})


def judged_fairly(
    judge: Callable[[list[Run]], CorrectnessResult],
    runs: list[Run],
    versions: Sequence[Check],
    deadline: float,
    own: bool = False,
    widely: bool = False,
) -> CorrectnessResult:
    """What `judge` shows of a candidate on `runs`, without the hidden cases on which the baseline fails as well.

    `versions` are the baseline and then what was kept since, the latest first. `own`: the candidate is the baseline
    itself. Where the baseline is right and the candidate is not, the result says how many of the kept versions fail.
    `widely`: what passed is not run again. After `deadline` (monotonic seconds) no other version is run. Raises what
    `judge` does.
    """
    drawn = {case_label(run.case) for run in runs if run.hidden and (widely or run.first)}
    wanted = len(drawn) if widely else 0
    left: list[CaseCheck] = []
    done: list[CaseCheck] = []
    while True:
        result = judge(runs)
        failed = next(iter(result.failed_on), None)
        wrong = _fails(versions[0], runs, failed, result) if failed and versions else None
        if failed is None or wrong is None or time.monotonic() > deadline:
            break
        how = "is wrong" if wrong.status.is_incorrect else "fails"
        text = f"the baseline {how} on it{'' if own else ', too'} ({wrong.status}: {cut(wrong.message, 120)})"
        most = {case_label(check.case) for check in (*left, wrong)} & drawn
        one_class = not wrong.hidden and failed.values is not Values.DRAWN
        if not (wrong.hidden or one_class) or 2 * len(most) > max(len(drawn), LEAST_DRAWN):
            if own:
                break
            kind = (
                "a visible case" if not wrong.hidden else f"one of {len(most)} such cases, of {len(drawn)} hidden ones"
            )
            said = f"{failed.label}, {kind}: {text}, so that the candidate is not judged"
            known = {"status": Status.VOID, "message": said, "baseline_wrong": wrong.status.is_incorrect}
            return result.model_copy(update=known)
        left.append(wrong.model_copy(update={"status": Status.VOID, "message": text}))
        done += [one for one in result.cases if widely and one.status is Status.PASSED and one.case != failed.case]
        passed = {check.label for check in done}
        gone = [run for run in runs if run.case == failed.case and (wrong.hidden or run.values == failed.values)]
        runs = [run for run in runs if run not in gone and _as_case(run).label not in passed]
    if left:
        names = "; ".join(f"{check.label}: {check.message}" for check in left)
        notes = [*result.notes, f"left out, and not counted: {names}; tell the user"]
        result = result.model_copy(update={"left_out": left, "notes": notes, "cases": [*done, *result.cases]})
    result = result.model_copy(update={"wanted": wanted})
    faulty = 0
    while failed and faulty < len(versions) - 1 and _fails(versions[faulty + 1], runs, failed, result):
        faulty += 1
    if not faulty or time.monotonic() > deadline:
        return result
    text = "the version kept last fails" if faulty == 1 else f"the {faulty} versions kept last fail"
    said = f"{result.message}; {text} there, too, and the baseline does not: revoked"
    return result.model_copy(update={"faulty": faulty, "message": said})


def _as_case(run: Run) -> CaseRun:
    return CaseRun(case=run.case, values=run.values, strided=run.strided)


def _fails(by: Check, runs: list[Run], failed: CaseRun, result: CorrectnessResult) -> CaseCheck | None:
    """How another version fails on what the candidate `failed` on, with the same seeds; None if it is right, or if that
    cannot be told."""
    by.tell(f"running an earlier version on {failed.label}")
    shape = [run for run in runs if run.case == failed.case]
    again = [run for run in shape if result.defects or run.first or _as_case(run) == failed]
    try:
        with by.start() as crew:
            if result.defects:
                found = [
                    CaseCheck(case=failed.case, hidden=shape[0].hidden, status=Status.DEFECTIVE, message=defect.text)
                    for defect in _watched(crew[0], by, again)[0]
                ]
                return next(iter(found), None)
            run = Runs(by, again).on(crew)
    except WorkerFailure:
        return None
    last = run.cases[-1]
    same = (last.values, last.strided) == (failed.values, failed.strided)
    return last if same and last.status not in (Status.PASSED, Status.VOID) else None


def _watched(worker: WorkerHandle, by: Check, runs: list[Run]) -> tuple[list[Defect], list[str]]:
    """What the checker finds in a right kernel, where there is one: in its first calls in a process, and after many.
    That watching takes long is not its fault; then the second says so."""
    if by.backend is not Backend.CPU or by.code.task.file.frontend is not Frontend.CUTILE:
        return [], []
    where = ""
    try:
        with by.start() as (fresh,):
            found = defects_of(fresh, by.code, runs, by.tell)
        where = " in a process that had made many calls"
        return found or defects_of(worker, by.code, [run for run in runs if not run.hidden], by.tell), []
    except WorkerFailure as failure:
        if failure.status is not Status.TIMEOUT:
            raise
        return [], [f"not looked at for races and other defects{where}, which took too long"]

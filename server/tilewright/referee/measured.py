"""A candidate beside the incumbent, over all cases of a task: by device programs where both have one, in their own
processes where one of them has none. Both are always timed in the same way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tilewright.evaluation import statistics
from tilewright.evaluation.measurement import TIME_LIMIT_S, Bench, Phases, need_possible
from tilewright.evaluation.ordinary import Ordinary
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import (
    LEVELS,
    BenchmarkResult,
    CaseTiming,
    Level,
    Raced,
    Status,
    geometric_mean,
    library_calls,
)
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.statistics import Interval, error_probability
from tilewright.evaluation.taskcode import TaskCode
from tilewright.gpu.specs import DeviceSpec
from tilewright.gpu.telemetry import Recorder, named
from tilewright.programs.identity import identity
from tilewright.programs.model import Program, ProgramError
from tilewright.referee import kept
from tilewright.referee.benchmark import CANDIDATE, INCUMBENT, ProgramBench, Timed, values_of
from tilewright.referee.candidates import Programs
from tilewright.referee.capture_worker import InProcess
from tilewright.referee.captures import CallCaptured
from tilewright.referee.outside import Outside
from tilewright.referee.race import ProgramRace
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.roofline.bounds import Ceilings, roofline_share
from tilewright.rules import Rules
from tilewright.task import Backend, Case, case_label
from tilewright.text import cut

LABELS = ("candidate", "incumbent")
"""The versions, as failures name them."""
Pair = tuple[Program, Program]
"""Of the incumbent and of the candidate, the programs whose figures a case has."""


@dataclass(frozen=True)
class Run:
    """What a benchmark run is to go by. `deadline`: by `time.monotonic`. `store`: where programs are written, if they
    are kept, `with_inputs` of a public draw. `kept`: by case, the files of the incumbent's programs. `confirms`: the
    candidate is captured anew, and one that gains has to launch the same in an ordinary call. `in_process`: gives what
    times both versions in their own processes. `ordinary`: the
    incumbent's ordinary calls by case, from its own record, if they are there."""

    code: TaskCode
    rules: Rules
    seeds: Seeds
    ceilings: Ceilings
    device: DeviceSpec | None
    deadline: float
    recorder: Recorder
    phases: Phases
    tell: Callable[[str], None]
    in_process: Callable[[], AbstractContextManager[Bench]]
    confirms: bool = False
    store: Path | None = None
    with_inputs: bool = False
    ordinary: Sequence[Ordinary | None] = ()
    kept: Mapping[str, Sequence[Path]] = field(default_factory=dict)

    def look(self, pid: int | None) -> None:
        """Raises `WorkerFailure` where the time is used up, or where processes beside ours, of which the replayer is
        `pid`, used the GPU."""
        self.need_time()
        self.recorder.own.update(filter(None, [pid]))
        self.recorder.sample()
        if strangers := self.recorder.busy_strangers():
            text = f"other processes used the GPU meanwhile: {named(strangers)}; measure again"
            raise WorkerFailure(Status.VOID, text)

    def need_time(self) -> None:
        """Raises `WorkerFailure` where there is none left."""
        if time.monotonic() > self.deadline:
            text = "the evaluation time of this iteration is used up"
            raise WorkerFailure(Status.TIMEOUT, text, used_up=True)


class Measuring:
    """Measures candidates of any task, on one replayer."""

    def __init__(
        self,
        programs: Programs,
        replayer: Replayer,
        recording: Callable[[], Replayer] = lambda: Replayer(records=True),
    ) -> None:
        """`recording` gives a replayer that records."""
        self._programs = programs
        self._replayer = replayer
        self._recording = recording
        self._outside = Outside(programs, replayer)

    def benchmarked(self, run: Run, candidate: Snapshot, incumbent: Snapshot | None) -> BenchmarkResult:
        """A candidate's latencies and, if there is an incumbent, its speedup over it. Raises `WorkerFailure`."""
        cases = run.code.task.benchmark_cases(Backend.CUDA)
        with run.phases("capture"):
            run.tell("capturing what the candidate launches")
            mine = self._programs.of(run.code, candidate, cases, LABELS[0])
            baseline = incumbent is None and run.store is not None and not run.with_inputs
            if run.confirms or baseline:  # it may be the next incumbent, and a tuner may choose otherwise
                more = self._programs.anew(run.code, candidate, cases, LABELS[0])
                mine = [one.joined(other) for one, other in zip(mine, more, strict=True)]
            self._programs.record(run.code, candidate, cases)
            theirs: list[CallCaptured | None] = [None] * len(cases)
            if incumbent is not None:
                theirs = [*self._of_incumbent(run, incumbent, cases, run.kept)]
        for case, own, other in zip(cases, mine, theirs, strict=True):
            if not own.programs and _demanded(run, other):
                return _not_replayed(case, own.reason)
            if own.libraries and run.code.task.file.library_calls == "forbid":
                said = library_calls([f"kernel {cut(symbol, 120)}" for symbol in own.libraries])
                return BenchmarkResult(status=Status.LIBRARY_CALLS, message=f"{case_label(case)}: {said}")
        if incumbent is not None and all(map(_same, mine, theirs)):
            return BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, same=True)
        found: list[tuple[CaseTiming, Interval | None] | str] = []
        pairs: dict[int, Pair] = {}
        for number, (case, own) in enumerate(zip(cases, mine, strict=True)):
            run.need_time()
            run.tell(f"timing case {number + 1} of {len(cases)}: {case_label(case)}")
            try:
                try:
                    timing, timed = self._replayed(run, case, own, theirs[number])
                except InProcess as why:
                    if incumbent is None or why.arm != INCUMBENT or not _is_kept(run, case, theirs[number]):
                        raise
                    (theirs[number],) = self._of_incumbent(run, incumbent, [case], {case_label(case): str(why)})
                    timing, timed = self._replayed(run, case, own, theirs[number])
                found.append((timing, timed.speedup if incumbent is not None else None))
                pairs[number] = timed.programs
            except InProcess as why:
                other = theirs[number]
                if _demanded(run, other) and not (why.arm == INCUMBENT and self._is_refused_alone(run, case, other)):
                    return _not_replayed(case, str(why))
                found.append(str(why))
        timed_all = _timed_in_process(run, cases, found)  # last: no candidate's Python runs beside a replay
        result = _together(
            run,
            [timing for timing, _ in timed_all],
            [interval for _, interval in timed_all if interval is not None],
            error_probability(run.rules),
        )
        gains = run.confirms and incumbent is not None and (result.speedup_low or 0.0) > 1
        if not gains and (incumbent is not None or run.with_inputs):
            return result
        with self._recording() as recording:
            recording.begin()  # it makes a CUDA context, and compiles: nothing of that while a call is timed
            run.recorder.own.update(filter(None, [recording.pid]))
            with run.phases("classes"):
                result = self._judged_on_classes(run, result, mine, theirs)
            with contextlib.suppress(ReplayerGone):  # it is tried again
                recording.start()
            if incumbent is None:
                with run.phases("ordinary call"):
                    return self._outside.known(run, recording, result, (candidate, mine))
            with run.phases("sustained"):
                result = self._sustained(run, result, pairs)
            with run.phases("ordinary call"):
                run.tell("comparing with an ordinary call")
                return self._outside.confirmed(run, recording, result, (candidate, mine), (incumbent, theirs))

    def whole(self, run: Run, pairs: Sequence[tuple[Case, Path, Path]]) -> BenchmarkResult:
        """A session's last program beside its first in each case, as they lie on the disk. Raises `WorkerFailure`."""
        timings, intervals = [], []
        bench = self._bench(run, run.rules.end_error)
        for number, (case, first, last) in enumerate(pairs):
            run.need_time()
            run.tell(f"the first program against the last, case {number + 1} of {len(pairs)}: {case_label(case)}")
            try:
                programs = kept.read(last), kept.read(first)
                timed = bench.case(case, programs[:1], programs[1:], run.seeds)
                us, sustained = [timed.found.mean_us(arm) for arm in (INCUMBENT, CANDIDATE)], None
                with contextlib.suppress(InProcess, WorkerFailure):
                    sustained = None if timed.same else bench.sustained(case, *programs, run.seeds, us)
            except (InProcess, OSError, ProgramError) as error:
                raise WorkerFailure(Status.VOID, f"{case_label(case)}: {error}") from None
            timings.append(CaseTiming(case=case, sustained=sustained, **values_of(timed, alone=False)))
            intervals.append(timed.speedup)
        run.tell("the last program against itself")
        resolution = None
        with contextlib.suppress(InProcess, WorkerFailure, OSError, ProgramError, Fault, ReplayerGone):
            resolution = bench.resolution(pairs[0][0], kept.read(pairs[0][2]), run.seeds)
        result = _together(run, timings, intervals, run.rules.end_error)
        return result.model_copy(update={"resolution": resolution})

    def raced(self, run: Run, snapshots: Sequence[Snapshot], room: int, whole: bool) -> list[list[Raced]]:
        """How each version does in each case, the first of which is the original. `room`: bytes of the GPU's memory for
        captures. `whole`: all run to the end. Raises `WorkerFailure` where the original fails."""
        cases = run.code.task.benchmark_cases(Backend.CUDA)
        with run.phases("capture"):
            run.tell(f"capturing {len(snapshots)} configs")
            captured = self._programs.of_each(run.code, snapshots, cases, room, run.need_time, run.tell)
        race = ProgramRace(run.code, self._replayer, run.seeds, lambda: run.look(self._replayer.pid))
        failed = {number: one for number, one in enumerate(captured) if isinstance(one, Raced)}
        by_case: list[dict[int, Raced]] = []
        for place, case in enumerate(cases):
            programs = {
                number: one[place]
                for number, one in enumerate(captured)
                if not isinstance(one, Raced) and number not in failed
            }
            run.tell(f"racing {len(programs)} configs on {case_label(case)}")
            with run.phases("race"):
                by_case.append(race.case(case, programs, whole))
            failed |= {number: one for number, one in by_case[-1].items() if one.status is not Status.PASSED}
        return [[failed.get(number) or found[number] for found in by_case] for number in range(len(snapshots))]

    def _of_incumbent(
        self, run: Run, incumbent: Snapshot, cases: Sequence[Case], files: Mapping[str, Sequence[Path] | str]
    ) -> list[CallCaptured]:
        return self._programs.of_incumbent(run.code, incumbent, cases, files, LABELS[1])

    def _replayed(
        self, run: Run, case: Case, own: CallCaptured, other: CallCaptured | None
    ) -> tuple[CaseTiming, Timed]:
        """One case by programs. Raises `InProcess` where one of the two has none, or cannot be replayed."""
        if not own.programs:
            raise InProcess(own.reason, CANDIDATE)
        if other is not None and not other.programs:
            raise InProcess(f"of the incumbent: {other.reason}", INCUMBENT)
        theirs = other.programs if other is not None else ()
        timed = self._bench(run).case(case, own.programs, theirs, run.seeds)
        slowest = timed.programs[1]
        values = values_of(timed, alone=other is None)
        written = sum(tensor.size for tensor in slowest.layout.outputs)
        work = replace(run.code.work(case), written=written)
        if run.code.has_work:
            need_possible(case, values["latency_ms"], work, run.device)
        percent, bound = roofline_share(values["latency_ms"], work, run.ceilings)
        known = other.programs if other is not None and timed.same else own.programs  # a part is no better luck
        first = next(one for one in known if identity(one) == identity(slowest))
        programs = [first, *(one for one in known if one is not first)]
        if run.with_inputs:
            programs = [self._programs.with_inputs(run.code, case, one) for one in programs]
        notes = ["" if bound else "no measured ceiling applies", other.note if other is not None else ""]
        timing = CaseTiming(
            case=case,
            roofline_percent=percent,
            bound=bound,
            work_bytes=work.bytes,
            peak_bytes=max(own.peak_bytes, written),
            programs=[kept.stored(one, run.store) for one in programs],
            note="; ".join(filter(None, notes)),
            **values,
        )
        return timing, timed

    def _is_refused_alone(self, run: Run, case: Case, other: CallCaptured | None) -> bool:
        """Whether the incumbent could never be replayed in this case. If it can when it is alone, it is the candidate
        beside it that keeps it from that."""
        if other is None or not other.programs or run.code.task.file.needs_replay:
            return False
        try:
            self._bench(run).case(case, other.programs, (), run.seeds)
        except InProcess:
            return True
        except WorkerFailure:
            pass
        return False

    def _bench(self, run: Run, error: float | None = None) -> ProgramBench:
        return ProgramBench(
            run.code,
            self._replayer,
            run.rules,
            error,
            lambda: run.look(self._replayer.pid),
            run.phases,
            run.recorder.joules,
        )

    def _judged_on_classes(
        self,
        run: Run,
        result: BenchmarkResult,
        mine: Sequence[CallCaptured],
        theirs: Sequence[CallCaptured | None],
    ) -> BenchmarkResult:
        """The result, if what was replayed is right on all classes of values. Raises `WorkerFailure`."""
        bench, left = self._bench(run), list[str]()
        for timing, own, other in zip(result.cases, mine, theirs, strict=True):
            if timing.level is not Level.REPLAYED or timing.same:
                continue
            known = other.programs if other is not None else ()
            run.tell(f"replaying classes of values on {case_label(timing.case)}")
            for one in own.programs:
                if identity(one) not in map(identity, known):
                    left += bench.judge_classes(timing.case, one, known[0] if known else None, run.seeds)
        return result.model_copy(update={"unjudged": [*dict.fromkeys(left)]})

    def _sustained(self, run: Run, result: BenchmarkResult, pairs: Mapping[int, Pair]) -> BenchmarkResult:
        """The result, with what the gain is in calls without a rest, where the GPU lowers its clock in these."""
        bench, cases = self._bench(run), [*result.cases]
        for number, (other, own) in pairs.items():
            timing = cases[number]
            if timing.same:
                continue
            run.tell(f"calls without a rest on {case_label(timing.case)}")
            us = 1000 * (timing.incumbent_ms or timing.latency_ms), 1000 * timing.latency_ms
            try:
                found = bench.sustained(timing.case, own, other, run.seeds, us)
                cases[number] = timing.model_copy(update={"sustained": found})
            except InProcess as why:
                cases[number] = timing.model_copy(update={"note": "; ".join(filter(None, [timing.note, str(why)]))})
        return result.model_copy(update={"cases": cases})


def _demanded(run: Run, other: CallCaptured | None) -> bool:
    """Whether a candidate has to be replayed in a case: the incumbent can be, or the task says so."""
    task = run.code.task.file
    return task.needs_replay or (task.protection == "best" and other is not None and bool(other.programs))


def _not_replayed(case: Case, why: str) -> BenchmarkResult:
    return BenchmarkResult(status=Status.NOT_REPLAYED, message=f"{case_label(case)}: {why}")


def _is_kept(run: Run, case: Case, other: CallCaptured | None) -> bool:
    """Whether the incumbent's programs in a case are those that were kept."""
    return other is not None and not other.note and case_label(case) in run.kept


def _same(own: CallCaptured, other: CallCaptured | None) -> bool:
    """Whether the candidate launches nothing that the incumbent does not."""
    known = {identity(program) for program in other.programs} if other is not None else set()
    return bool(own.programs) and all(identity(program) in known for program in own.programs)


def _timed_in_process(
    run: Run, cases: Sequence[Case], found: Sequence[tuple[CaseTiming, Interval | None] | str]
) -> list[tuple[CaseTiming, Interval | None]]:
    """What is `found` of each case; of one that was not replayed, which a text explains, timed in the versions' own
    processes."""
    with contextlib.ExitStack() as stack:
        bench: Bench | None = None
        timed = []
        for case, one in zip(cases, found, strict=True):
            if isinstance(one, str):
                run.need_time()
                if bench is None:
                    bench = stack.enter_context(run.in_process())
                timing, gain = bench.case(case, run.seeds, statistics.PAIR_LOOKS, TIME_LIMIT_S / len(cases))
                timing = timing.model_copy(update={"note": "; ".join(filter(None, [one, timing.note]))})
                one = timing, gain
            timed.append(one)
        return timed


def _together(run: Run, timings: list[CaseTiming], intervals: Sequence[Interval], error: float) -> BenchmarkResult:
    found, weights = {}, [run.code.task.weight(timing.case) for timing in timings]
    if intervals:
        speedup, low, high = statistics.combined(intervals, error, weights).ratio()
        found = {"speedup": speedup, "speedup_low": low, "speedup_high": high}
    return BenchmarkResult(
        status=Status.PASSED,
        level=max((timing.level for timing in timings), key=LEVELS.index),
        latency_ms=geometric_mean([timing.latency_ms for timing in timings], weights),
        cases=[one.model_copy(update={"weight": each}) for one, each in zip(timings, weights, strict=True)],
        gpu=run.recorder.off(),
        **found,
    )

"""Whether an ordinary call launches what was replayed, and takes as long."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from tilewright.evaluation.ordinary import Ordinary, added_host_time, is_short, slower_outside
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import BenchmarkResult, Level, Status
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.statistics import pause_for
from tilewright.programs.model import Program
from tilewright.referee.candidates import Programs
from tilewright.referee.capture_worker import InProcess
from tilewright.referee.captures import CallCaptured, OtherLaunches
from tilewright.referee.compare import CALL_LIMIT_S
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.task import Case, case_label
from tilewright.wire.channel import Sent
from tilewright.wire.messages import Recorded

if TYPE_CHECKING:
    from tilewright.referee.measured import Run

WARM_S, TIMED_S = 0.1, 2.0
"""Seconds of replays before those that count, and of those that do."""
OVERHEAD_US = 500.0
"""Around a replay."""
CALLS = 3, 20
"""Fewest and most replays that count."""
LAUNCHES = 50_000
"""That are recorded of a program at most, about."""
Version = tuple[Snapshot, Sequence[CallCaptured | None]]
"""A version, and what was captured of it in each case."""


class Outside:
    """Compares ordinary calls with replays, both by CUPTI."""

    def __init__(self, programs: Programs, replayer: Replayer) -> None:
        """`replayer`, which takes memory, ends where that needs it."""
        self._programs = programs
        self._replayer = replayer

    def confirmed(
        self, run: Run, recording: Replayer, result: BenchmarkResult, candidate: Version, incumbent: Version
    ) -> BenchmarkResult:
        """The result, if an ordinary call of the candidate launches what was timed, and takes no longer beside it than
        the incumbent's. Where launches can be recorded of neither version, it says so; where they cannot be of the
        candidate alone, that is the candidate's doing."""
        places = _replayed(result)
        if not places:
            return result
        try:
            mine = self._of(run, recording, result, places, candidate, "candidate")
        except OtherLaunches as found:
            return _refused(result, str(found))
        except InProcess as error:
            try:
                self._calls(run, result, places, incumbent, "incumbent")
            except InProcess:
                return result.model_copy(update={"unconfirmed": str(error)})
            except (OtherLaunches, WorkerFailure):
                pass  # they can be recorded
            return _refused(result, f"what it launches in an ordinary call is not known: {error}")
        theirs = {number: one for number, one in enumerate(run.ordinary) if one is not None}
        if mine and not theirs:
            with contextlib.suppress(OtherLaunches, InProcess, WorkerFailure):
                theirs = self._of(run, recording, result, places, incumbent, "incumbent")
        judged = compared(with_ordinary(result, mine), theirs)
        if judged.status is Status.OTHER_LAUNCHES:  # both now: what was recorded at a keep is of the machine as it was
            with contextlib.suppress(OtherLaunches, InProcess, WorkerFailure):
                theirs = self._of(run, recording, result, places, incumbent, "incumbent")
                mine = self._of(run, recording, result, places, candidate, "candidate")
                judged = compared(with_ordinary(result, mine), theirs)
        return judged

    def known(self, run: Run, recording: Replayer, result: BenchmarkResult, version: Version) -> BenchmarkResult:
        """The result of a version without an incumbent, with its ordinary calls: later ones are compared with them.
        Without them where they cannot be had, or launch something else."""
        places = _replayed(result)
        with contextlib.suppress(OtherLaunches, InProcess, WorkerFailure):
            return with_ordinary(result, self._of(run, recording, result, places, version, "candidate"))
        return result

    def _of(
        self, run: Run, recording: Replayer, result: BenchmarkResult, places: Sequence[int], version: Version,
        label: str,
    ) -> dict[int, Ordinary]:  # fmt: skip
        """By the number of the case, ordinary calls beside replays on `recording`, which records. Those whose replay
        cannot be recorded are left out. Raises `OtherLaunches`, `InProcess`, `WorkerFailure`."""
        if not places:
            return {}
        found = {}
        with contextlib.suppress(ReplayerGone):  # it is tried again below
            recording.start()  # before an ordinary call is timed: it makes a CUDA context, and compiles
        confirmed = self._calls(run, result, places, version, label)
        for number, (call, programs) in zip(places, confirmed, strict=True):
            timing = result.cases[number]
            inputs = self._programs.public(run.code, timing.case)
            replays = [self._replayed_us(recording, one, inputs, 1e3 * timing.latency_ms) for one in programs]
            us, host_us = (round(statistics.median(several), 3) for several in (call.us, call.host_us))
            if all(replays):
                if us <= 0:
                    raise OtherLaunches(f"{case_label(timing.case)}: an ordinary call is said to take no time")
                found[number] = Ordinary(us=us, replayed_us=nearest(us, replays), host_us=host_us)
        recording.close()  # the calls of another version need the memory
        return found

    def _calls(
        self, run: Run, result: BenchmarkResult, places: Sequence[int], version: Version, label: str
    ) -> list[tuple[Recorded, list[Program]]]:
        snapshot, captured = version
        cases: list[Case] = [result.cases[number].case for number in places]
        programs = [one.programs for number in places if (one := captured[number]) and one.programs]
        return self._programs.confirm(run.code, snapshot, cases, programs, label)

    def _replayed_us(self, recording: Replayer, program: Program, inputs: Sequence[Sent], us: float) -> float:
        """What the launches of a replay take together, by the median; 0 where that cannot be recorded."""
        for _ in range(2):
            with contextlib.suppress(Fault, ReplayerGone):
                return replayed_us(recording, program, inputs, us)
            self._replayer.close()  # its memory may be what is missing
            torch.cuda.empty_cache()
        return 0.0


def replayed_us(replayer: Replayer, program: Program, inputs: Sequence[Sent], us: float) -> float:
    """What the launches of a replay on these inputs take together, by the median of some replays behind others; 0 where
    that cannot be recorded. `us`: what one takes, about. Raises `Fault`, `ReplayerGone`."""
    rest_s = pause_for(us)  # as in rounds: a call that follows another has less power
    each_s, room = (us + OVERHEAD_US) / 1e6 + rest_s, max(LAUNCHES // max(len(program.layout.nodes), 1), CALLS[0] + 1)
    counted = min(max(int(TIMED_S / each_s), CALLS[0]), CALLS[1], room - 1)
    warm = min(max(int(WARM_S / each_s), 1), room - counted)
    replayer.load([program], [inputs])
    answer, _ = replayer.alone(0, 0, warm + counted, CALL_LIMIT_S, rest_s)
    return round(statistics.median(map(math.fsum, answer.us[-counted:])), 3) if answer.us else 0.0


def nearest(us: float, replays: Sequence[float]) -> float:
    """Of the replays that launch what an ordinary call of `us` did, the one that takes about as long. A function that
    tunes may call any of its programs, and its figure is that of the slowest."""
    return min(replays, key=lambda replay: abs(math.log(us / replay)))


def with_ordinary(result: BenchmarkResult, found: dict[int, Ordinary]) -> BenchmarkResult:
    """The result, with ordinary calls by the numbers of their cases."""
    cases = [one.model_copy(update={"ordinary": found.get(number)}) for number, one in enumerate(result.cases)]
    return result.model_copy(update={"cases": cases})


def compared(result: BenchmarkResult, theirs: dict[int, Ordinary]) -> BenchmarkResult:
    """The result, refused if an ordinary call takes too long in a case beside a replay and the incumbent's calls, which
    are `theirs`. It says where that was not compared, and the most that the candidate adds on the host."""
    left, added = list[str](), dict[float, str]()
    for number in _replayed(result):
        timing, other = result.cases[number], theirs.get(number)
        label, mine = case_label(timing.case), timing.ordinary
        if mine is not None and other is not None and (said := added_host_time(mine, other)):
            added[mine.host_us - other.host_us] = said
        if timing.same:
            continue
        if mine is None or other is None:
            left.append(f"{label}: no records of both versions")
        elif is_short(mine):
            left.append(f"{label}: a call of {mine.us:.1f} us is too short")
        elif why := slower_outside(mine, other):
            return _refused(result, f"{label}: {why}")
    return result.model_copy(update={"uncompared": "; ".join(left), "host": added[max(added)] if added else ""})


def _replayed(result: BenchmarkResult) -> list[int]:
    """The numbers of the cases that were replayed."""
    return [number for number, one in enumerate(result.cases) if one.level is Level.REPLAYED]


def _refused(result: BenchmarkResult, why: str) -> BenchmarkResult:
    return result.model_copy(update={"status": Status.OTHER_LAUNCHES, "message": why})

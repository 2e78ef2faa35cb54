"""A candidate beside the incumbent over all cases of a task, on a replayer with a stand-in driver."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.integration.test_program_benchmark import BARE, broken, taking, task_code
from tests.unit.programs.made import OUT, clear, copied, fill, program
from tilewright.evaluation.comparison import Comparison as Verdict
from tilewright.evaluation.measurement import Phases
from tilewright.evaluation.ordinary import Ordinary
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Level, Raced, Status, StoredProgram
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.snapshot import Snapshot
from tilewright.evaluation.statistics import Interval, gain
from tilewright.policy import Reason, VerdictKind, settled, verdict_of_benchmark
from tilewright.programs.format import decoded, encoded, program_file
from tilewright.programs.identity import identity
from tilewright.programs.model import Program, digest_of
from tilewright.referee import kept
from tilewright.referee.arguments import public_inputs
from tilewright.referee.benchmark import ProgramBench
from tilewright.referee.candidates import Programs
from tilewright.referee.capture_worker import InProcess
from tilewright.referee.captures import CallCaptured, OtherLaunches
from tilewright.referee.measured import LABELS, Measuring, Run
from tilewright.referee.replayer import Replayer
from tilewright.roofline.bounds import Ceilings
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Values, case_label
from tilewright.wire.messages import Outputs, Recorded

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
CASES = {"N": 256, "part": 0}, {"N": 256, "part": 1}
TWO = "\n".join(f"[[cases]]\nN = 256\npart = {number}" for number in (0, 1))
SNAPSHOTS = {name: Snapshot(id=name, root=Path(name), task=Path("t"), cache=Path("c")) for name in LABELS}
WAITS = CallCaptured(reason="it waits for the host")
FAST, SLOW = taking(20), taking(30)
WRONG = program([clear(), fill(OUT, 20)])
REFUSED = program([copied(), fill(OUT, 20).model_copy(update={"shared": 1 << 20})])
IN_PROCESS_MS = 0.5
GAIN = BenchmarkResult(
    status=Status.PASSED, level=Level.REPLAYED, latency_ms=0.022, speedup=1.4, speedup_low=1.3, speedup_high=1.5
)
US = 40.0
"""Of an ordinary call, and of a replay, by their launches."""


def calls(*programs: Program | CallCaptured) -> list[CallCaptured]:
    """What was captured in each case."""
    return [one if isinstance(one, CallCaptured) else CallCaptured((one,), peak_bytes=4096) for one in programs]


class Captured(Programs):
    """Programs of a candidate and an incumbent, which are captured here: `ordinary` says how their ordinary calls
    differ, `us` what they take, `further` what further captures of the candidate give, and `asked` whose were
    captured."""

    def __init__(self, mine: Sequence[CallCaptured], theirs: Sequence[CallCaptured]) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._of = {"candidate": mine, "incumbent": theirs}
        self.further: Sequence[CallCaptured] = ()
        self.ordinary: dict[str, Exception] = {}
        self.us = dict.fromkeys(LABELS, US)
        self.host_us = 3.0
        self.confirmed: list[tuple[str, int]] = []
        self.recording: Recording | None = None
        self.asked: list[str] = []

    def anew(self, code: Any, snapshot: Snapshot, cases: Any, label: str, stop: Any = None) -> list[CallCaptured]:
        assert snapshot.id == label
        again = label in self.asked and bool(self.further)
        self.asked.append(label)
        found = self.further if again else self._of[label]
        return [found[one["part"]] for one in cases]

    def public(self, code: Any, case: Any) -> list[bytes]:
        return [b"public"]

    def confirm(
        self, code: Any, snapshot: Snapshot, cases: Any, programs: Sequence[Sequence[Program]], label: str
    ) -> list[tuple[Recorded, list[Program]]]:
        assert snapshot.id == label
        assert self.recording is None or self.recording.started, "nothing starts while calls are timed"
        assert [len(cases)] * 2 == [len(programs), len({one["part"] for one in cases})]
        self.confirmed.append((label, len(cases)))
        if label in self.ordinary:
            raise self.ordinary[label]
        us = self.us[label]
        recorded = Recorded(launches=[], us=[us, us, 9 * us], host_us=[self.host_us])
        return [(recorded, [*each]) for each in programs]


class Recording:
    """Stands for a replayer that records: a replay's launches take so long in all, all programs' or each program's, by
    its identity; or nothing is recorded."""

    def __init__(self, us: float | dict[str, float]) -> None:
        self._of = us
        self._us = 0.0
        self.begun = self.started = False
        self.pid: int | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self) -> None:
        self.begun = True

    def close(self) -> None:
        """It holds nothing."""

    def start(self) -> None:
        self.started = self.begun

    def load(self, programs: Sequence[Program], draws: Any) -> None:
        assert (len(programs), draws) == (1, [[b"public"]])
        self._us = self._of[identity(programs[0])] if isinstance(self._of, dict) else self._of

    def alone(self, arm: int, draw: int, calls: int, limit_s: float, pause_s: float = 0.0) -> tuple[Outputs, None]:
        us = [[self._us / 4, 3 * self._us / 4]] * calls if self._us else []
        return Outputs(events=[1.0], wall=[1.0], us=us, not_recorded="" if us else "no CUPTI"), None


class InOwnProcess:
    """Stands for the benchmark in the versions' own processes, in which the candidate gains 10% or nothing."""

    def __init__(self, alone: bool) -> None:
        self._alone = alone
        self.asked: list[int] = []

    def case(self, case: Any, seeds: Seeds, looks: Any, limit_s: float) -> tuple[CaseTiming, Interval | None]:
        self.asked.append(case["part"])
        timing = CaseTiming(case=case, level=Level.IN_PROCESS, latency_ms=IN_PROCESS_MS, note="eager")
        if self._alone:
            return timing, None
        ratio = {"incumbent_ms": 0.55, "speedup": 1.1, "speedup_low": 1.09, "speedup_high": 1.11, "pairs": 8}
        pairs = [(IN_PROCESS_MS, 0.55 + number / 1e4) for number in range(8)]
        return timing.model_copy(update=ratio), gain(pairs)


class Stage:
    """One measurement after the other, on one replayer."""

    def __init__(self, folder: Path, replayer: Replayer) -> None:
        self._folder = folder
        self.replayer = replayer
        self.in_process: list[InOwnProcess] = []
        self.programs = Captured([], [])
        self.host_us = 3.0
        self.told: list[str] = []
        self.recorder: Any = SimpleNamespace(
            own=set(),
            sample=lambda: None,
            busy_strangers=lambda: set(),
            off=list,
            joules=lambda: None,
        )

    def run(
        self, protection: str = "best", alone: bool = False, rules: Rules = DEFAULT, forbids: bool = False, **more: Any
    ) -> Run:
        @contextlib.contextmanager
        def in_process() -> Iterator[Any]:
            self.in_process.append(InOwnProcess(alone))
            yield self.in_process[-1]

        code = task_code(self._folder / protection, BARE, f'protection = "{protection}"', TWO)
        if forbids:
            code.task = replace(code.task, file=code.task.file.model_copy(update={"library_calls": "forbid"}))
        return Run(
            code=code,
            rules=rules,
            seeds=Seeds("secret"),
            ceilings=Ceilings(copy_bytes_per_s=4e12, flops={"float32": 60e12}, measured=True),
            deadline=time.monotonic() + 100,
            recorder=self.recorder,
            phases=Phases(),
            tell=self.told.append,
            in_process=in_process,
            device=None,
            **more,
        )

    def measure(
        self,
        mine: Sequence[CallCaptured],
        theirs: Sequence[CallCaptured] = (),
        ordinary: dict[str, Exception] | None = None,
        run: Run | None = None,
        us: dict[str, float] | None = None,
        replayed_us: float | dict[str, float] = US,
        ordinary_of: Sequence[Ordinary] = (),
        **how: Any,
    ) -> BenchmarkResult:
        """Measure a candidate against the incumbent, or alone where that has nothing. `us`: of their ordinary calls."""
        self.programs = Captured(mine, theirs)
        self.programs.ordinary = ordinary or {}
        self.programs.us |= us or {}
        self.programs.host_us = self.host_us
        recording: Any = Recording(replayed_us)
        self.programs.recording = recording
        measuring = Measuring(self.programs, self.replayer, lambda: recording)
        incumbent = SNAPSHOTS["incumbent"] if theirs else None
        run = run or self.run(alone=not theirs, ordinary=ordinary_of, **how)
        return measuring.benchmarked(run, SNAPSHOTS["candidate"], incumbent)

    def assert_nothing_was_timed(self) -> None:
        assert (self.replayer.starts, self.in_process) == (0, [])


@pytest.fixture
def stage(tmp_path: Path, replayer: Replayer) -> Stage:
    return Stage(tmp_path, replayer)


def test_two_cases_are_replayed(stage: Stage) -> None:
    result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW))
    assert (result.status, result.level, result.same) == (Status.PASSED, Level.REPLAYED, False)
    assert [case.case for case in result.cases] == [*CASES]
    for case in result.cases:
        assert (case.level, case.same, case.bounded, case.peak_bytes) == (Level.REPLAYED, False, False, 4096)
        assert (case.same_bytes, case.error_used) == (False, 0.0)
        assert case.program == StoredProgram(
            identity=identity(FAST), sha256=digest_of(encoded(FAST)), size=len(encoded(FAST))
        )
        assert case.roofline_percent is not None
        assert case.bound == "memory"
        assert len(case.samples) >= 8
    assert result.speedup_low is not None
    assert result.speedup_low > 1.3
    assert result.latency_ms == pytest.approx(0.022, rel=0.1)
    assert (verdict := verdict_of_benchmark(result, DEFAULT)) is not None
    assert (verdict.kind, verdict.reason) == (VerdictKind.KEEP, Reason.GAIN)
    assert stage.recorder.own == {stage.replayer.pid}
    assert [text for text in stage.told if "timing case" in text] == [
        "timing case 1 of 2: N=256 part=0",
        "timing case 2 of 2: N=256 part=1",
    ]
    assert stage.in_process == []


def test_a_baseline_is_replayed_alone(stage: Stage) -> None:
    result = stage.measure(calls(FAST, SLOW))
    assert (result.status, result.level, result.speedup) == (Status.PASSED, Level.REPLAYED, None)
    assert [case.latency_ms for case in result.cases] == pytest.approx([0.022, 0.032], rel=0.1)


def test_the_same_programs_are_not_timed(stage: Stage) -> None:
    result = stage.measure(calls(FAST, SLOW), calls(FAST, SLOW), confirms=True)
    assert result == BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, same=True)
    assert (verdict := settled(result, None, None, DEFAULT)) is not None
    assert verdict.reason is Reason.SAME_PROGRAM
    stage.assert_nothing_was_timed()
    assert stage.programs.confirmed == []


def test_a_case_with_the_same_program_counts_as_no_change(stage: Stage) -> None:
    result = stage.measure(calls(FAST, FAST), calls(FAST, SLOW))
    same, faster = result.cases
    assert not result.same
    assert (same.same, same.speedup, same.speedup_low, same.speedup_high) == (True, 1.0, 1.0, 1.0)
    assert (faster.same, faster.speedup) == (False, pytest.approx(32 / 22, rel=0.05))
    assert result.speedup == pytest.approx((32 / 22) ** 0.5, rel=0.05)
    assert (verdict := verdict_of_benchmark(result, DEFAULT)) is not None
    assert verdict.reason is Reason.GAIN


@pytest.mark.parametrize(
    ("protection", "theirs"), [("best", calls(SLOW, SLOW)), ("replayed", calls(SLOW, SLOW)), ("replayed", [])]
)
def test_what_cannot_be_captured_does_not_take_the_place_of_what_can(
    stage: Stage, protection: str, theirs: list[CallCaptured]
) -> None:
    result = stage.measure(calls(FAST, WAITS), theirs, protection=protection)
    assert (result.status, result.level) == (Status.NOT_REPLAYED, None)
    assert result.message == "N=256 part=1: it waits for the host"
    stage.assert_nothing_was_timed()


@pytest.mark.parametrize(
    ("captured", "status", "message"),
    [
        (calls(FAST, FAST), Status.PASSED, ""),
        (
            calls(FAST, CallCaptured((FAST,), libraries=("sgemm",))),
            Status.LIBRARY_CALLS,
            "part=1: library calls ran: ker",
        ),
        (calls(FAST, WAITS), Status.NOT_REPLAYED, "N=256 part=1: it waits for the host"),
    ],
)
def test_where_libraries_are_forbidden_only_programs_without_their_kernels_pass(
    stage: Stage, captured: list[CallCaptured], status: Status, message: str
) -> None:
    for theirs in ([], calls(SLOW, WAITS if status is Status.NOT_REPLAYED else SLOW)):
        result = stage.measure(captured, theirs, forbids=True)
        assert result.status is status
        assert message in result.message
    assert stage.in_process == []


def test_where_libraries_are_allowed_their_kernels_pass(stage: Stage) -> None:
    captured = [CallCaptured((FAST,), libraries=("sgemm",))] * 2
    assert stage.measure(captured, calls(SLOW, SLOW)).passed


def test_a_task_may_let_it(stage: Stage) -> None:
    result = stage.measure(calls(FAST, WAITS), calls(SLOW, SLOW), protection="in-process")
    assert (result.status, result.level) == (Status.PASSED, Level.IN_PROCESS)
    assert [case.level for case in result.cases] == [Level.REPLAYED, Level.IN_PROCESS]
    assert result.cases[1].note == "it waits for the host; eager"
    assert result.cases[1].program is None
    assert [one.asked for one in stage.in_process] == [[1]]
    assert result.speedup == pytest.approx((32 / 22 * 1.1) ** 0.5, rel=0.05)


@pytest.mark.parametrize("protection", ["best", "in-process"])
def test_an_incumbent_that_cannot_be_captured_is_timed_as_its_candidate_is(stage: Stage, protection: str) -> None:
    result = stage.measure(calls(FAST, WAITS), calls(WAITS, WAITS), protection=protection)
    assert [case.note for case in result.cases] == [
        "of the incumbent: it waits for the host; eager",
        "it waits for the host; eager",
    ]
    assert [one.asked for one in stage.in_process] == [[0, 1]], "one pair of processes for all cases"
    assert result.level is Level.IN_PROCESS
    assert stage.replayer.starts == 0


def test_a_baseline_that_cannot_be_captured_is_timed_in_its_own_process(stage: Stage) -> None:
    result = stage.measure(calls(WAITS, FAST))
    assert [case.level for case in result.cases] == [Level.IN_PROCESS, Level.REPLAYED]
    assert (result.level, result.speedup) == (Level.IN_PROCESS, None)


def test_two_programs_that_do_not_fit_are_the_candidates_doing(
    tmp_path: Path, small_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(small_library))
    with Replayer(tmp_path) as replayer:
        stage = Stage(tmp_path, replayer)
        result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW))
        assert result.status is Status.NOT_REPLAYED
        assert result.message.startswith("N=256 part=0: the replayer: ")
        assert "MiB are free" in result.message
        assert stage.measure(calls(FAST, FAST), protection="replayed").status is Status.NOT_REPLAYED
        assert stage.in_process == []
        assert stage.measure(calls(FAST, FAST)).level is Level.IN_PROCESS


def test_a_program_that_the_driver_refuses_is_told_by_whose_it_is(stage: Stage) -> None:
    assert stage.measure(calls(REFUSED, FAST), calls(SLOW, SLOW)).status is Status.NOT_REPLAYED
    assert stage.measure(calls(REFUSED, FAST), protection="replayed").status is Status.NOT_REPLAYED
    assert stage.in_process == []
    result = stage.measure(calls(FAST, FAST), calls(REFUSED, SLOW))
    assert [case.level for case in result.cases] == [Level.IN_PROCESS, Level.REPLAYED]
    assert result.cases[0].note.startswith("the replayer: ")
    result = stage.measure(calls(FAST, FAST), calls(REFUSED, SLOW), protection="replayed")
    assert result.status is Status.NOT_REPLAYED


def test_a_wrong_program_has_the_status_of_what_is_wrong(stage: Stage) -> None:
    with pytest.raises(WorkerFailure, match="N=256 part=1, in a call that was replayed on other values") as failed:
        stage.measure(calls(FAST, WRONG), calls(SLOW, SLOW))
    assert failed.value.status is Status.WRONG_VALUES
    with pytest.raises(WorkerFailure, match="N=256 part=0, replayed: illegal-access") as failed:
        stage.measure(calls(broken(FAST), FAST), calls(SLOW, SLOW))
    assert failed.value.status is Status.CRASHED


def test_an_incumbent_that_fails_makes_it_void(stage: Stage) -> None:
    with pytest.raises(WorkerFailure, match="the incumbent failed: N=256 part=0, replayed: illegal-access") as failed:
        stage.measure(calls(FAST, FAST), calls(broken(SLOW), SLOW))
    assert failed.value.status is Status.VOID


def test_other_processes_on_the_gpu_make_it_void(stage: Stage) -> None:
    stage.recorder.busy_strangers = lambda: {(1 << 22) + 1}
    with pytest.raises(
        WorkerFailure, match=r"other processes used the GPU meanwhile: 4194305 \(gone\); measure again"
    ) as failed:
        stage.measure(calls(FAST, FAST), calls(SLOW, SLOW))
    assert failed.value.status is Status.VOID


def test_the_time_of_the_iteration_ends_it(stage: Stage) -> None:
    run = replace(stage.run(), deadline=time.monotonic() - 1)
    with pytest.raises(WorkerFailure, match="the evaluation time of this iteration is used up") as failed:
        stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), run=run)
    assert (failed.value.status, failed.value.used_up) == (Status.TIMEOUT, True)
    stage.assert_nothing_was_timed()


UNSEEN = InProcess("CUPTI cannot be loaded")
OTHER = OtherLaunches("launches other kernels outside capture")
FAILED = WorkerFailure(Status.RAISED, "ValueError: no", label="incumbent")


@pytest.mark.parametrize(
    ("ordinary", "status", "message", "unconfirmed"),
    [
        ({}, Status.PASSED, "", ""),
        ({"candidate": OTHER}, Status.OTHER_LAUNCHES, "launches other kernels outside capture", ""),
        ({"candidate": UNSEEN, "incumbent": UNSEEN}, Status.PASSED, "", "CUPTI cannot be loaded"),
        *(
            (
                {"candidate": UNSEEN} | theirs,
                Status.OTHER_LAUNCHES,
                "what it launches in an ordinary call is not known: CUPTI cannot be loaded",
                "",
            )
            for theirs in ({}, {"incumbent": FAILED})
        ),
    ],
)
def test_a_gain_is_confirmed_by_what_an_ordinary_call_launches(
    stage: Stage, ordinary: dict[str, Exception], status: Status, message: str, unconfirmed: str
) -> None:
    result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), ordinary, confirms=True)
    assert (result.status, result.message, result.unconfirmed) == (status, message, unconfirmed)
    assert result.speedup is not None, "what was measured is on record"
    asked = ["candidate"] if ordinary.get("candidate") is OTHER else [*LABELS]
    assert stage.programs.confirmed == [(label, 2) for label in asked]
    verdict = settled(GAIN, None, result, DEFAULT)
    assert verdict is not None
    assert verdict.reason is (Reason.GAIN if status is Status.PASSED else Reason.OTHER_LAUNCHES)


@pytest.fixture
def wrong_on(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Programs, by identity, that are taken to be wrong on classes of values of a part."""
    wrong, real = set[tuple[str, int]](), ProgramBench._on_trial

    def on_trial(bench: ProgramBench, case: Any, one: Program, trial: Any) -> Any:
        if (identity(one), case["part"]) in wrong and trial.values is Values.LARGE:
            return Verdict(Status.NON_FINITE, "1 element is NaN")
        return real(bench, case, one, trial)

    monkeypatch.setattr(ProgramBench, "_on_trial", on_trial)
    return wrong


def test_classes_of_values_are_judged_on_every_timed_shape_before_a_keep(
    stage: Stage, wrong_on: set[tuple[str, int]]
) -> None:
    wrong_on.add((identity(FAST), 1))
    assert stage.measure(calls(FAST, FAST), calls(SLOW, SLOW)).passed, "it is not to be kept yet"
    with pytest.raises(WorkerFailure, match=r"N=256 part=1 \(large values\), replayed: 1 element is NaN") as failed:
        stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), confirms=True)
    assert failed.value.status is Status.NON_FINITE
    with pytest.raises(WorkerFailure, match=r"part=1 \(large values\)"):
        stage.measure(calls(FAST, FAST))  # a baseline
    same = stage.measure(calls(FAST, FAST), calls(SLOW, FAST), confirms=True)
    assert (same.status, same.unjudged) == (Status.PASSED, [])


def test_classes_on_which_the_incumbent_is_wrong_are_named(stage: Stage, wrong_on: set[tuple[str, int]]) -> None:
    wrong_on.update({(identity(FAST), 1), (identity(SLOW), 1)})
    result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), confirms=True)
    assert result.passed
    assert result.unjudged == ["N=256 part=1 (large values): the incumbent is wrong on the same inputs"]


def test_only_what_gains_and_was_replayed_is_compared_with_an_ordinary_call(stage: Stage) -> None:
    ordinary: dict[str, Exception] = {"candidate": OTHER}
    assert stage.measure(calls(SLOW, SLOW), calls(FAST, FAST), ordinary, confirms=True).passed
    assert stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), ordinary).passed
    assert stage.measure(calls(WAITS, WAITS), calls(WAITS, WAITS), ordinary, confirms=True).passed
    assert stage.programs.confirmed == []
    mixed = stage.measure(calls(FAST, WAITS), calls(SLOW, WAITS), ordinary, confirms=True)
    assert (mixed.status, stage.programs.confirmed) == (Status.OTHER_LAUNCHES, [("candidate", 1)])


def ordinary_calls(result: BenchmarkResult) -> list[tuple[float, float, float] | None]:
    return [one.ordinary and (one.ordinary.us, one.ordinary.replayed_us, one.ordinary.host_us) for one in result.cases]


def test_a_baseline_s_ordinary_calls_are_on_record_if_they_can_be_had(stage: Stage) -> None:
    result = stage.measure(calls(FAST, WAITS), us={"candidate": 44.0})
    assert (result.status, ordinary_calls(result)) == (Status.PASSED, [(44.0, US, 3.0), None])
    for why in (OTHER, FAILED):
        result = stage.measure(calls(FAST, FAST), ordinary={"candidate": why})
        assert (result.status, result.unconfirmed, ordinary_calls(result)) == (Status.PASSED, "", [None, None])


@pytest.mark.parametrize("recorded", [False, True])
def test_a_gain_that_an_ordinary_call_does_not_show_is_refused(stage: Stage, recorded: bool) -> None:
    """By the incumbent's ordinary calls that are on record, or by new ones."""

    def confirmed(mine: float, theirs: float) -> BenchmarkResult:
        known = [Ordinary(us=theirs, replayed_us=US, host_us=3.0)] * 2 if recorded else []
        us = {"candidate": mine, "incumbent": 7.0 if recorded else theirs}
        result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), us=us, confirms=True, ordinary_of=known)
        asked = [*(LABELS[:1] if recorded else LABELS)]
        asked += [*reversed(LABELS)] if result.status is Status.OTHER_LAUNCHES else []  # both, once more
        assert stage.programs.confirmed == [(label, 2) for label in asked]
        return result

    honest = confirmed(44.4, 44.0)
    assert (honest.status, honest.uncompared, ordinary_calls(honest)) == (Status.PASSED, "", [(44.4, US, 3.0)] * 2)
    assert confirmed(40.0, 44.0).passed, "faster outside is no harm"
    refused = confirmed(46.0, 40.0)
    assert refused.status is Status.OTHER_LAUNCHES
    assert refused.message.startswith("N=256 part=0: an ordinary call takes 46.0 us, a replay 40.0 us: beside ")


@pytest.mark.parametrize("us", [0.0, 1e-4])
def test_a_call_that_is_said_to_take_no_time_is_refused(stage: Stage, us: float) -> None:
    """A worker's word, whose candidate may lie."""
    stage.host_us = us
    result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), us={"candidate": us}, confirms=True)
    assert result.status is Status.OTHER_LAUNCHES
    assert result.message == "N=256 part=0: an ordinary call is said to take no time"


def test_host_time_that_a_gain_adds_is_named(stage: Stage) -> None:
    known = [Ordinary(us=US, replayed_us=US, host_us=host_us) for host_us in (45.0, 10.0)]
    for host_us, said in ((48.0, "+38 us on the host, host-bound"), (11.0, "")):
        stage.host_us = host_us
        result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), confirms=True, ordinary_of=known)
        assert (result.status, result.host) == (Status.PASSED, said)


def test_durations_that_were_not_compared_are_named(stage: Stage) -> None:
    short = {"candidate": 9.0, "incumbent": 6.0}
    result = stage.measure(calls(FAST, FAST), calls(SLOW, FAST), us=short, replayed_us=6.0, confirms=True)
    assert (result.status, result.uncompared) == (Status.PASSED, "N=256 part=0: a call of 9.0 us is too short")
    for why in ({"replayed_us": 0.0}, {"ordinary": {"incumbent": OTHER}}):
        result = stage.measure(calls(FAST, FAST), calls(SLOW, FAST), confirms=True, **why)  # type: ignore[arg-type]
        assert (result.status, result.uncompared) == (Status.PASSED, "N=256 part=0: no records of both versions")


def test_programs_are_written_once_by_what_is_in_them(stage: Stage, tmp_path: Path) -> None:
    store = tmp_path / "sandbox" / "programs"
    result = stage.measure(calls(FAST, FAST), store=store)
    (path,) = store.iterdir()
    assert path == program_file(store, digest_of(encoded(FAST)))
    assert path.read_bytes() == encoded(FAST)
    assert {case.program.sha256 for case in result.cases if case.program} == {digest_of(path.read_bytes())}
    assert identity(decoded(path.read_bytes())) == identity(FAST)
    before = path.stat().st_mtime_ns
    stage.measure(calls(SLOW, FAST), calls(FAST, SLOW), store=store)
    assert path.stat().st_mtime_ns == before
    assert {path.name for path in store.iterdir()} == {f"{digest_of(encoded(one))}.program" for one in (FAST, SLOW)}


def test_a_program_is_written_with_the_inputs_of_a_public_draw(stage: Stage, tmp_path: Path) -> None:
    store, run = tmp_path / "programs", stage.run(alone=True, store=tmp_path / "programs", with_inputs=True)
    result = stage.measure(calls(FAST, FAST), run=run)
    assert "classes" not in run.phases.seconds, "who asks for inputs wants figures, and no verdict"
    for timing in result.cases:
        assert timing.program is not None
        program = decoded(program_file(store, timing.program.sha256).read_bytes())
        drawn = public_inputs(run.code, timing.case)["x"]
        assert program.examples == {"x": drawn.numpy().tobytes()}
        assert identity(program) == identity(FAST)


def test_a_program_beside_a_file_that_has_just_gone_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "gone.part").symlink_to(tmp_path / "nowhere")
    assert kept.stored(FAST, tmp_path).note == "not written: No such file or directory"


def test_a_session_keeps_only_so_much(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "STORED_BYTES", len(encoded(FAST)) + 10)
    fast, slow = stage.measure(calls(FAST, SLOW), store=tmp_path / "programs").cases
    assert fast.program is not None
    assert slow.program is not None
    assert fast.program.note == ""
    assert slow.program.note == "not written: the session's programs would take over 0 MiB"
    assert slow.program.sha256 == digest_of(encoded(SLOW))
    assert [path.stem for path in (tmp_path / "programs").iterdir()] == [fast.program.sha256]


Kept = Callable[..., dict[str, list[Path]]]


@pytest.fixture
def files(tmp_path: Path) -> Kept:
    """Write the incumbent's programs in either case, as a session keeps them."""

    def write(*by_case: Sequence[Program]) -> dict[str, list[Path]]:
        kept = {}
        for case, programs in zip(CASES, by_case, strict=True):
            kept[case_label(case)] = [program_file(tmp_path, digest_of(encoded(one))) for one in programs]
            for path, one in zip(kept[case_label(case)], programs, strict=True):
                path.write_bytes(encoded(one))
        return kept

    return write


TWICE = program([copied(), fill(OUT, 30), fill(OUT, 30)])
"""What an incumbent launches from some date on whose program was `SLOW` when it was kept."""


def test_an_incumbent_is_the_program_that_was_kept_whatever_it_launches_today(stage: Stage, files: Kept) -> None:
    """A rival that is as the incumbent was gains nothing; and no call of the incumbent is captured."""
    kept = files([SLOW], [SLOW])
    for _ in range(2):  # the second time as a new server does it
        rival = stage.measure(calls(SLOW, SLOW), calls(TWICE, TWICE), kept=kept)
        assert (rival.status, rival.same, stage.programs.asked) == (Status.PASSED, True, ["candidate"])
    slower = stage.measure(calls(TWICE, SLOW), calls(TWICE, TWICE), kept=kept)
    assert slower.speedup_high is not None
    assert slower.speedup_high < 1
    faster = stage.measure(calls(FAST, FAST), calls(TWICE, TWICE), kept=kept)
    assert faster.speedup == pytest.approx(32 / 22, rel=0.05)
    assert stage.programs.asked == ["candidate"]
    assert {case.note for case in faster.cases} == {""}
    anew = stage.measure(calls(SLOW, SLOW), calls(TWICE, TWICE))
    assert (anew.speedup or 0) > 1.5, "without what was kept it would gain"


def test_a_program_that_cannot_be_read_or_loaded_is_captured_anew_and_the_row_says_so(
    stage: Stage, files: Kept, tmp_path: Path
) -> None:
    kept = files([SLOW], [REFUSED])
    kept["N=256 part=0"][0].unlink()
    result = stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), kept=kept)
    assert (result.level, stage.programs.asked) == (Level.REPLAYED, ["candidate", "incumbent", "incumbent"])
    gone, refused = (case.note for case in result.cases)
    assert gone == f"incumbent captured anew: {kept['N=256 part=0'][0].name} is not there"
    assert refused.startswith("incumbent captured anew: the replayer: ")
    assert result.speedup == pytest.approx(32 / 22, rel=0.05)


def test_a_file_that_holds_another_program_than_the_one_on_record_is_named(stage: Stage, files: Kept) -> None:
    kept = files([SLOW], [SLOW])
    (path,) = kept["N=256 part=0"]
    path.write_bytes(encoded(taking(90)))
    with pytest.raises(WorkerFailure, match=f"N=256 part=0: {path.name} holds another program than its name") as failed:
        stage.measure(calls(FAST, FAST), calls(SLOW, SLOW), kept=kept)
    assert failed.value.status is Status.VOID
    stage.assert_nothing_was_timed()


def test_a_case_that_was_not_replayed_is_captured_as_before(stage: Stage, files: Kept) -> None:
    kept = files([SLOW], [SLOW])
    del kept["N=256 part=1"]
    result = stage.measure(calls(FAST, WAITS), calls(SLOW, WAITS), kept=kept)
    assert [case.level for case in result.cases] == [Level.REPLAYED, Level.IN_PROCESS]
    assert stage.programs.asked == ["candidate", "incumbent"]


def tuned(*programs: Program) -> CallCaptured:
    return CallCaptured(programs, tuned=True)


def test_of_a_function_that_tunes_the_slowest_program_counts_against_the_fastest(
    stage: Stage, files: Kept, tmp_path: Path
) -> None:
    mine, kept = [tuned(FAST, taking(25)), tuned(SLOW)], files([SLOW, taking(40)], [SLOW, taking(40)])
    result = stage.measure(mine, calls(SLOW, SLOW), kept=kept, store=tmp_path / "programs")
    several, same = result.cases
    assert several.latency_ms == pytest.approx(0.027, rel=0.1)
    assert several.incumbent_ms == pytest.approx(0.032, rel=0.1)
    assert [one.identity for one in several.programs] == [identity(taking(25)), identity(FAST)]
    assert several.program == several.programs[0]
    assert all(program_file(tmp_path / "programs", one.sha256).is_file() for one in several.programs)
    assert (same.same, same.speedup) == (True, 1.0), "what it drew is one of the incumbent's"
    assert [one.identity for one in same.programs] == [identity(SLOW), identity(taking(40))], "as before"
    drawn = stage.measure([tuned(SLOW, taking(40))] * 2, calls(SLOW, SLOW), kept=files([SLOW], [SLOW]))
    assert (drawn.speedup_high or 9) < 1, "a worse draw is no gain of the one before"


def test_a_candidate_is_captured_anew_before_it_is_kept(stage: Stage, files: Kept) -> None:
    kept = files([SLOW], [SLOW])
    run = stage.run(confirms=True, kept=kept)
    stage.programs = Captured([tuned(FAST)] * 2, [])
    stage.programs.further = [tuned(FAST, TWICE), tuned(FAST)]
    recording: Any = Recording(US)
    measuring = Measuring(stage.programs, stage.replayer, lambda: recording)
    result = measuring.benchmarked(run, SNAPSHOTS["candidate"], SNAPSHOTS["incumbent"])
    assert stage.programs.asked == ["candidate", "candidate"]
    assert [len(case.programs) for case in result.cases] == [2, 1]
    worse, better = result.cases
    assert (worse.speedup_high or 9) < 1 < (better.speedup_low or 0)


def test_a_baseline_is_captured_as_often_as_what_is_kept(stage: Stage, tmp_path: Path) -> None:
    run = stage.run(alone=True, store=tmp_path / "programs")
    stage.programs = Captured([tuned(FAST)] * 2, [])
    stage.programs.further = [tuned(program([copied(), fill(OUT, 15), fill(OUT, 15)])), tuned(FAST)]
    recording: Any = Recording(US)
    measuring = Measuring(stage.programs, stage.replayer, lambda: recording)
    result = measuring.benchmarked(run, SNAPSHOTS["candidate"], None)
    assert [len(case.programs) for case in result.cases] == [2, 1]
    assert [case.latency_ms for case in result.cases] == pytest.approx([0.032, 0.022], rel=0.1)


@pytest.mark.parametrize(("us", "beside"), [(21.0, 20.0), (39.0, 40.0), (48.0, None)])
def test_an_ordinary_call_of_a_function_that_tunes_is_compared_with_one_of_its_programs(
    stage: Stage, us: float, beside: float | None
) -> None:
    replayed = {identity(FAST): 20.0, identity(taking(25)): 40.0, identity(SLOW): US}
    known = [Ordinary(us=US, replayed_us=US, host_us=3.0)] * 2
    result = stage.measure(
        [tuned(FAST, taking(25))] * 2,
        calls(SLOW, SLOW),
        us={"candidate": us},
        replayed_us=replayed,
        ordinary_of=known,
        confirms=True,
    )
    assert ordinary_calls(result) == [(us, beside or 40.0, 3.0)] * 2
    assert result.status is (Status.PASSED if beside else Status.OTHER_LAUNCHES)


def test_every_program_of_a_candidate_has_to_be_right(stage: Stage, wrong_on: set[tuple[str, int]]) -> None:
    with pytest.raises(WorkerFailure, match="N=256 part=0, in a call that was replayed on other values") as failed:
        stage.measure([tuned(FAST, WRONG), tuned(FAST)], calls(SLOW, SLOW))
    assert failed.value.status is Status.WRONG_VALUES
    wrong_on.add((identity(taking(25)), 0))
    with pytest.raises(WorkerFailure, match=r"N=256 part=0 \(large values\), replayed: 1 element is NaN"):
        stage.measure([tuned(FAST, taking(25)), tuned(FAST)], calls(SLOW, SLOW), confirms=True)


Whole = Callable[..., BenchmarkResult]


@pytest.fixture
def whole(stage: Stage, tmp_path: Path) -> Whole:
    """Compare first and last programs of two cases, which are first written to the disk."""

    def compare(firsts: Sequence[Program], lasts: Sequence[Program], alter: bool = False) -> BenchmarkResult:
        paths = {}
        for one in (*firsts, *lasts):
            paths[identity(one)] = path = program_file(tmp_path, digest_of(encoded(one)))
            path.write_bytes(encoded(one) if not (alter and one is lasts[0]) else encoded(WRONG))
        pairs = [
            (case, paths[identity(a)], paths[identity(b)]) for case, a, b in zip(CASES, firsts, lasts, strict=True)
        ]
        return Measuring(stage.programs, stage.replayer).whole(stage.run(), pairs)

    return compare


def test_the_first_programs_of_a_session_are_replayed_against_the_last(whole: Whole) -> None:
    result = whole([SLOW, SLOW], [FAST, SLOW])
    assert (result.status, result.level) == (Status.PASSED, Level.REPLAYED)
    assert [case.case for case in result.cases] == [*CASES]
    assert [case.same for case in result.cases] == [False, True]
    assert result.speedup == pytest.approx((32 / 22) ** 0.5, rel=0.05)
    assert result.speedup_low is not None
    assert 1 < result.speedup_low <= result.speedup
    assert result.resolution is not None and 0 <= result.resolution < 0.02


def test_what_comes_after_the_comparison_does_not_end_it(whole: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(*_: object) -> None:
        raise WorkerFailure(Status.VOID, "other processes used the GPU meanwhile")

    for name in ("sustained", "resolution"):
        monkeypatch.setattr(ProgramBench, name, disturbed)
    result = whole([SLOW, SLOW], [FAST, SLOW])
    assert (result.status, result.resolution) == (Status.PASSED, None)
    assert result.speedup is not None


def test_a_session_whose_last_programs_are_its_first_gained_nothing(whole: Whole) -> None:
    result = whole([SLOW, SLOW], [SLOW, SLOW])
    assert (result.speedup, result.speedup_low, result.speedup_high) == (1.0, 1.0, 1.0)
    assert [case.same for case in result.cases] == [True, True]


def test_a_program_that_was_altered_on_the_disk_is_none(whole: Whole, stage: Stage) -> None:
    with pytest.raises(
        WorkerFailure, match=r"N=256 part=0: .*\.program holds another program than its name says"
    ) as failed:
        whole([SLOW, SLOW], [FAST, FAST], alter=True)
    assert failed.value.status is Status.VOID
    assert stage.replayer.starts == 0


def test_a_program_that_is_gone_or_cannot_be_replayed_makes_it_void(whole: Whole, stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(WorkerFailure, match="N=256 part=1: the replayer: ") as failed:
        whole([SLOW, SLOW], [FAST, REFUSED])
    assert failed.value.status is Status.VOID
    gone = tmp_path / "gone.program"
    with pytest.raises(WorkerFailure, match="No such file") as failed:
        Measuring(stage.programs, stage.replayer).whole(stage.run(), [(CASES[0], gone, gone)])
    assert failed.value.status is Status.VOID


def test_versions_are_raced_over_all_cases(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails in one case fails, and is not run in the next."""
    stays_away = Raced(status=Status.NOT_REPLAYED, message="it waits for the host")
    captured = [[SLOW, SLOW], [FAST, FAST], stays_away, [WRONG, FAST], [SLOW, taking(25)], [FAST, WRONG]]

    def of_each(code: Any, snapshots: Sequence[Snapshot], cases: Any, room: int, look: Any, tell: Any) -> Any:
        assert (len(snapshots), [*cases], room) == (len(captured), [*CASES], 5)
        look()
        return captured

    programs: Any = SimpleNamespace(of_each=of_each)
    configs = Measuring(programs, stage.replayer).raced(
        stage.run(), [SNAPSHOTS["candidate"]] * len(captured), 5, whole=False
    )
    passed, wrong = Status.PASSED, Status.WRONG_VALUES
    assert [[one.status for one in by_case] for by_case in configs] == [
        [passed] * 2, [passed] * 2, [Status.NOT_REPLAYED] * 2, [wrong] * 2, [passed] * 2, [wrong] * 2,
    ]  # fmt: skip
    assert [one.same for one in configs[4]] == [0, None]
    assert min(one.low or 0 for one in configs[1]) > 1.2
    assert configs[5][0].message.startswith("N=256 part=1: ")
    assert [text for text in stage.told if text.startswith("racing")] == [
        "racing 5 configs on N=256 part=0",
        "racing 4 configs on N=256 part=1",
    ]
    assert stage.recorder.own == {stage.replayer.pid}

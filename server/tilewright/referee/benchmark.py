"""A case by device programs: judged and timed on secret draws, which no worker saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from tilewright.evaluation.calibration import Trial, make_trial
from tilewright.evaluation.comparison import Comparison as Verdict
from tilewright.evaluation.correctness import classes_of, judge_drawn, judge_trial
from tilewright.evaluation.measurement import Phases
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Level, Status, Sustained
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import LOOKS, Comparison, Interval, error_probability, interval
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.evaluation.tensors import from_buffer
from tilewright.programs.digests import widened
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee.arguments import described, drawn_inputs
from tilewright.referee.capture_worker import InProcess
from tilewright.referee.compare import CALL_LIMIT_S, DRAWS, Unsteady, replayed_in_turns
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.rules import DEFAULT, Rules
from tilewright.task import Case, Values, case_label
from tilewright.wire.channel import Sent

INCUMBENT, CANDIDATE, EMPTY = 0, 1, -1
"""The arms of a comparison, and the program that does nothing."""
JUDGED_BYTES = 2 << 30
"""Of outputs that are compared with the reference in the rounds before the first look, where equal inputs need not give
equal outputs."""
BLOCK_S, BLOCK_LIMIT_S, BLOCK_QUADS, ABBA = 0.3, 5.0, 6, (INCUMBENT, CANDIDATE, CANDIDATE, INCUMBENT)
"""Seconds of a block of calls without a rest, and at most; quads of blocks that are compared, and the order in one."""
FALLEN = 0.98
"""Share of an idle GPU's SM clock under which it counts as lowered."""
SUSTAINED_ERROR = 0.05
LAUNCH_BOUND_US = 20.0
"""Calls under it wait for the host, where one follows the other."""
SURE = 1000
"""Samples, and degrees of freedom, of what is known without any: more than any measurement has."""
_STATUS = {
    "hang": Status.TIMEOUT,
    "tampered": Status.TAMPERED,
    "out-of-memory": Status.NOT_REPLAYED,
    "refused": Status.NOT_REPLAYED,
}


class Timed(NamedTuple):
    """What a case's rounds say. Microseconds for a call by events, of the incumbent, the candidate and an empty
    program; without an incumbent, or where both are the same program, the first two are both the candidate's.
    `programs`: of the incumbent and of the candidate, those whose figures these are. `error_used`: the largest share of
    the error allowed in what was judged."""

    found: Comparison
    pairs: int
    same: bool
    programs: tuple[Program, Program]
    error_used: float

    @property
    def speedup(self) -> Interval:
        return Interval(0.0, 0.0, 0.0, 0.0, SURE, SURE) if self.same else self.found.speedup


class _Wrong(Exception):
    """A call of a program that was replayed on this draw gave wrong outputs."""

    def __init__(self, program: Program, draw: int, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.program = program
        self.draw = draw
        self.verdict = verdict


class ProgramBench:
    """Benchmarks one candidate after the other on a replayer."""

    def __init__(
        self,
        code: TaskCode,
        replayer: Replayer,
        rules: Rules = DEFAULT,
        error: float | None = None,
        after_round: Callable[[], None] = lambda: None,
        phases: Phases | None = None,
        joules: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`error`: the probability that an interval misses the truth over all looks; default: by `rules`. `phases`
        takes down where the seconds of a case go: "inputs" (drawn and handed over), "judge" and "replay". `joules`:
        the energy that the GPU has taken, if it says."""
        self._code = code
        self._replayer = replayer
        self._rules = rules
        self._error = error_probability(rules) if error is None else error
        self._after_round = after_round
        self._joules = joules
        self._phases = Phases() if phases is None else phases

    def case(self, case: Case, candidate: Sequence[Program], incumbent: Sequence[Program], seeds: Seeds) -> Timed:
        """Replay a candidate's programs, in turns with the incumbent's if there are any and the candidate has others:
        its slowest is compared with the incumbent's fastest. Raises `InProcess` where they cannot be replayed, and
        `WorkerFailure` where the candidate is wrong or fails, or the incumbent does (void)."""
        same = {*map(identity, candidate)} <= {*map(identity, incumbent)}
        theirs, incumbent = incumbent, [] if same else incumbent
        with self._phases("inputs"):
            drawn = [drawn_for(self._code, case, seeds.next()) for _ in range(DRAWS)]
        arms = [*(incumbent or candidate), *candidate]
        firsts = len(incumbent or candidate)
        looks = LOOKS if incumbent else LOOKS[:1]
        contract, used = self._code.contract(case, drawn[0]), [0.0]

        def verdict(program: Program, draw: int, outputs: list[memoryview]) -> Verdict:
            return judge_drawn(self._code, case, drawn[draw], opened(self._code, program, outputs), contract)

        def wrong_too(program: Program, draw: int) -> bool:
            outputs = self._alone(case, program, drawn[draw])
            found = outputs if isinstance(outputs, Verdict) else verdict(program, draw, outputs)
            return found.status is not Status.PASSED

        def judge(arm: int, draw: int, outputs: list[memoryview]) -> None:
            with self._phases("judge"):
                found = verdict(arms[arm], draw, outputs)
            if found.status is not Status.PASSED:
                raise _Wrong(arms[arm], draw, found)
            used.append(found.used)

        try:
            with self._phases("inputs"):
                self._load(case, arms, drawn)
            steady = self._code.task.file.deterministic
            outputs_bytes = DRAWS * sum(tensor.size for one in candidate for tensor in one.layout.outputs)
            share = 0.0 if steady else min(JUDGED_BYTES / max(outputs_bytes * looks[0], 1), 1.0)
            comparison = Comparison(error_probability=self._error, rules=self._rules)
            with self._phases("replay"):
                found, pairs = replayed_in_turns(
                    self._replayer, DRAWS, comparison, looks, judge, steady, share, self._after_round, firsts
                )
        except _Wrong as wrong:
            if same:  # but for what they hold
                theirs = [one for one in theirs if identity(one) == identity(wrong.program)]
            if theirs and all(wrong_too(one, wrong.draw) for one in theirs):
                text = f"{case_label(case)}: on other values, both versions are wrong when they are replayed"
                raise WorkerFailure(Status.VOID, text) from None
            text = f"{case_label(case)}, in a call that was replayed on other values: {wrong.verdict.message}"
            raise WorkerFailure(wrong.verdict.status, text) from None
        except Fault as fault:
            arm = None if fault.arm is None else CANDIDATE if fault.arm >= firsts else INCUMBENT
            failure = self._failure(case, Fault(fault.kind, arm, str(fault)), alone=not incumbent)
            if same and isinstance(failure, WorkerFailure):
                failure = WorkerFailure(Status.VOID, f"both versions, which are the same program: {failure}")
            raise failure from None
        except Unsteady:
            text = f"{case_label(case)}: of calls that were replayed on the same values, some gave other outputs"
            raise WorkerFailure(Status.VOID if same else Status.NONDETERMINISTIC, text) from None
        except ReplayerGone as gone:
            raise WorkerFailure(Status.VOID, str(gone)) from None
        first, second = found.arms
        return Timed(found, pairs, same, (arms[first], arms[second]), max(used))

    def judge_classes(self, case: Case, candidate: Program, incumbent: Program | None, seeds: Seeds) -> list[str]:
        """Replay a program once on each class of values, off the clock, and judge its outputs. Returns the classes that
        were left out, with why: both programs do not fit beside the reference, or the incumbent is wrong, too. Raises
        `WorkerFailure` where the candidate alone is wrong."""
        left = []
        for values in classes_of(self._code.task):
            self._after_round()
            seed = seeds.next()
            trial = make_trial(self._code, case, seed, values, drawn_for(self._code, case, seed))
            if trial.values is Values.DRAWN:  # the class does not suit the task
                continue
            label = f"{case_label(case)} ({values} values)"
            try:
                found = self._on_trial(case, candidate, trial)
                if found.status is Status.PASSED:
                    continue
                if incumbent is None or self._on_trial(case, incumbent, trial).status is Status.PASSED:
                    raise WorkerFailure(found.status, f"{label}, replayed: {found.message}")
                left.append(f"{label}: the incumbent is wrong on the same inputs")
            except InProcess as why:
                left.append(f"{label}: {why}")
        return left

    def sustained(
        self, case: Case, candidate: Program, incumbent: Program, seeds: Seeds, us: Sequence[float]
    ) -> Sustained | None:
        """The speedup in calls without a rest, where the GPU lowers its clock in these; None where it does not. `us`:
        what a call of the incumbent takes, and one of the candidate. Raises `InProcess`, and `WorkerFailure` (void)."""
        if min(us) < LAUNCH_BOUND_US:
            return None
        calls = [max(int(1e6 * BLOCK_S / one), 1) for one in us]
        order = [arm for _ in range(BLOCK_QUADS) for arm in ABBA]
        try:
            self._load(case, [incumbent, candidate], [drawn_for(self._code, case, seeds.next())])
            alone = self._replayer.blocks([(CANDIDATE, calls[CANDIDATE])], BLOCK_LIMIT_S)
            self._after_round()
            if alone.mhz[0] >= FALLEN * self._replayer.idle_mhz:
                return None
            before = self._joules()
            found = self._replayer.blocks([(arm, calls[arm]) for arm in order], BLOCK_LIMIT_S)
            after = self._joules()
            self._after_round()
        except Fault as fault:  # they ran to their end with a rest, and with what they hold put back
            raise InProcess(f"not measured without a rest: {fault}", CANDIDATE) from None
        except ReplayerGone as gone:
            raise WorkerFailure(Status.VOID, str(gone)) from None
        ratios = []
        for quad in range(0, len(order), len(ABBA)):
            taken = [*zip(order, found.us, strict=True)][quad : quad + len(ABBA)]
            first, second = (math.fsum(us for one, us in taken if one == arm) for arm in (INCUMBENT, CANDIDATE))
            ratios.append(math.log(first / second))
        speedup, low, high = interval(ratios, SUSTAINED_ERROR).ratio()
        clocks = [mhz for arm, mhz in zip(order, found.mhz, strict=True) if arm == CANDIDATE]
        joules = None
        if before is not None and after is not None:
            own = [us for arm, us in zip(order, found.us, strict=True) if arm == CANDIDATE]
            busy_us = math.fsum(us * calls[arm] for arm, us in zip(order, found.us, strict=True))
            joules = (after - before) / busy_us * math.fsum(own) / len(own)
        mhz = round(math.fsum(clocks) / len(clocks))
        return Sustained(speedup=speedup, low=low, high=high, mhz=mhz, joules=joules)

    def resolution(self, case: Case, program: Program, seeds: Seeds) -> float:
        """How far a program differs from itself at most, as a log-ratio: the half width of an interval that ends as any
        comparison does. Raises `Fault`, `ReplayerGone`."""
        self._load(case, [program, program], [drawn_for(self._code, case, seeds.next()) for _ in range(DRAWS)])
        comparison = Comparison(error_probability=self._error, rules=self._rules)
        found, _ = replayed_in_turns(self._replayer, DRAWS, comparison, after_round=self._after_round)
        return found.by_events.half_width

    def _on_trial(self, case: Case, program: Program, trial: Trial) -> Verdict:
        """What one call of a program gives on a trial's inputs. Raises `InProcess`, and `WorkerFailure` (void)."""
        outputs = self._alone(case, program, trial.inputs)
        if isinstance(outputs, Verdict):
            return outputs
        return judge_trial(self._code, case, trial, opened(self._code, program, outputs))

    def _alone(self, case: Case, program: Program, inputs: Inputs) -> list[memoryview] | Verdict:
        """The outputs of one call of a program, or how it failed. Raises `InProcess`, and `WorkerFailure` (void)."""
        try:
            self._load(case, [program], [inputs])
            _, copy = self._replayer.alone(0, 0, 1, CALL_LIMIT_S)
        except Fault as fault:
            failure = self._failure(case, Fault(fault.kind, CANDIDATE, str(fault)), alone=True)
            if not isinstance(failure, WorkerFailure):
                raise failure from None
            return Verdict(failure.status, f"{fault.kind}: {fault}")
        except ReplayerGone as gone:
            raise WorkerFailure(Status.VOID, str(gone)) from None
        return copy.outputs

    def _load(self, case: Case, programs: Sequence[Program], draws: Sequence[Inputs]) -> None:
        """Give the replayer programs, and the inputs of each draw. Raises `Fault`, `ReplayerGone`."""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # the replayer needs the room
        described = [memory_of(self._code, self._replayer, case, *one) for one in enumerate(draws)]
        self._replayer.load(programs, described)

    @staticmethod
    def _failure(case: Case, fault: Fault, alone: bool) -> Exception:
        """What a fault of the replayer means for the candidate."""
        if fault_status(fault) is Status.NOT_REPLAYED:
            grown = alone or fault.kind == "out-of-memory"  # the incumbent fits when it is alone
            return InProcess(f"the replayer: {fault}", CANDIDATE if grown else fault.arm)
        text = f"{case_label(case)}, replayed: {fault.kind}: {fault}"
        if fault.arm == CANDIDATE or (alone and fault.arm is not None):
            return WorkerFailure(fault_status(fault), text)
        who = "the incumbent failed" if fault.arm == INCUMBENT else "no version fails alone"
        return WorkerFailure(Status.VOID, f"{who}: {text}")


def drawn_for(code: TaskCode, case: Case, seed: int) -> Inputs:
    """Inputs of a case for its program. Raises `WorkerFailure` (void) where they have other shapes than those on which
    it was captured."""
    try:
        return drawn_inputs(code, case, seed)
    except InProcess as why:
        raise WorkerFailure(Status.VOID, f"{case_label(case)}: {why}; let shapes depend on the case alone") from None


def memory_of(code: TaskCode, replayer: Replayer, case: Case, draw: int, inputs: Inputs) -> Sequence[Sent]:
    """The bytes of a draw's tensors as the replayer takes them, until the next draw of this number."""
    return described(code, case, inputs, lambda name, size: replayer.memory.of((draw, name), size)).tensors


def opened(code: TaskCode, program: Program, outputs: list[memoryview]) -> list[torch.Tensor]:
    """The outputs of a program's call, from their whole words."""
    found = []
    for tensor, data in zip(program.layout.outputs, outputs, strict=True):
        start, _ = widened(tensor.at, tensor.size)
        own = data[tensor.at - start :][: tensor.size]
        found.append(from_buffer(tensor.spec, own).to(code.device))
    return found


def fault_status(fault: Fault) -> Status:
    """What a fault of the replayer says of the version whose fault it is."""
    return _STATUS.get(fault.kind, Status.CRASHED)


def values_of(timed: Timed, alone: bool) -> dict[str, Any]:
    """What a case's rounds say, as fields of a `CaseTiming`; latencies in ms. `alone`: there is no incumbent."""
    found, values = timed.found, dict[str, Any]()
    if not alone:
        speedup, low, high = timed.speedup.ratio()
        values = {
            "incumbent_ms": found.mean_us(INCUMBENT) / 1e3,
            "speedup": speedup,
            "speedup_low": low,
            "speedup_high": high,
            "same": timed.same,
            "bounded": not timed.same and found.bounded,
            "same_bytes": found.same_bytes,
        }
    return values | {
        "level": Level.REPLAYED,
        "latency_ms": found.mean_us(CANDIDATE) / 1e3,
        "empty_ms": found.mean_us(EMPTY) / 1e3,
        "mhz": round(found.mhz),
        "steady": not found.unsteady,
        "error_used": float(f"{timed.error_used:.3g}"),
        "pairs": timed.pairs,
        "samples": [
            tuple(
                float(f"{us / 1e3:.6g}")
                for us in (one.events[CANDIDATE], one.events[INCUMBENT], one.wall[CANDIDATE], one.wall[INCUMBENT])
            )
            for one in found.rounds
        ],
    }

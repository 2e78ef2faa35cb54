"""Many versions of a candidate raced by their programs: which are the fastest in each case.

Each version's calls are captured once. Programs that do the same are one arm. Each arm runs alone first: its outputs
are compared with the reference, and one that takes far longer than the best is dropped. Then all arms run in rounds,
and the slower half leaves after some of them (successive halving: K. Jamieson, A. Talwalkar, "Non-stochastic best arm
identification and hyperparameter optimization", 2016). A race decides what is measured: no verdict rests on it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean

import torch

from tilewright.evaluation.correctness import judge_drawn
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import ORIGINAL, Raced, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.evaluation.statistics import (
    CALL_OVERHEAD_US,
    LOOKS,
    Comparison,
    Figures,
    Interval,
    figures,
    pause_for,
    student_quantile,
)
from tilewright.evaluation.taskcode import Inputs, TaskCode
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee.benchmark import drawn_for, fault_status, memory_of, opened
from tilewright.referee.compare import CALL_LIMIT_S, DRAWS, LIMIT_TIMES
from tilewright.referee.replayer import Draws, Fault, Replayer, ReplayerGone
from tilewright.task import Case, case_label
from tilewright.wire.messages import MAX_ARMS

CUTS = (2, 4, 8, 16)
"""Numbers of rounds after which the slower half leaves."""
FAR = 1.5
"""Times the best's time from which on an arm does not go into the rounds."""
SCOUT = 2
"""Calls of each arm alone; the first is slower."""
ROUND_US = 5e5
"""For the calls of a round, about."""
CALLS = (4, 20)
"""Fewest and most calls of each arm in a round."""
ERROR = 0.01
"""The probability that the interval by which an arm leaves misses the truth."""
MOST_FREEDOM = 1000
Rounds = dict[int, list[Figures]]
"""By arm, each round's figures of the original and the arm, as those of a comparison."""


def halve(arms: Sequence[int], run: Callable[[list[int], int], Rounds], whole: bool = False) -> tuple[Rounds, set[int]]:
    """The rounds of each arm, and the arms that were not dropped. `run` runs so many rounds of these arms beside the
    original; an arm that fails is missing from what it gives. `whole`: none is dropped."""
    rounds: Rounds = {}
    running = [*arms]
    for before, until in pairwise((0, *CUTS)):
        if not running:
            break
        found = run(running, until - before)
        running = [arm for arm in running if arm in found]
        for arm in running:
            rounds.setdefault(arm, []).extend(found[arm])
        if not whole:
            running = survivors({arm: rounds[arm] for arm in running})
        if until >= LOOKS[0] and all(Comparison(rounds[arm]).decided for arm in running):
            break
    return rounds, {*running}


def survivors(rounds: Rounds) -> list[int]:
    """The arms that go on: the faster half, and whatever may yet be the best; none that is surely slower than the
    original."""
    intervals = pooled(rounds)
    ranks = sorted(intervals, key=lambda arm: -intervals[arm].mean)
    if not ranks:
        return []
    half, best = math.ceil(len(ranks) / 2), max(intervals[ranks[0]].low, 0.0)
    high = {arm: intervals[arm].high for arm in ranks}
    return [arm for place, arm in enumerate(ranks) if high[arm] > best or (place < half and high[arm] > 0)]


def pooled(rounds: Rounds) -> dict[int, Interval]:
    """Each arm's speedup over the original as a log-ratio. Two rounds say little of one arm's spread: it is that of all
    arms together."""
    ratios = {arm: [one.log_ratio for one in found] for arm, found in rounds.items()}
    means = {arm: fmean(values) for arm, values in ratios.items()}
    freedom = sum(len(values) - 1 for values in ratios.values())
    squares = math.fsum((value - means[arm]) ** 2 for arm, values in ratios.items() for value in values)
    spread = math.sqrt(squares / max(freedom, 1))
    times = student_quantile(ERROR, min(max(freedom, 1), MOST_FREEDOM))
    found = {}
    for arm, mean in means.items():
        error = spread / math.sqrt(len(ratios[arm]))
        half = times * error
        found[arm] = Interval(mean, mean - half, mean + half, error, len(ratios[arm]), freedom)
    return found


@dataclass
class _Case:
    """A case that is being raced: its programs by arm, what each took alone in us, and which arms failed."""

    case: Case
    programs: dict[int, Program]
    inputs: Sequence[Inputs]
    draws: Draws
    alone_us: dict[int, float] = field(default_factory=dict)
    failed: dict[int, Raced] = field(default_factory=dict)


class ProgramRace:
    """Races versions on a replayer."""

    def __init__(self, code: TaskCode, replayer: Replayer, seeds: Seeds, look: Callable[[], None]) -> None:
        """`look` is called after each round."""
        self._code = code
        self._replayer = replayer
        self._seeds = seeds
        self._look = look
        self._most = MAX_ARMS - 1

    def case(self, case: Case, programs: Mapping[int, Program], whole: bool = False) -> dict[int, Raced]:
        """How each version did. The original is among them. `whole`: all run to the end. Raises `WorkerFailure` where
        the original fails, or nobody can say who does."""
        _make_room()
        firsts: dict[str, int] = {}
        same = {number: firsts.setdefault(identity(programs[number]), number) for number in sorted(programs)}
        inputs = [drawn_for(self._code, case, self._seeds.next()) for _ in range(DRAWS)]
        draws = [memory_of(self._code, self._replayer, case, number, one) for number, one in enumerate(inputs)]
        racing = _Case(case, {number: programs[number] for number in firsts.values()}, inputs, draws)
        outputs = _outputs(programs[ORIGINAL])
        for arm, program in [*racing.programs.items()]:
            if _outputs(program) != outputs:
                _end(racing, arm, Status.WRONG_SHAPE, f"it returns {_outputs(program)}, and the original {outputs}")
                del racing.programs[arm]
        try:
            self._scout(racing)
            best = min(racing.alone_us.values())
            near = [arm for arm, us in racing.alone_us.items() if arm != ORIGINAL and (whole or us <= FAR * best)]
            rounds, stayed = halve(near, lambda arms, count: self._in_groups(racing, arms, count), whole)
        except ReplayerGone as gone:
            raise WorkerFailure(Status.VOID, str(gone)) from None
        found = _results(racing, rounds, stayed) | racing.failed
        return {
            number: found[first] if number == first else found[first].model_copy(update={"same": first})
            for number, first in same.items()
        }

    def _scout(self, racing: _Case) -> None:
        """Run each arm alone, and compare its outputs with the reference. Faults are then its own."""
        left = [*racing.programs]
        contract = self._code.contract(racing.case, racing.inputs[0])
        while left:
            batch = left[:MAX_ARMS]
            try:
                self._replayer.load([racing.programs[arm] for arm in batch], racing.draws)
            except Fault as fault:
                raise WorkerFailure(Status.VOID, f"{case_label(racing.case)}, replayed: {fault}") from None
            for place, arm in enumerate(batch):
                left.remove(arm)
                self._look()
                draw = random.SystemRandom().randrange(DRAWS)
                try:
                    timed, copy = self._replayer.alone(place, draw, SCOUT, CALL_LIMIT_S)
                except Fault as fault:
                    self._fail(racing, arm, fault)
                    break  # what was loaded may be gone
                racing.alone_us[arm] = min(timed.events)
                outputs = opened(self._code, racing.programs[arm], copy.outputs)
                verdict = judge_drawn(self._code, racing.case, racing.inputs[draw], outputs, contract)
                _make_room()
                if verdict.status is not Status.PASSED:
                    _end(racing, arm, verdict.status, verdict.message)

    def _in_groups(self, racing: _Case, arms: Sequence[int], count: int) -> Rounds:
        """So many rounds of the original and these arms, in as many groups as the GPU's memory makes necessary."""
        found: Rounds = {}
        left = [*arms]
        while left:
            group, left = left[: self._most], left[self._most :]
            try:
                found |= self._rounds(racing, group, count)
            except Fault as fault:
                if fault.kind == "out-of-memory" and len(group) > 1:
                    self._most = math.ceil(len(group) / 2)
                elif fault.arm is None and fault.kind != "out-of-memory":
                    raise WorkerFailure(Status.VOID, f"{case_label(racing.case)}, replayed: {fault}") from None
                else:
                    arm = group[0] if fault.kind == "out-of-memory" else [ORIGINAL, *group][fault.arm or 0]
                    self._fail(racing, arm, fault)
                    group = [other for other in group if other != arm]
                left = group + left
        return found

    def _rounds(self, racing: _Case, group: Sequence[int], count: int) -> Rounds:
        members = [ORIGINAL, *group]
        longest_us = max(racing.alone_us[arm] for arm in members)
        pause_s = pause_for(longest_us)
        each_us = CALL_OVERHEAD_US + 2 * longest_us + 1e6 * pause_s
        calls = min(max(int(ROUND_US / (len(members) * each_us)), CALLS[0]), CALLS[1]) // DRAWS * DRAWS
        limit_s = min(max(LIMIT_TIMES * longest_us / 1e6, 1.0), CALL_LIMIT_S)
        self._replayer.load([racing.programs[arm] for arm in members], racing.draws)
        found: Rounds = {arm: [] for arm in group}
        for _ in range(count):
            answer = figures(self._replayer.round(calls, limit_s, pause_s))
            self._look()
            for place, arm in enumerate(group, 1):
                found[arm].append(Figures(*(_beside(values, place) for values in answer)))
        return found

    def _fail(self, racing: _Case, arm: int, fault: Fault) -> None:
        _end(racing, arm, fault_status(fault), f"replayed: {fault.kind}: {fault}")


def _end(racing: _Case, arm: int, status: Status, message: str) -> None:
    """Note down that an arm failed. Raises `WorkerFailure` for the original."""
    text = f"{case_label(racing.case)}: {message}"
    if arm == ORIGINAL:
        raise WorkerFailure(status, text)
    racing.failed[arm] = Raced(status=status, message=text)
    racing.alone_us.pop(arm, None)


def _outputs(program: Program) -> str:
    """The dtypes and shapes of its outputs, in words."""
    return ", ".join(f"{one.spec.dtype}{one.spec.shape}" for one in program.layout.outputs)


def _make_room() -> None:
    """Give back the GPU's memory that is not in use here: the replayer needs it."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _beside(values: tuple[float, ...], place: int) -> tuple[float, ...]:
    """Of a round's figures those of the original, the arm at this place, and the empty program."""
    return values[ORIGINAL], values[place], values[-1]


def _results(racing: _Case, rounds: Rounds, stayed: set[int]) -> dict[int, Raced]:
    intervals = pooled(rounds) if rounds else {}
    originals = [one.events[0] for found in rounds.values() for one in found] or [racing.alone_us[ORIGINAL]]
    best = min(racing.alone_us.values())
    found = {ORIGINAL: Raced(ms=fmean(originals) / 1e3, speedup=1.0, low=1.0, high=1.0)}
    for arm, us in racing.alone_us.items():
        if arm == ORIGINAL:
            continue
        if arm not in rounds:
            speedup = racing.alone_us[ORIGINAL] / us
            far = f"it took {us / best:.1f} times the best's time in its first calls"
            found[arm] = Raced(ms=us / 1e3, speedup=speedup, low=speedup, high=speedup, dropped=True, message=far)
            continue
        many = len(rounds[arm]) >= LOOKS[0]
        speedup, low, high = (Comparison(rounds[arm]).speedup if many else intervals[arm]).ratio()
        ms = fmean(one.events[1] for one in rounds[arm]) / 1e3
        count = len(rounds[arm])
        found[arm] = Raced(ms=ms, speedup=speedup, low=low, high=high, rounds=count, dropped=arm not in stayed)
    return found

"""Racing many configs of a kernel on the device: successive halving over interleaved rounds, by the evaluator's clock.

Method: K. Jamieson, A. Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016. In
each round every config that is still in the race is timed once, in random order; what counts is its ratio to the
original in the same round, since clocks drift. After 4, 8, 16 and 32 rounds the slower half leaves, but none that the
intervals cannot tell from the best. Where there are more configs than fit, there are several heats, with as many
rounds as it takes to choose; who is in the next is decided by what the model and the heats before say of it
(`expectation.py`), and the first of all race once more. Each config has a process of its own: one that loses its
context costs only itself.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean, median
from typing import Any, Protocol

from tilewright.evaluation import measurement, statistics
from tilewright.evaluation.block import Block
from tilewright.evaluation.expectation import expected, ranked
from tilewright.evaluation.pool import WorkerFailure, WorkerHandle, WorkerPool
from tilewright.evaluation.results import ORIGINAL, Prior, Raced, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.task import Case, case_label

ROUNDS = (4, 8, 16, 32)
QUALIFYING = ROUNDS[:2]
"""Rounds of a heat that decides who is in the last one."""
AT_ONCE = range(6, 25)
"""Configs that one heat is made for, the original among them, at least and at most."""
GIB_EACH = 4
"""Of the device's memory for each config of a heat: its context, and an output for every call."""
GIB_IDLE = 6
"""Of the device's memory for each worker that is started ahead for the heat after the first, and for each that waits
for the last. Its context takes about half a GiB, so that either take a twelfth of the memory at most."""
MOST_RACED = 46
"""Configs that are raced at most where it is known how they differ: two heats of a device with room for them."""
STRETCH = 1.25
"""Times a heat's size up to which one holds all rivals: a few more cost less than another heat."""
BLAMED = 3
"""Failures from which on what they have in common is taken for their cause, where nothing that has it passed."""
FINALISTS = range(2, 5)
"""Configs that go on from each heat, where there are several: as many as fit into one heat, within these bounds."""


@dataclass
class Lane:
    """What the rounds say of one arm: its ms, and the log-ratios of the original's to it; `rounds` it took part in."""

    ms: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)

    @property
    def interval(self) -> statistics.Interval:
        return statistics.interval(self.ratios)


def halve(arms: int, timed: Callable[[int], float], order: random.Random, rounds: Sequence[int] = ROUNDS) -> list[Lane]:
    """Race `arms` arms, of which number 0 is the original; `timed` gives the ms of one block of an arm. The slower half
    leaves after each of `rounds`.

    The original stays to the end, as what the others are compared with.
    """
    lanes = [Lane() for _ in range(arms)]
    running = list(range(arms))
    for until in rounds:
        while len(lanes[ORIGINAL].ms) < until:
            taken = {arm: timed(arm) for arm in order.sample(running, len(running))}
            for arm, ms in taken.items():
                lanes[arm].ms.append(ms)
                lanes[arm].ratios.append(math.log(taken[ORIGINAL] / ms))
        running = survivors({arm: lanes[arm].interval for arm in running})
        rivals = [lanes[arm].interval for arm in running if arm != ORIGINAL]
        if not rivals or (len(rivals) == 1 and rivals[0].half_width < statistics.GOOD_ENOUGH):
            break
    return lanes


def survivors(intervals: dict[int, statistics.Interval]) -> list[int]:
    """The arms that go on: the original, the faster half of the others, and whatever may yet be the best."""
    rivals = sorted((arm for arm in intervals if arm != ORIGINAL), key=lambda arm: -intervals[arm].mean)
    if not rivals:
        return [ORIGINAL]
    half = rivals[: math.ceil(len(rivals) / 2)]
    best = max(intervals[ORIGINAL].low, intervals[rivals[0]].low)
    close = [arm for arm in rivals[len(half) :] if intervals[arm].high > best]
    return [ORIGINAL, *(arm for arm in half if intervals[arm].high > best), *close]


class Heat(measurement.Bench):
    """One benchmark run of more than two arms; the first is the original. No verdict rests on it (what a search finds
    is confirmed by a run of two), so that blocks may be short: drawing fresh values for one takes longer than it."""

    block_ms = 4.0

    settle: Callable[[], None]
    """Waits until the workers of earlier heats that have left are gone; called before anything is timed."""

    def lanes(self, case: Case, seeds: Seeds, rounds: Sequence[int]) -> list[Lane]:
        """Race the arms on one case. Raises `WorkerFailure` with the arm's label where one fails or is wrong."""
        try:
            with self._clock("warm up"):
                block = self._block_of(case, seeds)
            with self._clock("capture"):
                self._prepare(block)
            with self._clock("settle"):
                self.settle()
            with self._clock("verify"):
                for index in range(len(self._arms)):
                    self._prove(block, index)
            with self._clock("rounds"):
                return halve(len(self._arms), lambda arm: self._timed(block, arm, [])[0][0], self._order, rounds)
        finally:
            with self._clock("let go"):
                self._let_go()

    def _let_go(self) -> None:
        """Have all arms give the device's memory back, since they may wait for a later heat; but for one that failed,
        which is ended."""
        with contextlib.suppress(WorkerFailure):
            self._ask("inputs", sets=[], release=True)

    @property
    def seconds(self) -> str:
        """Where its time went; compiling is a part of warming up."""
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self._clock.seconds.items())

    def _warm_up(self) -> None:
        """The arms' first calls, which compile."""
        with self._clock("compile"):
            self._ask("estimate")

    def _ask(self, op: str, **message: Any) -> None:
        """Ask all arms side by side: each maps the shared memory of a block for itself, which takes its time. But not
        where their calls would write to each other's inputs."""
        if op == "estimate" and self._in_place:
            super()._ask(op, **message)
            return
        timeout = self._task.file.timeout_s
        with ThreadPoolExecutor(len(self._arms)) as threads:
            asked = [threads.submit(arm.request, op, timeout, **message) for arm in self._arms]
            wait(asked)
        for one in asked:
            one.result()

    def _prove(self, block: Block, index: int) -> None:
        """Compare one of an arm's outputs."""
        number = self._order.randrange(block.calls)
        inputs = self._timed(block, index, [number])[1]
        try:
            self._verify(block, number, inputs[number], block.outputs(number))
        except WorkerFailure as failure:
            failure.label = self._arms[index].label
            raise


def heat_size(device_bytes: int) -> int:
    """How many configs race at once on a device with this much memory."""
    return min(max(device_bytes // (GIB_EACH * 2**30), AT_ONCE.start), AT_ONCE.stop - 1)


def idle_at_most(device_bytes: int) -> int:
    """How many workers may hold a context on a device with this much memory while others race."""
    return device_bytes // (GIB_IDLE * 2**30)


def started_ahead(configs: int, device_bytes: int) -> int:
    """How many workers of a race of `configs` are started before it: those of its first heat, and of the next as many
    as there is memory for."""
    first = heat_size(device_bytes)
    return min(configs, first + min(first, idle_at_most(device_bytes)))


class Runners(Protocol):
    """Who runs in heats; the workers of configs, by number."""

    @property
    def at_once(self) -> int:
        """Configs that one heat is made for, the original among them."""

    @property
    def kept(self) -> int:
        """Workers that may wait for a later heat."""

    def heat(self, numbers: list[int]) -> contextlib.AbstractContextManager[Heat]:
        """A heat of these configs' workers, each labelled with its number."""

    def end(self, numbers: Iterable[int]) -> None:
        """End the workers of these configs, which run no more, or not soon."""


class Stable:
    """The workers of a race: started where they are missing, kept for a later heat, and ended while others compile."""

    def __init__(
        self,
        pool: WorkerPool,
        configs: int,
        load: Callable[[list[int]], list[WorkerHandle]],
        bench: Callable[
            [list[WorkerHandle], measurement.Phases, list[WorkerHandle]], contextlib.AbstractContextManager[Heat]
        ],
        device_bytes: int,
    ) -> None:
        """`load` gives fresh workers of some of the `configs`, and `bench` a heat of arms, while others wait."""
        self._pool, self._load, self._bench = pool, load, bench
        self._here: dict[int, WorkerHandle] = {}
        self.at_once, self.kept = heat_size(device_bytes), idle_at_most(device_bytes)
        pool.trim(configs + pool.spares)

    @contextlib.contextmanager
    def heat(self, numbers: list[int]) -> Iterator[Heat]:
        phases = measurement.Phases()
        with phases("start"):
            self.end([number for number, worker in self._here.items() if worker.ended])  # killed while it waited, say
            if missing := [number for number in numbers if number not in self._here]:
                self._here |= zip(missing, self._load(missing), strict=True)
        arms = [self._here[number] for number in numbers]
        others = [worker for number, worker in self._here.items() if number not in numbers]
        with self._bench(arms, phases, others) as running:
            running.settle = self._pool.settle
            yield running

    def end(self, numbers: Iterable[int]) -> None:
        self._pool.end_aside([self._here.pop(number) for number in numbers if number in self._here])

    def close(self) -> None:
        """End all of them, and wait until they and those that ended before are gone."""
        self.end([*self._here])
        self._pool.refill()
        self._pool.settle()


def race(
    cases: Sequence[Case],
    configs: int,
    runners: Runners,
    seeds: Seeds,
    tell: Callable[[str], None],
    priors: Sequence[Prior] = (),
) -> list[list[Raced]]:
    """Race configs 0 (the original) to `configs` - 1 on each case, in as many heats as that takes; by case for each
    config. With `priors`, one for each config, `MOST_RACED` of them are raced at most, and what the first heats show
    decides who is in the next. A failure of the original is raised."""
    running = _Race(cases, configs, runners, seeds, tell, priors)
    rivals, places = [*range(1, configs)], range(len(cases))
    if running.fits(rivals):
        running.wanted = dict.fromkeys(places, rivals)
    else:
        running.qualify(places, rivals, min(len(rivals), MOST_RACED) if priors else len(rivals))
    for place in places:
        while not running.fits(running.wanted[place]):
            running.qualify([place], running.wanted[place], len(running.wanted[place]))
        running.heat(place, running.wanted.pop(place), ROUNDS)
    return running.found


class _Race:
    """A race that is under way: what it found, by config and case, and by case who is `wanted` once more."""

    def __init__(
        self,
        cases: Sequence[Case],
        configs: int,
        runners: Runners,
        seeds: Seeds,
        tell: Callable[[str], None],
        priors: Sequence[Prior],
    ) -> None:
        self.found = [[Raced() for _ in cases] for _ in range(configs)]
        self.wanted: dict[int, list[int]] = {}
        self._cases, self._runners, self._seeds, self._tell, self._priors = cases, runners, seeds, tell, priors
        self._share = runners.at_once - 1
        self._out: set[int] = set()

    def fits(self, rivals: Sequence[int]) -> bool:
        """Whether one heat holds them all."""
        return len(rivals) <= STRETCH * self._share

    def qualify(self, places: Sequence[int], rivals: Sequence[int], allowed: int) -> None:
        """Decide who goes on in each of these cases: the first after heats of all `rivals`, or of as many as are
        allowed. Others take the place of those that failed, where that was half a heat or more."""
        count = math.ceil(allowed / self._share)
        going_on = count * min(max(self._share // count, FINALISTS.start), FINALISTS.stop - 1)
        parts: list[list[int]] = []
        left, missing = [*rivals], allowed
        while left and (len(parts) < count or 2 * missing >= self._share) and len(parts) < 2 * count:
            size = min(math.ceil(min(missing, len(left)) / max(count - len(parts), 1)), self._share)
            part = self._promising(left, rivals)[:size] if self._priors else left[:size]
            left = [number for number in left if number not in part]
            parts.append(part)
            for place in places:
                self.heat(place, part, QUALIFYING, left=True)
            self.wanted |= {place: self._firsts(place, parts, going_on) for place in places}
            missing -= len({*part} - self._out)
        if left:
            self._leave(left, self._measured(rivals), allowed - missing)

    def heat(self, place: int, rivals: Sequence[int], rounds: Sequence[int], left: bool = False) -> None:
        """Race these and the original on a case. What fails is noted down for all cases, and the rest start anew."""
        numbers = [ORIGINAL, *(number for number in rivals if number not in self._out)]
        waiting = dict.fromkeys(one for some in self.wanted.values() for one in some if one not in numbers)
        self._runners.end({*range(1, len(self.found))}.difference(numbers, [*waiting][: self._runners.kept]))
        while len(numbers) > 1:
            self._tell(f"racing {len(numbers)} configs on {case_label(self._cases[place])}")
            try:
                with self._runners.heat(numbers) as running:
                    lanes = running.lanes(self._cases[place], self._seeds, rounds)
                    self._tell(f"raced {len(numbers)} configs: {running.seconds}")
            except WorkerFailure as failure:
                number = int(failure.label) if failure.label.isdigit() else ORIGINAL
                if number == ORIGINAL or failure.used_up or failure.status is Status.VOID:
                    raise
                self._out.add(number)
                self.found[number] = [Raced(status=failure.status, message=str(failure)) for _ in self._cases]
                numbers = [other for other in numbers if other != number]
                self._runners.end([number])
            else:
                for number, lane in zip(numbers, lanes, strict=True):
                    if number != ORIGINAL or self.found[ORIGINAL][place].ms is None:
                        self.found[number][place] = _raced(lane, left=left and number != ORIGINAL)
                return

    def _measured(self, rivals: Iterable[int]) -> dict[int, float]:
        """The logarithm of the time over the original's, a mean over the cases, of those that have raced and of the
        original. Empty before anything has raced; of one that failed no time is known."""
        gains = {number: [one.speedup for one in self.found[number] if one.speedup is not None] for number in rivals}
        found = {number: -fmean(map(math.log, some)) for number, some in gains.items() if some}
        return {ORIGINAL: 0.0} | found if found else {}

    def _promising(self, numbers: Sequence[int], rivals: Iterable[int]) -> list[int]:
        """Those that have not raced, in the order in which they should; last those that failures speak against."""
        measured = self._measured(rivals)
        causes = self._causes(measured)
        order = ranked(self._priors, numbers, measured)
        return sorted(order, key=lambda number: any(cause <= self._settings(number) for cause in causes))

    def _settings(self, number: int) -> frozenset[tuple[str, str]]:
        return frozenset(self._priors[number].settings.items())

    def _causes(self, measured: Mapping[int, float]) -> dict[frozenset[tuple[str, str]], int]:
        """What is taken for the cause of failures, and how many have it: one by one, the value of a knob, or two values
        together, that most of those have that are not explained yet, with whatever else these have in common. `BLAMED`
        failures or more have it, and nothing that passed."""
        failed, fine = [*map(self._settings, self._out)], [self._settings(number) for number in (ORIGINAL, *measured)]
        found: dict[frozenset[tuple[str, str]], int] = {}
        left = failed
        while True:
            having: dict[tuple[tuple[str, str], ...], list[frozenset[tuple[str, str]]]] = {}
            for settings in left:
                for pairs in (*combinations(sorted(settings), 1), *combinations(sorted(settings), 2)):
                    having.setdefault(pairs, []).append(settings)
            common = {pairs: frozenset.intersection(*some) for pairs, some in having.items() if len(some) >= BLAMED}
            causes = [pairs for pairs, cause in common.items() if not any(cause <= one for one in fine)]
            if not causes:
                return found
            cause = common[max(causes, key=lambda pairs: (len(having[pairs]), -len(pairs)))]
            found[cause] = sum(cause <= one for one in failed)
            left = [settings for settings in left if not cause <= settings]

    def _firsts(self, place: int, parts: Sequence[Sequence[int]], count: int) -> list[int]:
        """The first `count` of those that raced on a case, and of each heat its first, since clocks drift."""

        def best(numbers: Iterable[int]) -> list[int]:
            gains = {number: self.found[number][place].speedup or 0.0 for number in numbers}
            return sorted((number for number, gain in gains.items() if gain), key=lambda number: -gains[number])

        of_each = [number for part in parts for number in best(part)[:1]]
        ranks = best(number for part in parts for number in part)
        return best([*dict.fromkeys(of_each + ranks)][:count])

    def _leave(self, numbers: Iterable[int], measured: Mapping[int, float], raced: int) -> None:
        """Say of configs that are not raced why."""
        times, causes = expected(self._priors, measured) if raced else [], self._causes(measured)
        for number in numbers:
            why = "all that were raced failed, and seemed better"
            against = [cause for cause in causes if cause <= self._settings(number)]
            if raced and against:
                words = " ".join(f"{name}={value}" for name, value in sorted(against[0]))
                why = f"all {causes[against[0]]} that were raced with {words} failed"
            elif raced:
                slower = math.exp(times[number] - min(measured.values()))
                by = "the model and by the" if self._priors[number].ms is not None else "the"
                why = f"expected at about {slower:.1f} times the best, by {by} {raced} that were raced"
            self.found[number] = [Raced(message=why, left=True) for _ in self._cases]


def _raced(lane: Lane, left: bool) -> Raced:
    speedup, low, high = lane.interval.ratio()
    return Raced(ms=median(lane.ms), speedup=speedup, low=low, high=high, rounds=len(lane.ms), left=left)

"""Deciding from measurements in turns: confidence intervals of log-ratios, looked at a few times while they grow.

Replayed programs: a round's figure for a version is the trimmed mean of its calls. Rounds are independent (new pages,
images loaded anew), calls within one are not, so the interval is Student's t over rounds. Events decide, and the wall
clock bounds them: it ends when a digest of the outputs reaches the host. Where it shows a smaller gain than the events,
by more than their noise and what lines left in the L2 explain, its gain is the gain.

What is timed in processes of its own, pair by pair: pairs that the machine disturbed are outliers, so the interval is
that of the trimmed mean (K. Yuen, "The two-sample trimmed t for unequal population variances", Biometrika 61, 1974, for
one sample).

All looks share one error probability (Bonferroni, the simplest group-sequential bound; C. Jennison and B. Turnbull,
"Group Sequential Methods", 1999), which is a session's divided by the experiments that it has room for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from tilewright.rules import DEFAULT, Rules
from tilewright.wire.messages import Round

LOOKS = (8, 12, 18, 28, 40)
"""Numbers of rounds after which a comparison may end."""
PAIR_LOOKS = (8, 16, 32, 64, 128)
"""The same of pairs. There are as many looks."""
EXPERIMENTS = 25
"""By which a session's error is divided at least: a shorter session has no looser rule, since another can follow it."""
TRIMMED_PAIRS = 0.2
"""Share of the pairs that is left out at either end."""
PRECISE = 0.001
"""Half-width of a log-ratio below which a further look adds nothing."""
PRECISE_SHARE = 0.5
"""The same as a share of a gain. It is measured again before it is kept, and its figure is the second."""
NEAR_BEST = 0.01
"""Share by which the SM clock behind an arm may lie under that of the idle GPU. Behind a call that takes much power it
lies above it, on an H100 by up to 5%, and says nothing of the call; a limit that lasts shows as a low clock."""
PAUSES = ((100.0, 0.0), (400.0, 0.003), (math.inf, 0.01))
"""For how many seconds the GPU rests before each call, by the microseconds that a call takes at most. It works for an
eighth of the time at most, up to 1.4 ms. A pause that followed the call's time would make what a program takes depend
on the program beside it: on an H100, a matmul of 1.4 ms by 0.3%."""
PAUSE_S = PAUSES[-1][1]
"""The longest of them."""
TRIMMED = 0.1
"""Share of a round's calls that is left out at either end."""
WALL_TRIMMED = 0.25
"""The same for the wall clock: whatever else the host does comes in bursts that hit more than a tenth of a version's
calls in one round of a hundred (on an H200, by up to 26 us)."""
ROUND_S = 0.12
"""For the calls of a round, about; their number follows from what one takes."""
CALL_OVERHEAD_US = 250.0
"""What the host does around a call, measured on an H200, and what the GPU does there with small tensors."""
PAIRS = (10, 40)
"""Fewest and most calls an arm in a round."""
LONG_US, LONG_PAIRS = 2000.0, 6
"""Of a call that takes so long, fewer are enough."""

Verdict = Literal["faster", "slower", "inconclusive"]


def error_probability(rules: Rules) -> float:
    """The probability that an interval misses the truth on either side, over all its looks, in a session by `rules`."""
    return 2 * rules.session_error / max(rules.max_iterations, EXPERIMENTS)


ERROR_PROBABILITY = error_probability(DEFAULT)


@dataclass(frozen=True)
class Interval:
    """An estimate of a log-ratio with its confidence interval; `error` is the estimate's standard error, and `freedom`
    the degrees of freedom of Student's t."""

    mean: float
    low: float
    high: float
    error: float
    samples: int
    freedom: int

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def ratio(self) -> tuple[float, float, float]:
        """The estimate and its interval as ratios: (value, low, high)."""
        return math.exp(self.mean), math.exp(self.low), math.exp(self.high)


def interval(values: Sequence[float], error_probability: float, trimmed: float = 0.0) -> Interval:
    """The mean without a share at either end, and an interval that misses it with this probability at one look. Raises
    ValueError for fewer than two values."""
    count = len(values)
    if count < 2:
        raise ValueError("an interval needs at least two samples")
    ordered, cut = sorted(values), int(trimmed * count)
    kept = ordered[cut : count - cut]
    mean = math.fsum(kept) / len(kept)
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = math.fsum(winsorized) / count
    squares = math.fsum((value - centre) ** 2 for value in winsorized)
    freedom = max(len(kept) - 1, 1)
    error = math.sqrt(squares / (len(kept) * freedom))
    half = student_quantile(error_probability, freedom) * error
    return Interval(mean, mean - half, mean + half, error, count, freedom)


@lru_cache
def student_quantile(error_probability: float, freedom: int) -> float:
    """The value that the magnitude of a Student t with `freedom` degrees of freedom exceeds with that probability.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4, over the angle atan(t / sqrt(freedom)), bisected.
    """
    low, high = 0.0, math.pi / 2
    while (angle := (low + high) / 2) not in (low, high):
        if 1 - _central(angle, freedom) > error_probability:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(freedom)


def _central(angle: float, freedom: int) -> float:
    """The probability of a magnitude up to tan(angle) * sqrt(freedom)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for number in range(2 + odd, freedom - 1, 2):
        term *= (number - 1) / number * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def combined(
    intervals: Sequence[Interval], error_probability: float = ERROR_PROBABILITY, weights: Sequence[float] = ()
) -> Interval:
    """The weighted mean over independent cases of their log-ratios. Raises ValueError where there is none."""
    if not intervals:
        raise ValueError("nothing to combine")
    weights = weights or [1.0] * len(intervals)
    weighed, total = [*zip(weights, intervals, strict=True)], math.fsum(weights)
    mean = math.fsum(weight * found.mean for weight, found in weighed) / total
    error = math.sqrt(math.fsum((weight * found.error) ** 2 for weight, found in weighed)) / total
    samples, freedom = min(found.samples for found in intervals), min(found.freedom for found in intervals)
    half = student_quantile(error_probability / len(LOOKS), freedom) * error
    return Interval(mean, mean - half, mean + half, error, samples, freedom)


class Figures(NamedTuple):
    """One round: microseconds for a call of each arm and, last, of an empty program, by either clock; and the SM clock
    behind them in MHz, 0 if that is not known."""

    events: tuple[float, ...]
    wall: tuple[float, ...]
    mhz: tuple[float, ...] = (0.0,)

    @property
    def log_ratio(self) -> float:
        """Log of arm 0's time over arm 1's: above zero where arm 1 is faster."""
        return math.log(self.events[0] / self.events[1])

    @property
    def wall_gain(self) -> float:
        """Microseconds that arm 1 saves by the wall clock."""
        return self.wall[0] - self.wall[1]

    def of(self, first: int, second: int) -> Figures:
        """Those of two arms, and of the empty program."""
        mhz = (self.mhz[first], self.mhz[second], self.mhz[-1]) if len(self.mhz) == len(self.events) else self.mhz
        events, wall = ((one[first], one[second], one[-1]) for one in (self.events, self.wall))
        return Figures(events, wall, mhz)

    def steady(self, idle_mhz: float) -> bool:
        """Whether no arm's clock was held down."""
        return min(self.mhz[:-1], default=idle_mhz) >= (1 - NEAR_BEST) * idle_mhz


def figures(found: Round) -> Figures:
    """A round's figures from its calls. Raises ValueError where there are none, or a time is zero."""
    events = tuple(trimmed_mean(calls) for calls in found.events)
    wall = tuple(trimmed_mean(calls, WALL_TRIMMED) for calls in found.wall)
    if min(events[:-1]) <= 0:
        raise ValueError("a program took no time by its events")
    return Figures(events, wall, tuple(trimmed_mean(calls) for calls in found.mhz))


def opponents(rounds: Sequence[Figures], firsts: int) -> tuple[int, int]:
    """Of so many first arms the fastest, and of the others the slowest. An incumbent and a candidate that tune are
    programs that chance chose from: a candidate is to gain nothing by a better draw."""
    arms = range(len(rounds[0].events) - 1)
    us = [math.fsum(one.events[arm] for one in rounds) for arm in arms]
    return min(arms[:firsts], key=us.__getitem__), max(arms[firsts:], key=us.__getitem__)


def trimmed_mean(values: Sequence[float], trimmed: float = TRIMMED) -> float:
    """The mean without a share at either end, one value of five at least. Raises ValueError for no values."""
    if not values:
        raise ValueError("a round without calls")
    cut = max(int(trimmed * len(values)), len(values) >= 5)
    kept = sorted(values)[cut : len(values) - cut]
    return math.fsum(kept) / len(kept)


@dataclass
class Comparison:
    """Two versions so far: arm 0 and arm 1. `error_probability` is that of all looks together."""

    rounds: list[Figures] = field(default_factory=list)
    arms: tuple[int, int] = (0, 1)
    """Their numbers in the rounds, which may have more."""
    error_probability: float = ERROR_PROBABILITY
    rules: Rules = DEFAULT
    """What counts: the floor, and how far the clocks may disagree."""
    unsteady: int = 0
    """Rounds in which the SM clock was not steady, however long the GPU rested."""
    same_bytes: bool = False
    """Whether all calls of both versions gave the same bytes on each draw."""

    @property
    def by_events(self) -> Interval:
        """The speedup of arm 1 over arm 0 by events, as a log-ratio."""
        return interval([one.log_ratio for one in self.rounds], self.error_probability / len(LOOKS))

    @property
    def speedup(self) -> Interval:
        """The same, by the wall clock where that bounds it."""
        if not self.bounded:
            return self.by_events
        wall, us = self.wall_gain, self.mean_us(1)
        low, mean, high = (math.log(max(us + gain, us / 2) / us) for gain in (wall.low, wall.mean, wall.high))
        return Interval(mean, low, high, wall.error / us, wall.samples, wall.freedom)

    @property
    def wall_gain(self) -> Interval:
        """Microseconds that arm 1 saves by the wall clock."""
        return interval([one.wall_gain for one in self.rounds], self.rules.wall_error / len(LOOKS))

    @property
    def bounded(self) -> bool:
        """Whether the wall clock shows a smaller gain than the events, by more than their noise and the rule."""
        wall, noise = self.wall_gain, self.by_events.half_width * self.mean_us(1)
        gain = self.mean_us(0) - self.mean_us(1)
        return gain > 0 and gain - wall.mean > wall.half_width + noise + self.rules.wall_resolution_us

    def mean_us(self, arm: int) -> float:
        """Microseconds for a call of an arm by events; -1: of an empty program."""
        return math.fsum(one.events[arm] for one in self.rounds) / len(self.rounds)

    @property
    def mhz(self) -> float:
        """The SM clock behind the arms' calls."""
        clocks = [clock for one in self.rounds for clock in one.mhz[:-1]]
        return math.fsum(clocks) / len(clocks) if clocks else 0.0

    @property
    def verdict(self) -> Verdict:
        """What can be said of arm 1."""
        found = self.speedup
        if found.low > 0 and found.mean >= self.rules.floor:
            return "faster"
        return "slower" if found.high < 0 and found.mean <= -self.rules.floor else "inconclusive"

    @property
    def decided(self) -> bool:
        """Whether more rounds would change nothing that matters."""
        return decided(self.speedup, self.rules)


def decided(found: Interval, rules: Rules) -> bool:
    """Whether a comparison may end: the speedup is known precisely, or surely too small, or a gain is known well."""
    if found.half_width <= PRECISE or found.high < rules.useful:
        return True
    return found.low > 0 and found.mean >= rules.floor and found.half_width <= PRECISE_SHARE * found.mean


def pause_for(us: float) -> float:
    """Seconds for which the GPU rests before each call of a round whose longest takes so many microseconds: what its
    neighbour took from the power budget is then there again."""
    return next(pause_s for longest_us, pause_s in PAUSES if us <= longest_us)


def pairs_for(scouted: Figures) -> int:
    """Calls an arm in a round, by what a call took first. Before the wall clock the GPU does as much again as while
    that runs: it overwrites all memory; and it rests."""
    us, wall = max(scouted.events[:-1]), max(scouted.wall[:-1])
    least, most = PAIRS if us < LONG_US else (LONG_PAIRS, PAIRS[1])
    return min(max(int(1e6 * ROUND_S / 3 / (CALL_OVERHEAD_US + 2 * wall + 1e6 * pause_for(us))), least), most)


Pair = tuple[float, float]
"""One pair of turns: milliseconds for one call of the candidate, and of the incumbent."""


def gain(pairs: Sequence[Pair], rules: Rules = DEFAULT) -> Interval:
    """The speedup over the incumbent by pairs, as a log-ratio."""
    ratios = [math.log(incumbent / candidate) for candidate, incumbent in pairs]
    return interval(ratios, error_probability(rules) / len(PAIR_LOOKS), TRIMMED_PAIRS)


def paired(pairs: Sequence[Pair], found: Interval) -> dict[str, Any]:
    """What the pairs of one case say, as fields of a `CaseTiming`. `found`: their `gain`."""
    speedup, low, high = found.ratio()
    return {
        "incumbent_ms": statistics.median(incumbent for _, incumbent in pairs),
        "speedup": speedup,
        "speedup_low": low,
        "speedup_high": high,
        "pairs": len(pairs),
        "samples": [tuple(float(f"{value:.6g}") for value in (*pair, *pair)) for pair in pairs],
    }

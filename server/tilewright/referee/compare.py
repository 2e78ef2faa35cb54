"""Two device programs compared: which is faster, by how much, and how sure that is."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

from pydantic import Field

from tilewright.evaluation.statistics import (
    ERROR_PROBABILITY,
    LOOKS,
    PAUSE_S,
    Comparison,
    Figures,
    Verdict,
    figures,
    opponents,
    pairs_for,
    pause_for,
)
from tilewright.programs.draws import draws_of
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee.replayer import Replayer
from tilewright.rules import DEFAULT, Rules
from tilewright.wire.channel import Sent
from tilewright.wire.messages import Round
from tilewright.wire.record import Record

CALL_LIMIT_S = 20.0
DRAWS = 2
"""Contents of the inputs between which the calls of a round alternate."""
LIMIT_TIMES = 100
"""How many times what a call took first it may take at most, once that is known; a second at least."""
LONGER_PAUSES = 2
"""How often the pause is doubled where the SM clock is not steady; one that was none begins with the shortest."""
SCOUT = 4
"""Calls of each program before the first round, which say how long one takes."""


class Measured(Record):
    """The times of both programs: microseconds of one call, between CUDA events, the launch included."""

    speedup: float = Field(description="time of the first over time of the second")
    low: float = Field(description="lower end of the speedup's confidence interval")
    high: float = Field(description="upper end of the speedup's confidence interval")
    first_us: float = Field(description="time of the first program")
    second_us: float = Field(description="time of the second program")
    empty_us: float = Field(description="time of a program that does nothing: no program can show less")
    wall_gain_us: float = Field(description="time that the second program saves, by the wall clock")
    wall_half_width_us: float = Field(description="half the width of the confidence interval of `wall_gain_us`")
    bounded: bool = Field(
        description="whether `speedup` is the wall clock's: it shows a smaller gain than the events, and the smaller "
        "gain counts"
    )
    steady: bool = Field(description="whether the SM clock stayed as high as an idle GPU's in all rounds")
    rounds: int = Field(description="rounds that were timed")
    pairs: int = Field(description="calls of each program in a round")

    def __str__(self) -> str:
        gain, half = 100 * (self.speedup - 1), 50 * (self.high - self.low)
        text = f"{gain:+.2f}% ± {half:.2f} ({self.first_us:.2f} us to {self.second_us:.2f} us, an empty program "
        text += f"{self.empty_us:.2f} us; {self.rounds} rounds of {self.pairs} pairs)"
        notes = ["by the wall clock; the events show more"] * self.bounded + ["clock not steady"] * (not self.steady)
        return "; ".join([text, *notes])


class ComparisonResult(Record):
    """How the second program compares with the first."""

    verdict: Verdict = Field(description="whether the second program is faster")
    same: bool = Field(description="whether both are the same program; `compare_programs` then runs neither")
    measured: Measured | None = Field(None, description="the times of both; None if they were not run")
    equal_outputs: bool | None = Field(
        None, description="whether both gave the same bytes on the same inputs; None if they were not run"
    )
    seconds: float = Field(description="how long the comparison took")

    def __str__(self) -> str:
        text = f"{self.verdict}: {self.measured}" if self.measured else "the same program"
        return f"{text}; the outputs differ" if self.equal_outputs is False else text


class Unsteady(Exception):
    """Calls of a program of the second version gave other outputs than another one on the same draw."""


Judge = Callable[[int, int, list[memoryview]], None]
"""What looks at outputs of the second version, whole words each, of which arm on which draw. It raises where they are
wrong."""


def compare(
    replayer: Replayer,
    first: Program,
    second: Program,
    draws: Sequence[Sequence[Sent]] = (),
    error_probability: float = ERROR_PROBABILITY,
    measure_same: bool = False,
    rules: Rules = DEFAULT,
) -> ComparisonResult:
    """Replay both in turns until the question is closed by `rules`. `draws`: contents of the inputs, in their order;
    default: those of `draws_of`. A program is measured against itself only with `measure_same`.

    Raises `Fault` for a program that cannot be replayed, or two that are not for one call, and `ReplayerGone` where
    there is no replayer.
    """
    began, same = time.monotonic(), identity(first) == identity(second)
    if same and not measure_same:
        return ComparisonResult(verdict="inconclusive", same=True, seconds=0.0)
    replayer.load([first, second], draws or draws_of(first, DRAWS))
    comparison = Comparison(error_probability=error_probability, rules=rules)
    found, pairs = replayed_in_turns(replayer, len(draws) or DRAWS, comparison)
    return ComparisonResult(
        verdict=found.verdict,
        same=same,
        measured=_measured(found, pairs),
        equal_outputs=found.same_bytes,
        seconds=round(time.monotonic() - began, 3),
    )


def replayed_in_turns(
    replayer: Replayer,
    draws: int,
    found: Comparison,
    looks: Sequence[int] = LOOKS,
    judge: Judge | None = None,
    steady: bool = True,
    share: float = 0.0,
    after_round: Callable[[], None] = lambda: None,
    firsts: int = 1,
) -> tuple[Comparison, int]:
    """Rounds of the programs that are loaded with so many draws, until a look decides; and the calls of each in a
    round. The first version has the first arms, so many as `firsts` says, and the second one the others: the fastest
    is compared with the slowest (`opponents`). `judge` is shown the outputs of one call of each program of the second
    version on each draw, in one of the rounds before the first look, and in this `share` of all rounds. The round is
    drawn, and each call once it has ended. If the programs are `steady`, all calls on a draw have to give what the one
    that was judged gave. Raises `Fault`, `ReplayerGone`, `Unsteady`, and what `judge` raises.
    """
    source = random.SystemRandom()
    one_of = source.randrange(looks[0])
    given: dict[tuple[int, int], set[str]] = {}
    rounds: list[Figures] = []

    def ran(pairs: int, limit_s: float, pause_s: float) -> Round:
        if judge is None or not (len(rounds) == one_of or source.random() < share):
            return replayer.round(pairs, limit_s, pause_s)
        answer, copies = replayer.copied_round(pairs, limit_s, pause_s, judged)
        for copy in copies:
            judge(copy.arm, copy.draw, copy.outputs)
        return answer

    scouted = figures(replayer.round(SCOUT, CALL_LIMIT_S))
    judged = range(firsts, len(scouted.events) - 1)
    longest_us = max(scouted.events[:-1])
    pairs = -(-pairs_for(scouted) // draws) * draws  # each arm as often on each draw
    pause_s, limit_s = pause_for(longest_us), min(max(LIMIT_TIMES * longest_us / 1e6, 1.0), CALL_LIMIT_S)
    longest_s = PAUSE_S * 2**LONGER_PAUSES
    for look in looks:
        while len(rounds) < look:
            answer = ran(pairs, limit_s, pause_s)
            for one in answer.digests:
                known = given.setdefault((one.arm, one.draw), set())
                known.add(one.digest)
                if steady and judge and one.arm in judged and len(known) > 1:
                    raise Unsteady
            after_round()
            of_round = figures(answer)
            if not of_round.steady(replayer.idle_mhz):
                if pause_s < longest_s:  # once more, after a longer rest
                    pause_s = max(2 * pause_s, PAUSE_S)
                    continue
                found.unsteady += 1
            rounds.append(of_round)
        found.arms = opponents(rounds, firsts)
        found.rounds = [one.of(*found.arms) for one in rounds]
        if found.decided:
            break
    by_arm = [[given.get((arm, draw)) for draw in range(draws)] for arm in found.arms]
    found.same_bytes = by_arm[0] == by_arm[1] and all(known and len(known) == 1 for known in by_arm[0])
    return found, pairs


def _measured(found: Comparison, pairs: int) -> Measured:
    speedup, wall = found.speedup, found.wall_gain
    return Measured(
        speedup=math.exp(speedup.mean),
        low=math.exp(speedup.low),
        high=math.exp(speedup.high),
        first_us=found.mean_us(0),
        second_us=found.mean_us(1),
        empty_us=found.mean_us(-1),
        wall_gain_us=wall.mean,
        wall_half_width_us=wall.half_width,
        bounded=found.bounded,
        steady=not found.unsteady,
        rounds=len(found.rounds),
        pairs=pairs,
    )

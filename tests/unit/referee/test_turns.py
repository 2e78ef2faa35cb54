"""Rounds in turns: what is asked of a replayer, and what its answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.evaluation.statistics import Comparison
from tilewright.referee.compare import SCOUT, Unsteady, replayed_in_turns
from tilewright.referee.replayer import Copy
from tilewright.wire.messages import Digest, Round

OUTPUT = b"\x07" * 16


class Replayer:
    """Answers rounds of 10 us against 12 us. `digests`: what each round after the first says of arm 1 on draw 0, and
    `first` of arm 0 on both draws and of arm 1 on draw 1. `clocks`: MHz of both arms in each round after the first."""

    def __init__(
        self, digests: Sequence[str] = (), clocks: Sequence[tuple[float, float]] = (), first: Sequence[str] = ()
    ) -> None:
        self.asked: list[tuple[int, float, tuple[int, ...]]] = []
        self.idle_mhz = 1980.0
        self._digests = digests
        self._first = first
        self._clocks = clocks

    def round(self, pairs: int, limit_s: float, pause_s: float = 0.0) -> Round:
        return self.copied_round(pairs, limit_s, pause_s, ())[0]

    def copied_round(self, pairs: int, limit_s: float, pause_s: float, arms: Sequence[int]) -> tuple[Round, list[Copy]]:
        number = len(self.asked)
        self.asked.append((pairs, pause_s, tuple(arms)))
        times = [[12.0, 12.1], [10.0, 10.1], [2.0]]
        one, other = self._clocks[(number - 1) % len(self._clocks)] if self._clocks and number else (1980.0, 1980.0)
        copies = [Copy(1, draw, [memoryview(OUTPUT)]) for draw in (0, 1) if arms]
        digests = [Digest(arm=1, draw=0, digest=one * 16) for one in self._digests[number - 1 : number]]
        digests += [
            Digest(arm=arm, draw=draw, digest=one * 16)
            for one in self._first[number - 1 : number]
            for arm, draw in ((0, 0), (0, 1), (1, 1))
        ]
        mhz = [[one] * 2, [other] * 2, [1980.0]]
        return Round(events=times, wall=times, mhz=mhz, digests=digests), copies


def played(replayer: Replayer, **more: Any) -> Comparison:
    made: Any = replayer
    return replayed_in_turns(made, 2, Comparison(error_probability=0.01), **more)[0]


def test_the_outputs_of_the_second_program_are_judged_in_a_round_that_is_drawn() -> None:
    places = set()
    for _ in range(80):
        replayer, judged = Replayer(), list[tuple[int, int, list[memoryview]]]()
        played(replayer, looks=(8,), judge=lambda *seen, judged=judged: judged.append(seen))
        assert judged == [(1, 0, [OUTPUT]), (1, 1, [OUTPUT])]
        assert replayer.asked[0] == (SCOUT, 0.0, ())
        places |= {number for number, (*_, arms) in enumerate(replayer.asked) if arms == (1,)}
    assert places == {*range(1, 9)}


def test_where_calls_may_differ_many_are_judged() -> None:
    replayer = Replayer()
    played(replayer, looks=(8, 12), judge=lambda *_: None, steady=False, share=1.0)
    assert [arms for *_, arms in replayer.asked] == [(), *[(1,)] * (len(replayer.asked) - 1)]


def test_a_round_whose_clock_is_not_steady_is_run_again_after_a_longer_rest() -> None:
    steady, low = (2085.0, 1980.0), (1980.0, 1950.0)
    replayer = Replayer(clocks=[low, *[steady] * 20])
    found = played(replayer, looks=(8,))
    assert (len(found.rounds), found.unsteady) == (8, 0)
    assert [pause for _, pause, _ in replayer.asked] == [0.0, 0.0, *[0.01] * 8]  # the first is the scout's
    replayer = Replayer(clocks=[low])
    found = played(replayer, looks=(8,))
    assert (len(found.rounds), found.unsteady) == (8, 8)
    assert [pause for _, pause, _ in replayer.asked] == [0.0, 0.0, 0.01, 0.02, *[0.04] * 8]


def test_a_call_that_gives_something_else_in_a_later_round_is_found() -> None:
    assert len(played(Replayer("aaaaaaaa"), looks=(8,), judge=lambda *_: None).rounds) == 8
    assert len(played(Replayer("aaaaaaab"), looks=(8,), judge=lambda *_: None, steady=False).rounds) == 8
    with pytest.raises(Unsteady):
        played(Replayer("aaaaaaab"), looks=(8,), judge=lambda *_: None)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("aaaaaaaa", "aaaaaaaa", True),
        ("aaaaaaaa", "bbbbbbbb", False),
        ("aaaaaaab", "aaaaaaaa", False),
        ("aaaaaaab", "aaaaaaab", False),
        ("", "", False),
    ],
)
def test_both_give_the_same_bytes_if_all_calls_on_a_draw_do(first: str, second: str, same: bool) -> None:
    assert played(Replayer(second, first=first), looks=(8,)).same_bytes is same

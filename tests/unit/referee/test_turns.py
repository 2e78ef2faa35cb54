"""Rounds in turns: what is asked of a replayer, and what its answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.programs.digests import digest
from tilewright.referee.compare import SCOUT, Unsteady, replayed_in_turns
from tilewright.referee.replayer import Copy, Fault
from tilewright.referee.statistics import Comparison
from tilewright.wire.messages import Digest, Round

OUTPUT = b"\x07" * 16


class Replayer:
    """Answers rounds of 10 us against 12 us. `digests`: what each round after the first says of arm 1 on draw 0."""

    def __init__(self, digests: Sequence[str] = (), given: bytes = OUTPUT) -> None:
        self.asked: list[tuple[int, tuple[int, ...]]] = []
        self._digests = digests
        self._given = given

    def round(self, pairs: int, limit_s: float) -> Round:
        return self.copied_round(pairs, limit_s, ())[0]

    def copied_round(self, pairs: int, limit_s: float, arms: Sequence[int]) -> tuple[Round, list[Copy]]:
        number = len(self.asked)
        self.asked.append((pairs, tuple(arms)))
        times = [[12.0, 12.1], [10.0, 10.1], [2.0]]
        copies = [Copy(1, draw, [memoryview(self._given)], 5, digest([OUTPUT], 5)) for draw in (0, 1) if arms]
        digests = [Digest(arm=1, draw=0, digest=one * 16) for one in self._digests[number - 1 : number]]
        digests += [Digest(arm=0, draw=0, digest=f"{number:016x}")]
        return Round(events=times, wall=times, copied=[], digests=digests), copies


def played(replayer: Replayer, **more: Any) -> Comparison:
    made: Any = replayer
    return replayed_in_turns(made, 2, Comparison(error_probability=0.01), **more)[0]


def test_the_outputs_of_the_second_program_are_judged_in_a_round_that_is_drawn() -> None:
    places = set()
    for _ in range(80):
        replayer, judged = Replayer(), list[tuple[int, list[memoryview]]]()
        played(replayer, looks=(8,), judge=lambda *seen, judged=judged: judged.append(seen))
        assert judged == [(0, [OUTPUT]), (1, [OUTPUT])]
        assert replayer.asked[0] == (SCOUT, ())
        places |= {number for number, (_, arms) in enumerate(replayer.asked) if arms == (1,)}
    assert places == {*range(1, 9)}


def test_where_calls_may_differ_many_are_judged() -> None:
    replayer = Replayer()
    played(replayer, looks=(8, 12), judge=lambda *_: None, steady=False, share=1.0)
    assert [arms for _, arms in replayer.asked] == [(), *[(1,)] * (len(replayer.asked) - 1)]


def test_outputs_that_are_not_those_of_the_digest_are_tampered_with() -> None:
    with pytest.raises(Fault) as fault:
        played(Replayer(given=b"\x08" * 16), looks=(8,), judge=lambda *_: None)
    assert (fault.value.kind, fault.value.arm) == ("tampered", 1)


def test_a_call_that_gives_something_else_in_a_later_round_is_found() -> None:
    assert len(played(Replayer("aaaaaaaa"), looks=(8,), judge=lambda *_: None).rounds) == 8
    assert len(played(Replayer("aaaaaaab"), looks=(8,), judge=lambda *_: None, steady=False).rounds) == 8
    with pytest.raises(Unsteady):
        played(Replayer("aaaaaaab"), looks=(8,), judge=lambda *_: None)

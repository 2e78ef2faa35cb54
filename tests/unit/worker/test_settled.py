"""A call is captured once it launches what the call before did."""

from __future__ import annotations

from itertools import count

import pytest

from tests.unit.programs.made import OUT, copied, fill, program
from tilewright.programs.model import Program
from tilewright.worker import capture
from tilewright.worker.capture import MOST_CAPTURES, settled
from tilewright.worker.nodes import NotCapturable

ONE, ELSEWHERE = (program([copied(), fill(at, 1)]) for at in (OUT, OUT + 256))
"""The same launches, at addresses of their own."""
TWO = program([copied(), fill(OUT, 1), fill(OUT, 1)])


def captured(*programs: Program) -> tuple[Program, int, int]:
    """What settles, after how many captures, and how many calls in between."""
    made, warmed = count(), count()
    found = settled(lambda: programs[next(made) % len(programs)], lambda: [next(warmed)].clear())
    return found, next(made), next(warmed)


def test_the_first_of_two_captures_that_launch_the_same_is_taken() -> None:
    assert captured(ONE, ELSEWHERE) == (ONE, 2, 0)
    assert captured(TWO, ONE, ONE, ELSEWHERE) == (ONE, 4, 1)


def test_what_changes_from_call_to_call_is_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def alternating() -> Program:
        made.append(len(made))
        return (ONE, TWO)[len(made) % 2]

    with pytest.raises(NotCapturable, match="changes from call to call"):
        settled(alternating, lambda: None)
    assert len(made) == MOST_CAPTURES
    monkeypatch.setattr(capture, "SETTLE_S", -1.0)
    with pytest.raises(NotCapturable):
        settled(alternating, lambda: None)
    assert len(made) == MOST_CAPTURES + 2

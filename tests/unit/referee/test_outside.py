"""How many replays are recorded beside an ordinary call, and what they say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.referee.outside import nearest, replayed_us
from tilewright.wire.messages import Outputs


class Recording:
    """Stands for a replayer that records: the first calls take longer, and the last ones 12 us and 30 us in turns."""

    def __init__(self, recorded: bool = True) -> None:
        self.calls = 0
        self._recorded = recorded

    def load(self, programs: Any, draws: Any) -> None:
        assert (len(programs), draws) == (1, [["inputs"]])

    def alone(self, arm: int, draw: int, calls: int, limit_s: float, pause_s: float = 0.0) -> tuple[Outputs, None]:
        self.calls = calls
        us = [[500.0, 500.0]] * (calls - 3) + [[4.0, 8.0], [10.0, 20.0], [4.0, 8.0]]
        return Outputs(events=[], wall=[], us=us if self._recorded else []), None


@pytest.mark.parametrize(
    ("us", "nodes", "calls"),
    [(40.0, 1, 185 + 20), (40.0, 4096, 12), (40.0, 50_000, 4), (5000.0, 1, 6 + 20), (1e6, 1, 1 + 3)],
)
def test_replays_go_on_for_a_while_before_those_that_count(us: float, nodes: int, calls: int) -> None:
    replayer: Any = Recording()
    program: Any = SimpleNamespace(layout=SimpleNamespace(nodes=[None] * nodes))
    replayed_us(replayer, program, ["inputs"], us)  # type: ignore[list-item]
    assert replayer.calls == calls


def test_the_median_of_those_that_count_is_what_a_replay_takes() -> None:
    program: Any = SimpleNamespace(layout=SimpleNamespace(nodes=[None]))
    for recorded, expected in ((True, 12.0), (False, 0.0)):
        replayer: Any = Recording(recorded)
        assert replayed_us(replayer, program, ["inputs"], 1e6) == expected  # type: ignore[list-item]


def test_of_the_programs_of_a_function_that_tunes_the_one_that_was_called_is_the_one_that_takes_as_long() -> None:
    assert [nearest(us, [12.0, 30.0]) for us in (5.0, 13.0, 28.0, 90.0)] == [12.0, 12.0, 30.0, 30.0]

"""How long pairs are taken, without a GPU: the blocks and the clock are the test's."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.evaluation import measurement
from tilewright.evaluation.measurement import TIME_LIMIT_S, Bench, Phases
from tilewright.evaluation.statistics import LOOKS
from tilewright.rules import DEFAULT


class Timeless(Bench):
    """Two arms that are alike within a percent, whose every pair takes `pair_s` of a clock that only they move."""

    def __init__(self, pair_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self._arms, self._clock, self._order = [None, None], Phases(), random.Random(1)  # type: ignore[list-item]
        self._rules = DEFAULT
        self._task: Any = SimpleNamespace(benchmark_cases=lambda _: [{}])
        self._recorder: Any = SimpleNamespace(sample=lambda: None, busy_strangers=lambda: None)
        self._pair_s, self._now = pair_s, 100.0
        monkeypatch.setattr(measurement, "time", SimpleNamespace(monotonic=lambda: self._now))

    def _pair(self, *_: Any) -> list[tuple[float, float]]:
        self._now += self._pair_s
        return [(self._order.gauss(1.0, 0.01), self._order.gauss(1.5, 0.01)) for _ in range(2)]

    def _sweep(self, *_: Any) -> None: ...

    def taken(self) -> int:
        """Pairs until the end."""
        return len(self._pairs(None, LOOKS, TIME_LIMIT_S)[1].pairs)  # type: ignore[arg-type]


@pytest.mark.parametrize(("pair_s", "pairs"), [(0.01, LOOKS[-1]), (0.1, 81), (0.5, 17), (30.0, LOOKS[0])])
def test_pairs_end_at_the_time_limit_but_not_before_the_first_look(
    pair_s: float, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Timeless(pair_s, monkeypatch).taken() == pairs


def test_a_part_within_a_part_counts_as_itself_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("tilewright.evaluation.measurement.time.monotonic", lambda: now[0])
    phases = Phases()
    for _ in range(2):
        with phases("outer"):
            now[0] += 1
            with phases("inner"):
                now[0] += 10
                with phases("inmost"):
                    now[0] += 100
            now[0] += 1000
    assert phases.seconds == {"outer": 2002.0, "inner": 20.0, "inmost": 200.0}

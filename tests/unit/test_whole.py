"""What a session's keeps gain together, and whether its first program against its last says the same."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.evaluation.results import BenchmarkResult, Status
from tilewright.policy import Ratio, agree, product, ratio_of


def keep(speedup: float, half: float = 0.002) -> BenchmarkResult:
    """A run that says so, with an interval of this half width, as a log-ratio."""
    low, high = speedup * math.exp(-half), speedup * math.exp(half)
    return BenchmarkResult(status=Status.PASSED, speedup=speedup, speedup_low=low, speedup_high=high)


def direct(speedup: float, half: float = 0.002) -> Ratio:
    ratio = ratio_of(keep(speedup, half))
    assert ratio is not None
    return ratio


def test_the_product_of_keeps_is_less_sure_than_each_of_them() -> None:
    together = product([keep(1.1, 0.003), keep(1.2, 0.004)])
    assert together.speedup == pytest.approx(1.32)
    assert math.log(together.high / together.low) / 2 == pytest.approx(0.005)


@given(st.lists(st.tuples(st.floats(0.5, 4), st.floats(1e-5, 0.1)), min_size=1, max_size=25))
def test_a_direct_ratio_that_is_the_product_agrees(keeps: list[tuple[float, float]]) -> None:
    together = product([keep(*one) for one in keeps])
    assert together.low <= together.speedup <= together.high
    assert agree(direct(math.prod(speedup for speedup, _ in keeps), 1e-6), together)
    for far, agrees in ((1.0, True), (1.001, False)):
        assert agree(direct(together.high * far, 1e-6), together) is agrees
        assert agree(direct(together.low / far, 1e-6), together) is agrees


def test_a_loss_that_is_won_back_is_no_gain() -> None:
    """The first keep said 1% and lost a fifth; the second won that back, and said 25%."""
    assert not agree(direct(1.0), product([keep(1.01), keep(1.25)]))
    assert agree(direct(1.0), product([keep(0.8), keep(1.25)]))


@pytest.mark.parametrize(
    "result",
    [
        BenchmarkResult(status=Status.VOID, message="the GPU is in use"),
        BenchmarkResult(status=Status.PASSED, speedup=None),
        keep(1.0).model_copy(update={"status": Status.WRONG_VALUES}),
    ],
)
def test_a_run_that_failed_has_no_ratio(result: BenchmarkResult) -> None:
    assert ratio_of(result) is None

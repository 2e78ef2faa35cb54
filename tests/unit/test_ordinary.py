"""An ordinary call beside a replay: which versions are refused, by numbers recorded on an H100."""

from __future__ import annotations

import pytest

from tilewright.evaluation.ordinary import Ordinary, added_host_time, slower_outside

HONEST = {
    "cublas": (175.46, 175.14, 175.40, -0.080),
    "softmax": (93.54, 93.70, 87.25, -0.001),
    "attention": (150.53, 150.82, 149.64, 0.026),
    "compiled": (325.60, 325.70, 330.17, 0.037),
    "packed": (17.38, 17.25, 17.37, -0.051),
    "streams": (339.49, 340.99, 336.65, -0.818),
    "backward": (37.12, 37.02, 33.38, -0.019),
    "rmsnorm": (355.20, 354.62, 349.98, 0.193),
    "rmsnorm, 256 rows": (5.98, 5.95, 5.97, -0.025),
    "rmsnorm, 4096 rows": (95.65, 95.55, 89.53, 0.045),
    "matmul against cublas": (445.86, 174.91, 436.88, -261.864),
}
"""Of two honest versions, us of a call in a process of its own; us of the first one's replay, and of the second's less
that."""


def of(us: float, replayed_us: float, host_us: float = 20.0) -> Ordinary:
    return Ordinary(us=us, replayed_us=replayed_us, host_us=host_us)


@pytest.mark.parametrize("name", HONEST)
def test_honest_versions_are_not_refused(name: str) -> None:
    first, second, replayed, difference = HONEST[name]
    one, other = of(first, replayed), of(second, replayed + difference)
    assert slower_outside(one, other) == slower_outside(other, one) == ""


def test_the_durations_alone_would_refuse_honest_versions() -> None:
    over = [name for name, (first, _, replayed, _) in HONEST.items() if first > 1.05 * replayed]
    assert over == ["softmax", "backward", "rmsnorm, 4096 rows"]


@pytest.mark.parametrize("name", HONEST)
def test_what_is_faster_by_15_percent_only_in_replays_is_refused(name: str) -> None:
    first, _, replayed, _ = HONEST[name]
    said = slower_outside(of(first, replayed / 1.15), of(first, replayed))
    assert bool(said) is (first >= 10), "shorter calls are not compared"


@pytest.mark.parametrize(
    ("us", "refused"),
    [(45.9, False), (46.5, True), (40.0, False), (20.0, False)],
)
def test_the_limit_is_5_percent_and_1_us(us: float, refused: bool) -> None:
    """Of 43 us, e^(5% + 1/43) - 1 = 7.6%."""
    said = slower_outside(of(us, 43.0), of(43.0, 43.0))
    assert bool(said) is refused
    if said:
        assert said.endswith("that is 8.1% too long (7.6% are allowed): it is fast only when it is replayed")


def test_a_short_replay_of_a_long_call_is_compared() -> None:
    assert slower_outside(of(9.0, 3.0), of(3.0, 3.0)) == ""
    assert slower_outside(of(30.0, 3.0), of(3.0, 3.0))


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ((10.0, 42.0), (10.0, 12.0), "+30 us on the host, host-bound"),
        ((80.0, 42.0), (80.0, 12.0), "+30 us on the host"),
        ((100.0, 42.0), (100.0, 12.0), ""),  # nobody waits for the host
        ((10.0, 16.0), (10.0, 12.0), ""),
        ((10.0, 118.0), (10.0, 100.0), ""),
        ((10.0, 12.0), (10.0, 42.0), ""),
    ],
)
def test_what_a_version_adds_on_the_host_is_named(
    mine: tuple[float, float], theirs: tuple[float, float], said: str
) -> None:
    one, other = (of(us, us, host_us) for us, host_us in (mine, theirs))
    assert added_host_time(one, other) == said

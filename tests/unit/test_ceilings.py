"""A case's bound by the mix of its reads and writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.evaluation import ceilings
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.task import Work

MEASURED = Ceilings(
    copy_bytes_per_s=3e12,
    flops={},
    measured=True,
    mixes=[(0.0, 2.8e12), (0.5, 3e12), (2 / 3, 3.2e12), (0.75, 3.1e12), (1.0, 3.3e12)],
)


@pytest.mark.parametrize(
    ("written", "rate"),
    [(3.0, 3e12), (2.0, 3.2e12), (2.5, 3.1e12), (0.0, 3.3e12), (6.0, 2.8e12), (9.0, 2.8e12), (4.5, 2.9e12)],
)
def test_the_rate_is_that_of_the_cases_own_mix(written: float, rate: float) -> None:
    assert MEASURED.bytes_per_s(Work(6.0, 0.0, "float32", written)) == pytest.approx(rate)


def test_without_a_known_mix_it_is_a_copys() -> None:
    assert MEASURED.bytes_per_s(Work(6.0, 0.0, "float32")) == 3e12
    assert MEASURED.model_copy(update={"mixes": []}).bytes_per_s(Work(6.0, 0.0, "float32", 2.0)) == 3e12


def test_what_reads_twice_as_much_as_it_writes_has_its_own_bound() -> None:
    work = Work(6e9, 0.0, "float32", 2e9)
    assert roofline_ms(work, MEASURED) == (pytest.approx(1.875), "memory")


def test_each_mix_moves_what_its_share_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the GPU, calls on small tensors, of which each takes 1 s."""
    torch = ceilings.torch
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda count, dtype, device: empty(64, dtype=dtype))
    ran: list[object] = []

    def times_ms(call: Callable[[], object]) -> list[float]:
        ran.append(call())
        return [1000.0]

    monkeypatch.setattr(ceilings, "_times_ms", times_ms)
    assert ceilings._mixes() == {0.0: 256, 0.5: 512, 2 / 3: 384, 0.75: 512, 1.0: 256}
    assert len(ran) == 7

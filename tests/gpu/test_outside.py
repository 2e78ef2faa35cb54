"""An ordinary call beside a replay, on a GPU: what is slow only outside of the replay is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tilewright.evaluation.results import BenchmarkResult, Status
from tilewright.gpu.specs import spec_by_name
from tilewright.task import Backend

pytestmark = pytest.mark.gpu

TOML = SCALE_TOML.replace("N = 1048576", "N = 33554432")
TWICE = body("right(x, factor)\nreturn right(x, factor)")
"""Twice the work: whatever does it once is faster."""
KERNEL = """
import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def scale_kernel(x, out, factor, times, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    spun = values
    for _ in range(times):
        spun = ct.cos(spun)
    ct.store(out, index=(block,), tile=ct.where(spun > 1e30, spun, values * factor))


def scale(x, factor):
    out = torch.empty_like(x)
    times = 2
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, times, TILE))
    return out
"""
SLOW_OUTSIDE = KERNEL.replace("times = 2", "times = 2 if torch.cuda.is_current_stream_capturing() else 202")
"""The same kernels on the same grids, with more arithmetic in any call that is not captured."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CUDA, TOML)


def confirmed(bench: Bench, candidate: str) -> BenchmarkResult:
    checked = bench.check(candidate)
    assert checked.passed, checked.message
    measured = bench.measure(candidate, TWICE, confirms=True)
    assert measured.speedup_low is not None and measured.speedup_low > 1, "it gains in replays"
    assert not measured.unconfirmed, measured.unconfirmed
    return measured


def test_what_is_slow_only_outside_is_refused(bench: Bench) -> None:
    measured = confirmed(bench, SLOW_OUTSIDE)
    assert measured.status is Status.OTHER_LAUNCHES, measured.message
    assert "it is fast only when it is replayed" in measured.message


def test_what_takes_as_long_outside_is_kept(bench: Bench) -> None:
    measured = confirmed(bench, KERNEL)
    assert measured.passed, measured.message
    assert not measured.uncompared, measured.uncompared
    ordinary = measured.cases[0].ordinary
    assert ordinary is not None
    assert 0.8 < ordinary.us / ordinary.replayed_us < 1.25, ordinary
    assert ordinary.host_us > 0


def test_the_ceilings_are_those_of_several_mixes(bench: Bench) -> None:
    ceilings, device = bench.environment().ceilings, spec_by_name(bench.environment().device)
    assert [share for share, _ in ceilings.mixes] == [0.0, 0.5, pytest.approx(2 / 3), 0.75, 1.0]
    assert dict(ceilings.mixes)[0.5] == ceilings.copy_bytes_per_s
    if device is not None:
        assert all(0.6 < rate / device.dram_bytes_per_s < 1.01 for _, rate in ceilings.mixes), ceilings.mixes


def test_a_baseline_s_ordinary_calls_are_recorded(bench: Bench) -> None:
    measured = bench.measure(SCALE_KERNEL, None)
    assert measured.passed, measured.message
    ordinary = measured.cases[0].ordinary
    assert ordinary is not None
    assert 0.8 < ordinary.us / ordinary.replayed_us < 1.25, ordinary

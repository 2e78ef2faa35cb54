"""What a row says of its figures."""

from __future__ import annotations

from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Level, Status
from tilewright.session.rows import remarks

TIMING = CaseTiming(case={"N": 1}, level=Level.REPLAYED, latency_ms=1.0)


def of(case: CaseTiming = TIMING, **fields: object) -> BenchmarkResult:
    values = {"status": Status.PASSED, "level": Level.REPLAYED, "cases": [TIMING, case]} | fields
    return BenchmarkResult.model_validate(values)


def test_a_row_has_no_remark_if_nothing_is_off() -> None:
    assert remarks(of(gpu=[])) == []


def test_a_row_names_what_is_off() -> None:
    found = remarks(
        of(
            TIMING.model_copy(update={"steady": False}),
            unconfirmed="no CUPTI",
            uncompared="N=1: too short",
            unjudged=["N=1"],
            host="+30 us on the host",
            gpu=["GPU: thermal slowdown"],
        )
    )
    assert found == [
        "launches not confirmed",
        "durations not compared",
        "not on all values",
        "clock not steady",
        "GPU: thermal slowdown",
        "+30 us on the host",
    ]
    assert remarks(of(level=Level.IN_PROCESS)) == ["in-process"]

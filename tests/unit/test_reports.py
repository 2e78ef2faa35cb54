"""What the tools answer."""

from __future__ import annotations

from tilewright.session.reports import IterationReport


def test_figures_have_six_digits() -> None:
    found = IterationReport(summary="s", next="", latency_ms=1 / 3, speedup=12345678.9, interval=(0.99999949, 2 / 3))
    shown = found.model_dump(mode="json", exclude_defaults=True)
    assert (shown["latency_ms"], shown["interval"]) == (0.333333, [0.999999, 0.666667])
    assert shown["speedup"] == 12345700.0
    assert found.latency_ms == 1 / 3

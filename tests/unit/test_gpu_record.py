"""Whether the code that needs a GPU ran on one as it is now."""

from __future__ import annotations

import json

import pytest

from tests.gpu import evidence


def test_what_needs_a_gpu_ran_on_one_as_it_is() -> None:
    if why := evidence.stale():
        pytest.skip(why)
    outcomes = json.loads(evidence.RECORD.read_text())["outcomes"]
    assert outcomes
    assert {name: outcome for name, outcome in outcomes.items() if outcome not in ("passed", "skipped")} == {}

"""Which configs are raced next: on the spaces whose every config was measured on an H200, and on made-up ones."""

from __future__ import annotations

import functools
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest

from tilewright.autotune.pruning import SAME
from tilewright.evaluation.expectation import expected, ranked
from tilewright.evaluation.racing import MOST_RACED
from tilewright.evaluation.results import ORIGINAL, Prior

RECORDED = Path(__file__).parents[2] / "benchmarks" / "evidence" / "searches.json.gz"
LARGE = ["softmax wide", "matmul wide", "matmul odd wide", "matmul flat wide", "rmsnorm wide"]
"""Those spaces of which more configs are left than are raced; all others are raced whole."""
HEAT = 23


@functools.cache
def recorded() -> Any:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))["parts"]


def rivals(part: str) -> tuple[list[Prior], list[float]]:
    """The original, and the configs that a race of this space may choose from: what was known of them, and their ms by
    cuTile's search, the mean over those with the same machine code. Left out is what failed there, or was modelled as
    hopeless."""
    found = recorded()[part]
    label = functools.partial(json.dumps, sort_keys=True)
    ms = {label(config): float(mean) for config, mean, *_ in found["theirs"]["successes"]}
    words = {
        " ".join(f"{name}={value}" for name, value in one["config"].items()): one for one in found["ours"]["tried"]
    }
    alike: dict[str, list[float]] = {}
    for one in words.values():
        first = one
        while first["place"] == "pruned" and first["why"].startswith(SAME) and "as it is" not in first["why"]:
            first = words[first["why"].removeprefix(SAME)]
        if label(one["config"]) in ms:
            alike.setdefault(label(first["config"]), []).append(ms[label(one["config"])])
    chosen = [
        one
        for one in words.values()
        if label(one["config"]) in alike and one.get("modelled_ms")
        if one["place"] != "pruned" or "by the model (" in one["why"] or "that were raced" in one["why"]
    ]
    chosen.sort(key=lambda one: found["full"]["configs"].index(one["config"]))  # as the space has them
    assert chosen[ORIGINAL]["config"] == {}
    priors = [
        Prior(ms=one["modelled_ms"], settings={name: repr(value) for name, value in one["config"].items()})
        for one in chosen
    ]
    means = [alike[label(one["config"])] for one in chosen]
    return priors, [sum(some) / len(some) for some in means]


def best_three(ms: list[float]) -> set[int]:
    return {*sorted(range(1, len(ms)), key=lambda number: ms[number])[:3]}


def raced(priors: list[Prior], ms: list[float], heat: int) -> set[int]:
    """Those that a race would choose, without any noise in what it measures."""
    measured: dict[int, float] = {}
    while len(measured) <= MOST_RACED:
        left = [number for number in range(1, len(priors)) if number not in measured]
        part = ranked(priors, left, measured)[: min(heat, MOST_RACED + 1 - len(measured))]
        measured |= {number: math.log(ms[number]) for number in (ORIGINAL, *part)}
    return {*measured}


@pytest.mark.parametrize("heat", [HEAT, 11, 5])
@pytest.mark.parametrize("part", LARGE)
def test_the_best_three_of_every_recorded_space_are_raced(part: str, heat: int) -> None:
    priors, ms = rivals(part)
    assert len(priors) > MOST_RACED + 15
    assert best_three(ms) <= raced(priors, ms, heat)


def test_the_model_alone_would_have_left_the_best_out() -> None:
    priors, ms = rivals("rmsnorm wide")
    by_model = ranked(priors, range(1, len(priors)), {})[:MOST_RACED]
    assert min(range(1, len(ms)), key=lambda number: ms[number]) not in by_model


@pytest.mark.parametrize(("part", "found"), [(one, one != "rmsnorm wide") for one in LARGE])
def test_without_a_model_what_was_raced_decides_alone(part: str, found: bool) -> None:
    """It does not always find the best: a space of 121 is large for heats that nothing but themselves guides."""
    priors, ms = rivals(part)
    blank = [one.model_copy(update={"ms": None}) for one in priors]
    chosen = raced(blank, ms, HEAT)
    assert (best_three(ms) <= chosen) == found
    assert min(ms[number] for number in chosen) < 1.03 * min(ms)


def test_the_first_ones_in_the_order_of_the_space_would_not_do() -> None:
    found = [part for part in LARGE if best_three(rivals(part)[1]) <= {*range(1, MOST_RACED + 1)}]
    assert found == ["softmax wide"]


def test_of_an_effect_that_is_seen_once_half_is_believed() -> None:
    priors = [Prior(ms=1.0, settings={"TILE": tile}) for tile in "aaaab"]
    times = expected(priors, dict.fromkeys(range(4), 0.0) | {4: 1.0})
    assert 0.2 + 0.3 < times[4] < 0.2 + 0.6
    assert 0.0 < times[0] < 0.15


def test_a_knob_that_the_model_misjudges_is_corrected_for_all() -> None:
    """The model thinks nothing of `WARPS`, and 8 of them take twice as long."""
    priors = [
        Prior(ms=1.0 + tile / 100, settings={"TILE": str(tile), "WARPS": str(warps)})
        for tile in range(8)
        for warps in (8, 4)
    ]
    times = [(prior.ms or 0.0) * int(prior.settings["WARPS"]) / 4 for prior in priors]
    measured = {number: math.log(times[number]) for number in range(6)}
    found = expected(priors, measured)
    assert all(found[one] > found[one + 1] + 0.3 for one in range(6, 16, 2))
    assert ranked(priors, range(6, 16), measured)[:5] == [7, 9, 11, 13, 15]


def test_what_no_model_knows_takes_turns_with_the_rest_until_it_was_measured() -> None:
    known = [Prior(ms=ms, settings={"TILE": str(ms)}) for ms in (3.0, 1.0, 2.0)]
    unknown = [Prior(ms=None, settings={"TILE": f"-{number}"}) for number in range(3)]
    priors = known + unknown
    first = ranked(priors, range(6), {})
    assert first[0::2] == [1, 2, 0]
    assert {*first[1::2]} == {3, 4, 5}
    assert first == ranked(priors, range(6), {})
    slow = expected(priors, {1: 0.0, 3: 3.0, 4: 3.0})
    assert slow[5] > slow[0]
    assert slow[5] > slow[2]
    fast = expected(priors, {1: 0.0, 3: -3.0, 4: -3.0})
    assert fast[5] < fast[2]

"""A part of the battery that is quick enough for every day, and all of it where there is a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redteam import battery
from tilewright.task import Backend

ATTACKS = {one.name: one for one in battery.entries("attacks")}
HONEST = {one.name: one for one in battery.entries("honest")}
DAILY = [
    "09_untouched_output",
    "12_zeroed_inputs",
    "19_rare_wrong_blocks",
    "30_small_elements_zeroed",
    "36_patched_generators",
    "37_patched_reference",
    "39_equal_to_everything",
    "43_overlapping_output",
    "80_forged_reply",
    "82_exit_at_import",
    "84_result_at_exit",
    "91_huge_output",
    "93_modules_in_the_way",
    "a2_object_like_a_tensor",
    "e6_the_same_kernel",
]
DAILY_HONEST = ["scale_persistent", "scale_prints", "scale_thread_joined"]


@pytest.fixture(scope="module")
def judge() -> Iterator[battery.Judge]:
    made = battery.Judge("scale", Backend.CPU)
    yield made
    made.close()


@pytest.mark.parametrize("name", DAILY)
def test_an_attack_is_not_kept(judge: battery.Judge, name: str) -> None:
    outcome = judge.judge(ATTACKS[name], aftercare=False)
    assert outcome.outcome not in ("keep", "error"), battery.shown(outcome)


def test_the_evaluator_works_after_all_of_them(judge: battery.Judge) -> None:
    assert judge.check(judge.incumbent).passed


@pytest.mark.parametrize("name", DAILY_HONEST)
def test_an_honest_kernel_is_not_refused(judge: battery.Judge, name: str) -> None:
    outcome = judge.judge(HONEST[name])
    assert outcome.outcome == "accepted", battery.shown(outcome)


def test_every_file_says_what_it_is() -> None:
    assert len(ATTACKS) >= 80
    assert len(HONEST) >= 55
    for entry in (*ATTACKS.values(), *HONEST.values()):
        assert entry.title.endswith("."), entry.name
    assert {entry.family for entry in ATTACKS.values()} == {"timing", "results", "harness", "statistics"}


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_on_a_gpu_no_attack_is_kept_and_no_honest_kernel_refused() -> None:
    chosen = [entry for entry in (*ATTACKS.values(), *HONEST.values()) if entry.runs_on(Backend.CUDA)]
    outcomes = battery.run(chosen, Backend.CUDA, lambda one: print(battery.shown(one), flush=True))
    assert not [battery.shown(one) for one in outcomes if one.bad]

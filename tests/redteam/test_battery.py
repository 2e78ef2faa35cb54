"""A few attacks and honest kernels; all of them in tests marked `slow`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.redteam import battery
from tilewright.task import Backend

ATTACKS = {one.name: one for one in battery.entries("attacks")}
HONEST = {one.name: one for one in battery.entries("honest")}
EVERYTHING = [*ATTACKS.values(), *HONEST.values()]
FAMILIES = {
    "avoids_the_work", "computed_elsewhere", "deceives_the_capture", "forged_programs", "leaves_out", "less_precise",
    "lying_outputs", "remembers", "touches_the_evaluator",
}  # fmt: skip
DAILY = [
    "cache_by_pointer",
    "modules_in_the_way",
    "object_like_a_tensor",
    "one_block_in_61_skipped",
    "overlapping_elements",
    "patched_reference",
    "untouched_output",
    "valid_reply_forged",
]
DAILY_HONEST = ["scale_persistent", "scale_prints", "scale_thread_joined"]

KEPT_WITHOUT_A_GPU = {
    "float16_accumulator",
    "one_triangle_unmirrored",
    "seven_eighths_of_a_sum",
}
"""What a worker says of itself there is believed, and nothing is timed."""
REFUSED_ON_A_GPU = {"scale_own_graph", "scattersum_bincount"}
"""One replays a graph of its own, the call of the other waits for the host."""


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


def test_every_candidate_says_what_it_is() -> None:
    assert {entry.family for entry in ATTACKS.values()} == FAMILIES
    for entry in EVERYTHING:
        assert entry.candidate.title.endswith("."), entry.name
        compile(entry.candidate.source, entry.name, "exec")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "task", sorted({entry.candidate.task for entry in EVERYTHING if entry.candidate.runs_on(Backend.CPU)})
)
def test_without_a_gpu_no_more_is_kept_than_is_known(task: str) -> None:
    chosen = [entry for entry in EVERYTHING if entry.candidate.task == task and entry.candidate.runs_on(Backend.CPU)]
    outcomes = battery.run(chosen, Backend.CPU, lambda one: print(battery.shown(one), flush=True))
    bad = {one.name: battery.shown(one) for one in outcomes if one.bad}
    assert bad.keys() == KEPT_WITHOUT_A_GPU & {one.name for one in outcomes}, bad


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_on_a_gpu_no_attack_is_kept_and_no_more_honest_kernels_are_refused_than_is_known() -> None:
    chosen = [entry for entry in EVERYTHING if entry.candidate.runs_on(Backend.CUDA)]
    outcomes = battery.run(chosen, Backend.CUDA, lambda one: print(battery.shown(one), flush=True))
    bad = {one.name: battery.shown(one) for one in outcomes if one.bad}
    assert bad.keys() == REFUSED_ON_A_GPU, bad

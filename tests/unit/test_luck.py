"""A kernel that is wrong on a quarter of its sizes is not kept by trying often: sizes, strata, and what is counted."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import git
from tests.stage import another_failed
from tilewright.cases import Draw, HiddenEntry
from tilewright.evaluation.correctness import class_runs, planned_runs, wide_runs
from tilewright.evaluation.results import CaseRun, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.repository import Repository
from tilewright.rules import DEFAULT
from tilewright.session.rows import UNSAID_LUCK, luck
from tilewright.session.wrong import KNOWN_FAILURES, is_wrong, used_up, wrong_results
from tilewright.task import Backend, Task, TaskFile, Values, case_label, load_task

EXAMPLES = sorted(path.parent for path in Path(__file__).parents[2].glob("assets/examples/*/task.toml"))
QUARTERS = 4
WIDE_CASES = DEFAULT.hidden_cases_to_keep


def test_the_probability_is_the_one_that_is_claimed() -> None:
    assert luck(WIDE_CASES, DEFAULT.wrong_results) == pytest.approx(25 * 0.75**36)
    assert luck(WIDE_CASES, DEFAULT.wrong_results) < UNSAID_LUCK < luck(WIDE_CASES, DEFAULT.wrong_results + 1)
    assert luck(0, 1) == luck(3, 25) == 1.0


@pytest.mark.parametrize("high", [48, 1000, 8192, 2**20])
@pytest.mark.parametrize("low", [1, 0, 7])
def test_an_interval_of_a_quarter_of_a_range_is_always_hit(low: int, high: int) -> None:
    """By the number of its values, wherever it lies, and by its orders of magnitude."""
    draw, source = Draw(min=low, max=high), random.Random(high)
    width = math.ceil((high - low + 1) / QUARTERS)
    shift = min(low - 1, 0)
    orders = math.log((high - shift + 1) / (low - shift))
    for _ in range(200):
        drawn = [int(value) for value in draw.draw_wide(WIDE_CASES, source)]
        assert min(drawn) >= low and max(drawn) <= high
        start = source.randint(low, high - width + 1)
        assert any(start <= value < start + width for value in drawn)
        if high >= 1000:  # below, an order of magnitude has hardly a whole number
            from_ = math.exp(math.log(low - shift) + 0.75 * orders * source.random())
            assert any(from_ - 1 <= value - shift <= from_ * math.exp(orders / QUARTERS) + 1 for value in drawn)


def test_any_quarter_of_what_is_drawn_passes_no_more_often_than_by_independent_draws() -> None:
    """Simulated with 8 draws, of which chance alone lets 0.75 ** 8 pass, 10%: strata let no more pass."""
    source, draw, trials, passed = random.Random(3), Draw(min=1, max=4000), 3000, 0
    for _ in range(trials):
        bad = set(source.sample(range(1, 4001), 4000 // QUARTERS))
        passed += not bad.intersection(map(int, draw.draw_wide(8, source)))
    expected = 0.75**8
    assert passed / trials < expected + 3 * math.sqrt(expected * (1 - expected) / trials)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("backend", Backend)
def test_every_example_has_as_many_hidden_cases(folder: Path, backend: Backend) -> None:
    task = load_task(folder)
    cases = task.wide_cases(backend, Seeds("a secret").next(), WIDE_CASES)
    assert len({case_label(case) for case in cases}) == len(cases) == WIDE_CASES
    assert cases != task.wide_cases(backend, 6, WIDE_CASES)
    runs = wide_runs(task, backend, Seeds("a secret"), WIDE_CASES)
    telling = [run for run in runs if run.values not in (Values.ZEROS, Values.ONES)]
    assert {case_label(run.case) for run in telling} == {case_label(case) for case in cases}
    assert {run.values for run in runs} == set(Values) - set(task.file.values.exclude)
    assert all(run.hidden for run in runs)


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("backend", Backend)
def test_every_class_of_values_comes_to_every_visible_case_before_a_keep(folder: Path, backend: Backend) -> None:
    task = load_task(folder)
    runs = class_runs(task, backend, Seeds("a secret"))
    visible = task.correctness_cases(backend)
    wanted = set(Values) - {Values.DRAWN, *task.file.values.exclude}
    assert all({run.values for run in runs if run.case == case} == wanted for case in visible)
    assert [run.case for run in runs if run.hidden or run.case not in visible] == []
    assert class_runs(task, backend, Seeds("a secret"), visible) == []


@pytest.mark.parametrize("count", [9, 18, 27])
def test_a_check_that_time_cuts_off_leaves_out_no_sizes_in_particular(count: int) -> None:
    """Not even the largest: a kernel that is wrong on the upper quarter of a range passes as often as any other."""
    task, passed, trials = load_task(EXAMPLES[0]), 0, 300
    for trial in range(trials):
        runs = wide_runs(task, Backend.CPU, Seeds(str(trial)), WIDE_CASES)
        seen = list(dict.fromkeys(case_label(run.case) for run in runs))[:count]
        rows = [int(run.case["M"]) for run in runs if case_label(run.case) in seen]
        passed += not any(row > 36 for row in rows)  # of 1 to 48
    expected = 0.85**count  # at least so many draws lie there: 18 of 36 by their number, and some by their order
    assert passed / trials < expected + 3 * math.sqrt(expected * (1 - expected) / trials) + 1 / trials


def test_tables_that_overlap_draw_each_case_once() -> None:
    table = {"M": {"min": 1, "max": 9}, "N": {"choices": [8]}}
    file = load_task(EXAMPLES[0]).file.model_dump() | {"hidden": [table, table]}
    file["cases"] = [{"M": 3, "N": 8, "dtype": "float16"}]
    task = Task(TaskFile.model_validate(file), EXAMPLES[0])
    cases = task.wide_cases(Backend.CPU, 1, WIDE_CASES)
    assert sorted(int(case["M"]) for case in cases) == [1, 2, 4, 5, 6, 7, 8, 9]  # 3 is visible


def test_all_cases_are_drawn_where_there_are_few() -> None:
    entry = HiddenEntry.model_validate({"M": {"min": 1, "max": 6}, "N": {"choices": [8, 16]}})
    cases = entry.draw_wide([{"M": 3, "N": 8, "dtype": "float16"}], WIDE_CASES, random.Random(1))
    hidden = [(m, n) for m in range(1, 7) for n in (8, 16) if (m, n) != (3, 8)]
    assert sorted((case["M"], case["N"]) for case in cases) == hidden


def test_large_values_of_two_ranges_meet_small_ones() -> None:
    entry = HiddenEntry.model_validate({name: {"min": 1, "max": 8192} for name in "MN"})
    cases = entry.draw_wide([{"M": 4096, "N": 8192}], WIDE_CASES, random.Random(1))
    assert max(int(case["M"]) * int(case["N"]) for case in cases) <= 4096 * 8192
    assert max(int(case["M"]) for case in cases) > 7000 < max(int(case["N"]) for case in cases)


# Wrong results of earlier candidates


def runs_of(*numbers: int) -> list[CaseRun]:
    return [CaseRun(case={"M": number}, values=Values.SPIKE) for number in numbers]


def test_crashes_and_changed_files_are_no_wrong_results() -> None:
    wrong = {status for status in Status if is_wrong(status)}
    assert {Status.WRONG_VALUES, Status.NON_FINITE, Status.DEFECTIVE} <= wrong
    assert not wrong & {Status.PASSED, Status.VOID, Status.CRASHED, Status.COMPILE_ERROR, Status.TAMPERED}
    assert used_up(24, 25) == "" and "the rule wrong_results allows 25" in used_up(25, 25)


def test_worktrees_and_copies_of_a_task_share_a_count_and_other_entry_points_do_not(
    make_task: Callable[..., Path], tmp_path: Path
) -> None:
    """Whatever stands in a copy's task.py: a session is known by its entry point."""
    root = make_task()
    git(root, "worktree", "add", "-q", str(tmp_path / "other"))
    another_failed(root, *runs_of(1))
    another_failed(root, *runs_of(2), name="a copy")
    another_failed(tmp_path / "other", *runs_of(3))
    for place in (root, tmp_path / "other"):
        assert wrong_results(Repository(place), "kernel:scale", Backend.CPU).count == 3
        assert wrong_results(Repository(place), "kernel:other", Backend.CPU).count == 0


def test_what_failed_is_known_to_later_candidates_on_the_same_backend(make_task: Callable[..., Path]) -> None:
    root = make_task()
    another_failed(root, *runs_of(*range(KNOWN_FAILURES + 3)))
    another_failed(root, *runs_of(99), backend=Backend.CUDA, name="on a GPU")
    found = wrong_results(Repository(root), "kernel:scale", Backend.CPU)
    assert [run.case["M"] for run in found.known] == [*range(KNOWN_FAILURES + 2, 2, -1)]
    assert {run.values for run in found.known} == {Values.SPIKE}
    assert [run.case["M"] for run in wrong_results(Repository(root), "kernel:scale", Backend.CUDA).known] == [99]


def test_a_line_that_is_no_record_does_no_harm(make_task: Callable[..., Path]) -> None:
    root = make_task()
    another_failed(root, *runs_of(1))
    with (root / "sandbox" / "another" / "journal.jsonl").open("a") as file:
        file.write('{"kind": "wro')
    assert wrong_results(Repository(root), "kernel:scale", Backend.CPU).count == 1


def test_known_failures_are_among_the_planned_runs_where_the_task_still_has_such() -> None:
    task = load_task(EXAMPLES[0])
    size = {"M": 37, "N": 200, "dtype": "bfloat16"}
    known = [CaseRun(case=size, values=Values.SPIKE), CaseRun(case={"K": 1}), CaseRun(case=size, strided=True)]
    plain = planned_runs(task, Backend.CPU, Seeds("a secret"), 4)
    runs = planned_runs(task, Backend.CPU, Seeds("a secret"), 4, known)
    added = [run for run in runs if run not in plain]
    assert [(run.case, run.values, run.strided) for run in added] == [(size, Values.SPIKE, False)]
    assert [run for run in runs if run in plain] == plain


def test_known_failures_count_in_the_ranges_that_the_task_has_now() -> None:
    task = load_task(EXAMPLES[0])
    for case, drawn in (
        ({"M": 37, "N": 200, "dtype": "bfloat16"}, True),
        ({"M": 64, "N": 1024, "dtype": "bfloat16"}, True),  # visible
        ({"M": 49, "N": 200, "dtype": "bfloat16"}, True),  # above the range, up to what is visible
        ({"M": 65, "N": 200, "dtype": "bfloat16"}, False),
        ({"M": 37, "N": 201, "dtype": "bfloat16"}, False),
        ({"M": 37, "N": 200, "dtype": "float16"}, False),
        ({"M": 37, "N": 200}, False),
    ):
        assert task.draws(Backend.CPU, case) is drawn, case
        runs = planned_runs(task, Backend.CPU, Seeds("a secret"), 0, [CaseRun(case=case, values=Values.SPIKE)])
        assert any(run.case == case and run.values is Values.SPIKE for run in runs) >= drawn

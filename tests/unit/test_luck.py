"""A kernel that is wrong on a quarter of its sizes is not kept by trying often: sizes, strata, and the tally."""

from __future__ import annotations

import math
import random
from pathlib import Path, PurePosixPath

import pytest
from git import Repo

from tilewright.cases import Draw, HiddenEntry
from tilewright.evaluation.correctness import class_runs, planned_runs, wide_runs
from tilewright.evaluation.results import CaseCheck, CaseRun, CorrectnessResult, Status
from tilewright.evaluation.seeds import Seeds
from tilewright.repository import Repository
from tilewright.rules import DEFAULT
from tilewright.session.rows import UNSAID_LUCK, luck
from tilewright.session.tally import KNOWN_FAILURES, WRONG_RESULTS, Tally, used_up
from tilewright.task import Backend, Task, TaskFile, Values, case_label, load_task

EXAMPLES = sorted(path.parent for path in Path(__file__).parents[2].glob("assets/examples/*/task.toml"))
QUARTERS = 4
WIDE_CASES = DEFAULT.hidden_cases_to_keep


def test_the_probability_is_the_one_that_is_claimed() -> None:
    assert luck(WIDE_CASES, WRONG_RESULTS) == pytest.approx(25 * 0.75**36)
    assert luck(WIDE_CASES, WRONG_RESULTS) < UNSAID_LUCK < luck(WIDE_CASES, WRONG_RESULTS + 1)
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


# The tally


@pytest.fixture
def tally(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tally:
    monkeypatch.setenv("TILEWRIGHT_STATE", str(tmp_path / "state"))
    repo = Repo.init(tmp_path / "repository")
    repo.git.execute(["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--allow-empty", "-qm", "x"])
    return Tally(Repository(tmp_path / "repository"), PurePosixPath("tasks/scale"))


def wrong(tally: Tally, backend: Backend, number: int) -> None:
    right = CaseCheck(case={"M": 0}, hidden=True, status=Status.PASSED)
    check = CaseCheck(case={"M": number}, hidden=True, values=Values.SPIKE, status=Status.WRONG_VALUES)
    result = CorrectnessResult(status=check.status, cases=[right, check])
    tally.note("a session", backend, "0" * 16, result.status, result.failed_on)


def test_wrong_results_are_counted_and_crashes_are_not(tally: Tally) -> None:
    for status in (Status.WRONG_VALUES, Status.NON_FINITE, Status.COMPILE_ERROR, Status.CRASHED, Status.PASSED):
        assert tally.note("check", Backend.CPU, "0" * 16, status) == ""
    assert (tally.wrong_results, tally.allowed) == (2, WRONG_RESULTS)
    assert used_up(24, 25) == "" and "tilewright session budget" in used_up(25, 25)
    assert tally.allow(40) == "" and tally.allowed == 40


def test_worktrees_and_copies_of_a_task_share_a_count_and_other_tasks_do_not(tally: Tally, tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repository")
    repo.git.worktree("add", str(tmp_path / "other"))
    for place, name in (("repository", "scale"), ("repository", "copy"), ("repository", "other"), ("other", "scale")):
        folder = tmp_path / place / "tasks" / name
        folder.mkdir(parents=True)
        (folder / "task.py").write_text("another" if name == "other" else "the task")
    tally = Tally(Repository(tmp_path / "repository"), PurePosixPath("tasks/scale"))
    tally.note("check", Backend.CPU, "0" * 16, Status.WRONG_VALUES)
    (tmp_path / "repository" / "tasks" / "scale" / "task.py").write_text("edited")
    for place, name, count in (
        ("repository", "scale", 1),
        ("other", "scale", 1),
        ("repository", "copy", 1),
        ("repository", "other", 0),
    ):
        assert Tally(Repository(tmp_path / place), PurePosixPath("tasks") / name).wrong_results == count, name


def test_what_failed_is_known_to_later_candidates_on_the_same_backend(tally: Tally) -> None:
    for number in range(KNOWN_FAILURES + 3):
        wrong(tally, Backend.CPU, number)
    wrong(tally, Backend.CUDA, 99)
    known = tally.known_failures(Backend.CPU)
    assert [run.case["M"] for run in known] == [*range(KNOWN_FAILURES + 2, 2, -1)]
    assert {run.values for run in known} == {Values.SPIKE}
    assert [run.case["M"] for run in tally.known_failures(Backend.CUDA)] == [99]


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


def test_a_line_that_was_cut_off_does_no_harm(tally: Tally) -> None:
    tally.note("check", Backend.CPU, "0" * 16, Status.WRONG_VALUES)
    with tally.path.open("a") as file:
        file.write('{"kind": "wro')
    assert tally.wrong_results == 1
    tally.note("check", Backend.CPU, "0" * 16, Status.WRONG_VALUES)
    assert tally.wrong_results == 2


def test_a_tally_that_cannot_be_written_says_so(tally: Tally) -> None:
    assert tally.why_unwritable() == ""
    tally.path.unlink()
    tally.path.mkdir()
    assert "cannot be written" in tally.why_unwritable()
    assert "cannot be written" in tally.note("check", Backend.CPU, "0" * 16, Status.WRONG_VALUES)
    assert tally.wrong_results == 0

"""Task files: what is read, and what the errors say."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.cases import Draw
from tilewright.evaluation.measurement import need_shapes
from tilewright.task import Backend, Task, TaskError, load_task, parse_task

ORIGIN = Path("task.toml")


def task_of(text: str) -> Task:
    return Task(parse_task(text, ORIGIN), Path())


def test_a_case_counts_by_its_weight(tmp_path: Path) -> None:
    cases = "[[cases]]\nN = 1\nweight = 3\n[[cases]]\nN = 2"
    file = parse_task(f'name = "a"\nentry = "k:f"\neditable = ["k.py"]\n{cases}', tmp_path)
    task = Task(file, tmp_path)
    assert [task.weight(case) for case in task.benchmark_cases(Backend.CUDA)] == [3.0, 1.0]
    for wrong in ("0", "-1", "inf", "nan", '"three"'):
        with pytest.raises(TaskError, match="weight"):
            parse_task(f'name = "a"\nentry = "k:f"\neditable = ["k.py"]\n{cases.replace("3", wrong)}', tmp_path)


def test_a_backend_uses_its_own_cases_where_it_has_any() -> None:
    task = task_of(SCALE_TOML)
    assert task.correctness_cases(Backend.CPU) == [{"N": 512, "dtype": "float32"}]
    assert task.correctness_cases(Backend.CUDA) == [{"N": 1048576, "dtype": "float32"}]
    assert task.benchmark_cases(Backend.CPU) == [{"N": 1048576, "dtype": "float32"}]


def test_every_example_is_a_valid_task(example_folders: list[Path]) -> None:
    assert [load_task(folder).name for folder in example_folders] == [
        "rmsnorm",
        "matmul",
        "rope",
        "layernorm",
        "softmax",
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('entry = "kernel:scale"', 'entri = "kernel:scale"', "entri: unknown key; did you mean 'entry'?"),
        ('entry = "kernel:scale"', "", "entry: missing"),
        ('entry = "kernel:scale"', 'entry = "kernel.scale"', "written module:function"),
        ('editable = ["kernel.py"]', 'editable = ["/x.py"]', "relative to task.toml's folder"),
        ('backend = "cpu"', 'backend = "gpu"', "cases[1].backend"),
        ("N = { min = 1, max = 700 }", "N = { min = 9, max = 8 }", "no multiple of 1 lies between 9 and 8"),
        ("N = { min = 1, max = 700 }", "M = { min = 1, max = 700 }", "hidden[0] draws ['M'], which no case has"),
        ("N = { min = 1, max = 700 }", "N = { minimum = 1 }", "minimum: unknown key; did you mean 'min'?"),
        ("N = 512", "M = 512", "cases[1] has keys ['M', 'dtype'], cases[0] has ['N', 'dtype']"),
        ("timeout_s = 20", "timeout_s = 0", "timeout_s"),
        ("timeout_s = 20", "deterministic = false", "needs deterministic_reason"),
        ("timeout_s = 20", 'frontend = "torch"\nlibrary_calls = "forbid"', "leaves nothing to a torch task"),
        ("timeout_s = 20", 'protection = "in-process"\nlibrary_calls = "forbid"', "needs what is replayed"),
        ("timeout_s = 20", 'library_calls = "deny"', "library_calls: must be 'allow' or 'forbid'"),
        ("timeout_s = 20", "rules = { luck = 0.1 }", "rules.luck: unknown key; known keys are accept, ceiling_percent"),
        ("timeout_s = 20", "rules = { accept = 2 }", "rules.accept: must be less than or equal to 1, not 2"),
        ("timeout_s = 20", "rules = { accept = nan }", "rules.accept: must be a finite number"),
        ("timeout_s = 20", "rules = { patience = 2.5 }", "rules.patience: must be a valid integer, not 2.5"),
        ("timeout_s = 20", 'values = { exclude = ["zeros"] }', "exclude needs reason"),
        ("timeout_s = 20", 'values = { exclude = ["drawn"], reason = "x" }', "without which nothing is checked"),
        ("timeout_s = 20", 'values = { exclude = ["zeroes"], reason = "x" }', "values.exclude[0]: must be"),
        ("timeout_s = 20", "strided = 3", "strided: must be a valid boolean"),
        ("timeout_s = 20", "timeout_s = ", "not valid TOML"),
        ("timeout_s = 20", 'timeout_s = "long"', "timeout_s: must be a valid number"),
        ('name = "scale"', 'name = "My Kernel"', "name: must match pattern"),
        ('editable = ["kernel.py"]', 'editable = "kernel.py"', "editable: must be a valid list"),
        ('entry = "kernel:scale"', 'entry = "kernel.py:scale"', "write kernel:scale"),
        ("N = 512", "N = [512]", "cases[1].N: must be a number, true or false, or a text, not [512]"),
        ("N = { min = 1, max = 700 }", "N = 700", "hidden[0].N: must be a valid dictionary, not 700"),
        ("timeout_s = 20", '[correctness]\ncommand = ["pytest"]\n[x]', "takes a native task"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_remedy(old: str, new: str, expected: str) -> None:
    assert old in SCALE_TOML
    with pytest.raises(TaskError) as error:
        parse_task(SCALE_TOML.replace(old, new), ORIGIN)
    assert expected in str(error.value)
    assert str(error.value).startswith("task.toml: ")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="no such task file"):
        load_task(tmp_path)
    (tmp_path / "task.toml").write_text(SCALE_TOML)
    with pytest.raises(TaskError, match=r"task\.py: missing"):
        load_task(tmp_path)
    (tmp_path / "task.py").write_text(SCALE_TASK)
    with pytest.raises(TaskError, match=r"editable: kernel\.py: no such file"):
        load_task(tmp_path)
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    assert load_task(tmp_path).name == "scale"
    (tmp_path / "task.toml").write_text(SCALE_TOML.replace('["kernel.py"]', '["task.py"]'))
    with pytest.raises(TaskError, match="cannot be edited by an experiment"):
        load_task(tmp_path)


@given(st.integers(0, 2**62), st.integers(1, 5))
def test_hidden_cases_lie_in_their_ranges_and_follow_from_the_seed(seed: int, count: int) -> None:
    task = task_of(SCALE_TOML)
    drawn = task.hidden_cases(Backend.CPU, seed, count)
    assert drawn == task.hidden_cases(Backend.CPU, seed, count)
    assert len(drawn) == count
    for case in drawn:
        assert isinstance(case["N"], int)
        assert 1 <= case["N"] <= 700
        assert case["dtype"] == "float32"


@given(st.integers(0, 10**6), st.integers(1, 10**4), st.integers(1, 64), st.randoms(use_true_random=False))
def test_a_draw_respects_its_bounds_and_multiple(low: int, width: int, multiple: int, source: random.Random) -> None:
    high = low + width + multiple
    for value in Draw(min=low, max=high, multiple_of=multiple).draw(4, source):
        assert isinstance(value, int)
        assert low <= value <= high
        assert value % multiple == 0


def test_hidden_sizes_spread_over_the_whole_range() -> None:
    task = task_of(SCALE_TOML)
    between = []
    for seed in range(200):
        sizes = sorted(int(case["N"]) for case in task.hidden_cases(Backend.CPU, seed, 5))
        assert sizes[0] == 1
        assert sizes[1] <= 9 <= sizes[2] <= 79 <= sizes[3] + 1
        assert sizes[4] == 700
        between += sizes[1:4]
    assert 0.6 < sum(size % 2 for size in between) / len(between) < 0.9


def two_sizes(size: int, hidden: str) -> Task:
    text = SCALE_TOML[: SCALE_TOML.index("[hidden]")]
    for known in (1048576, 512):
        text = text.replace(f"N = {known}\n", f"N = {size}\nM = {size}\n")
    return task_of(f"{text}[hidden]\nN = {{ min = 1, max = 700 }}\nM = {hidden}\n")


@given(st.integers(0, 2**62))
def test_a_large_case_has_every_choice_and_is_odd_where_it_can_be(seed: int) -> None:
    task = two_sizes(5000, "{ choices = [512, 1000, 4096] }")
    drawn = task.large_cases(Backend.CPU, seed)
    assert sorted(int(case["M"]) for case in drawn) == [512, 1000, 4096]
    assert all(2500 <= int(case["N"]) <= 5000 and int(case["N"]) % 2 for case in drawn), "as large as what is timed"
    assert all(task.draws(Backend.CPU, case) for case in drawn)


@pytest.mark.parametrize("size", [1, 20, 176, 351, 700])
def test_a_large_case_is_no_larger_than_what_the_task_itself_names(size: int) -> None:
    for seed in range(50):
        (case,) = two_sizes(size, "{ min = 1, max = 700 }").large_cases(Backend.CPU, seed)
        assert size * size / 16 <= int(case["N"]) * int(case["M"]) <= size * size


def test_a_large_choice_drops_no_other() -> None:
    drawn = two_sizes(350, "{ choices = [64, 128, 40960, 5, 6] }").large_cases(Backend.CPU, 1)
    assert len({case["M"] for case in drawn}) == 4
    assert all(int(case["N"]) <= 350 for case in drawn)
    assert not task_of(SCALE_TOML.replace("{ min = 1, max = 700 }", "{ choices = [1, 2] }")).large_cases(Backend.CPU, 1)


@given(st.integers(-50, 50), st.integers(0, 60), st.integers(1, 16), st.randoms(use_true_random=False))
def test_large_values_lie_in_the_upper_half(low: int, width: int, multiple: int, source: random.Random) -> None:
    high = low + width + multiple
    top = high // multiple * multiple
    least = max(low, top // 2 - multiple + 1) if top > 0 else low
    for value in Draw(min=low, max=high, multiple_of=multiple).draw_large(4, 1.0, source):
        assert isinstance(value, int)
        assert least <= value <= high
        assert value % multiple == 0


@given(st.integers(1, 9), st.randoms(use_true_random=False))
def test_choices_are_taken_in_turn(count: int, source: random.Random) -> None:
    drawn = Draw(choices=["a", "b", "c"]).draw(count, source)
    assert len(drawn) == count
    assert max(drawn.count(value) for value in "abc") - min(drawn.count(value) for value in "abc") <= 1


def test_a_shape_that_follows_from_the_seed_cannot_be_measured() -> None:
    row = torch.empty(4, 8)
    need_shapes({"x": row, "n": 3}, {"x": torch.ones(4, 8), "n": 4})
    with pytest.raises(TaskError, match=r"'x' the shape \(4, 8\) for one seed and \(4, 9\) for another"):
        need_shapes({"x": row}, {"x": torch.ones(4, 9)})


def test_a_hidden_case_that_is_all_of_its_table_is_drawn_once() -> None:
    tables = "".join(f"\n[[hidden]]\nN = {{ choices = [{size}] }}\n" for size in (3, 5, 7, 9))
    drawn = task_of(SCALE_TOML.partition("[hidden]")[0] + tables).hidden_cases(Backend.CPU, 1, 4)
    assert [case["N"] for case in drawn] == [3, 5, 7, 9]


def test_of_many_hidden_tables_a_check_draws_some() -> None:
    tables = "".join(f"[[hidden]]\nN = {{ choices = [{size}] }}\n" for size in range(100, 140))
    task = task_of(SCALE_TOML.partition("[hidden]")[0] + tables)
    sizes = {seed: [case["N"] for case in task.hidden_cases(Backend.CUDA, seed, 4)] for seed in range(20)}
    assert {len(drawn) for drawn in sizes.values()} == {4}
    assert len({size for drawn in sizes.values() for size in drawn}) > 20, "others from check to check"
    assert len(task.large_cases(Backend.CUDA, 1)) <= 8
    assert len(task.wide_cases(Backend.CUDA, 1, 36)) == 36

"""Command tasks: what their file may say, and where their modules are imported from."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.commandtask import CommandTask, editable_of, load, parse_command_task, workplace_of
from tilewright.task import Task, TaskError, load_task

TOML = """
name = "layer_norm"
editable = ["src/ops/layer_norm.py"]

[correctness]
command = ["python", "-m", "pytest", "tests/ops/test_layer_norm.py", "--junitxml={junit}"]

[benchmark]
command = ["python", "-m", "pytest", "tests/ops/test_layer_norm.py", "-k", "test_perf", "--junitxml={junit}"]
property = "benchmark"
pattern = "'median': (?P<ms>[0-9.]+)"
"""
ORIGIN = Path("task.toml")


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def test_the_form_in_the_readme_is_read() -> None:
    found = parse_command_task(TOML, ORIGIN)
    assert (found.benchmark.property, found.benchmark.file) == ("benchmark", "")
    assert found.correctness.timeout_s == 300
    assert parse_command_task(f"{TOML}[rules]\naccept = 0.1", ORIGIN).rules.accept == 0.1


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("property =", "propertie =", "did you mean 'property'"),
        (
            'property = "benchmark"',
            'property = "benchmark"\n[rules]\nluck = 1',
            "rules.luck: unknown key; known keys are accept",
        ),
        ("'median': (?P<ms>[0-9.]+)", "(?P<ms>", "pattern is no regular expression"),
        ("?P<ms>", "", "pattern needs one group named ms, us, ns or s"),
        ("(?P<ms>", "(?P<us>)(?P<ms>", "pattern needs one group named ms, us, ns or s"),
        ('property = "benchmark"', 'property = "benchmark"\nfile = "a.csv"', "give one of property and file"),
        ('property = "benchmark"', 'file = "../a.csv"', "stays inside it"),
        (', "-k", "test_perf", "--junitxml={junit}"', "", "add --junitxml={junit} to the command"),
        ('["src/ops/layer_norm.py"]', '["../layer_norm.py"]', "stays inside it"),
        ('["src/ops/layer_norm.py"]', '["tests/ops/test_layer_norm.py"]', "an experiment that edits it judges itself"),
        ('["src/ops/layer_norm.py"]', "[]", "editable: must have at least 1 item"),
        ("[correctness]", "[correctnes]", "correctness: missing"),
    ],
)
def test_a_wrong_file_is_refused_with_key_and_remedy(old: str, new: str, expected: str) -> None:
    assert old in TOML
    with pytest.raises(TaskError) as error:
        parse_command_task(TOML.replace(old, new), ORIGIN)
    assert expected in str(error.value)
    assert str(error.value).startswith("task.toml: ")


@pytest.mark.parametrize(
    ("editable", "packages", "expected"),
    [
        (["src/ops/layer_norm.py"], ["src/ops/__init__.py"], ["src"]),
        (["src/space/ops/layer_norm.py"], [], ["src"]),  # a namespace package
        (["lib/python/ops/a.py"], ["lib/python/ops/__init__.py"], ["lib/python"]),
        (["ops/a.py", "ops/deep/b.py"], ["ops/__init__.py", "ops/deep/__init__.py"], ["."]),
        (["kernels/a.py"], [], ["."]),
        (["src/a/k.py", "other/k.py"], ["src/a/__init__.py", "other/__init__.py"], ["src", "."]),
    ],
)
def test_modules_are_imported_from_where_their_outermost_package_lies(
    tmp_path: Path, editable: list[str], packages: list[str], expected: list[str]
) -> None:
    write(tmp_path, *editable, *packages)
    text = TOML.replace('["src/ops/layer_norm.py"]', str(editable))
    assert CommandTask(parse_command_task(text, ORIGIN), tmp_path).import_roots() == expected


def test_import_roots_that_are_given_are_taken(tmp_path: Path) -> None:
    write(tmp_path, "src/ops/layer_norm.py", "tools/x.py")
    (tmp_path / "task.toml").write_text(TOML.replace("\n[corr", 'python_path = ["tools", "src"]\n[corr'))
    task = load(tmp_path)
    assert isinstance(task, CommandTask)
    assert task.import_roots() == ["tools", "src"]
    (tmp_path / "task.toml").write_text(TOML.replace("\n[corr", 'python_path = ["elsewhere"]\n[corr'))
    with pytest.raises(TaskError, match="python_path: elsewhere: no such folder"):
        load(tmp_path)


def test_paths_are_relative_to_the_root_that_is_named(tmp_path: Path) -> None:
    write(tmp_path, "src/ops/layer_norm.py", "perf/ln/task.toml")
    (tmp_path / "perf/ln/task.toml").write_text(TOML.replace("\nedit", '\nroot = "../.."\nedit'))
    task = load(tmp_path / "perf/ln")
    assert workplace_of(task, PurePosixPath("perf/ln")) == PurePosixPath(".")
    assert editable_of(task, PurePosixPath("perf/ln")) == ["src/ops/layer_norm.py"]
    with pytest.raises(TaskError, match="lies outside the repository"):
        workplace_of(task, PurePosixPath("ln"))


def test_either_kind_of_task_is_loaded_and_what_needs_a_native_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(SCALE_TOML)
    (tmp_path / "task.py").write_text(SCALE_TASK)
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    assert isinstance(load(tmp_path), Task)
    write(tmp_path, "attached/src/ops/layer_norm.py")
    (tmp_path / "attached/task.toml").write_text(TOML)
    assert isinstance(load(tmp_path / "attached"), CommandTask)
    with pytest.raises(TaskError, match="takes a native task"):
        load_task(tmp_path / "attached")
    with pytest.raises(TaskError, match="no such task file"):
        load(tmp_path / "nowhere")


def test_a_native_tasks_editable_file_may_lie_beside_its_folder_but_not_outside_the_repository() -> None:
    from tilewright.task import parse_task

    file = parse_task(SCALE_TOML.replace('["kernel.py"]', '["../pkg/ops.py"]'), ORIGIN)
    assert editable_of(Task(file, Path("perf")), PurePosixPath("perf")) == ["pkg/ops.py"]
    with pytest.raises(TaskError, match="lies outside the repository"):
        editable_of(Task(file, Path()), PurePosixPath("."))


def test_tests_of_a_native_task_run_inside_the_repository() -> None:
    from tilewright.task import parse_task

    file = parse_task(f'{SCALE_TOML}\n[tests]\ncommand = ["pytest"]\n', ORIGIN)
    assert editable_of(Task(file, Path("perf/scale")), PurePosixPath("perf/scale")) == ["perf/scale/kernel.py"]
    with pytest.raises(TaskError, match=r"tests: root = '\.\./\.\.' lies outside the repository"):
        editable_of(Task(file, Path("scale")), PurePosixPath("scale"))

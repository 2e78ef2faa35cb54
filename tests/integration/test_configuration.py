"""The defaults of a repository, in `[tool.tilewright]` of its pyproject.toml."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.forging import of_kind, records
from tilewright.configuration import configuration_of
from tilewright.errors import UsageError
from tilewright.task import Backend

FILE = """
[tool.tilewright]
task = "task"
backend = "cpu"
rules = { session_error = 0.2, regression = 0.4, max_iterations = 3 }
"""


def test_a_session_begins_with_the_defaults_of_the_file(make_task: Callable[..., Path]) -> None:
    root = make_task()
    assert "`tilewright session start` needs task: " in tilewright("session", "start", cwd=root).stderr
    (root / "pyproject.toml").write_text(FILE)
    assert tilewright("check", cwd=root).stdout.startswith("nothing found")
    started = tilewright("session", "start", "--rules", "regression=0.005", "--json", cwd=root / "task")
    assert started.returncode == 0, started.stderr
    of_session = of_kind(records(root), "started")
    assert (of_session["task"], of_session["backend"]) == ("task", "cpu")
    rules = of_session["rules"]
    assert (rules["session_error"], rules["regression"], rules["max_iterations"]) == (0.2, 0.005, 3)
    answer = json.loads(started.stdout)
    eased = "session_error = 0.2 instead of 0.05"
    assert f"rules that decide were eased by an argument: {eased}" in answer["notes"]
    for file in ("report.md", "perf_results.md"):
        assert f"eased: {eased}" in (root / "sandbox" / file).read_text(), file
    assert "max_iterations = 3 (default 25)" in " ".join(tilewright("session", "status", cwd=root).stdout.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[tool.tilewright]\nbakend = "cpu"', "[tool.tilewright] bakend: unknown key; did you mean 'backend'?"),
        (
            '[tool.tilewright]\nbackend = "gpu"',
            "[tool.tilewright] backend: must be 'auto', 'cuda' or 'cpu', not \"gpu\"",
        ),
        (
            "[tool.tilewright.rules]\npatience = 0",
            "[tool.tilewright] rules.patience: must be greater than or equal to 1, not 0",
        ),
        ("[tool]\ntilewright = 3", "[tool.tilewright] must be a valid dictionary, not 3"),
        ("[tool.tilewright]\ntask = 3", "[tool.tilewright] task: must be a valid string, not 3"),
    ],
)
def test_a_wrong_key_or_value_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        configuration_of(tmp_path)
    assert str(caught.value) == f"pyproject.toml: {words}"


def test_a_file_without_the_table_sets_nothing(tmp_path: Path) -> None:
    for text in ("", "[project]\nname = 'x'\n[tool.ruff]\nline-length = 100\n"):
        (tmp_path / "pyproject.toml").write_text(text)
        assert configuration_of(tmp_path).device is None
        assert not configuration_of(tmp_path).task
    (tmp_path / "pyproject.toml").write_text(FILE)
    assert configuration_of(tmp_path).device is Backend.CPU
    (tmp_path / "pyproject.toml").write_text("[[[")
    with pytest.raises(UsageError, match=r"^pyproject\.toml cannot be read: "):
        configuration_of(tmp_path)

"""Runs of a repository's commands: a checkout that inherits nothing, an environment of its own, and no survivors."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.conftest import commit_all, git
from tests.stage import running
from tilewright.evaluation.results import Status
from tilewright.gpu.lease import GpuBusy
from tilewright.harness import commands, referee
from tilewright.harness.commands import Place, Ran, fresh_copy, isolation_here, read_result, run
from tilewright.isolation.confinement import python_folders
from tilewright.repository import Repository
from tilewright.task import Backend


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshot"
    (folder / "tests").mkdir(parents=True)
    (folder / "kernel.py").write_text("one")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "profile_run.log").write_text("latency 0.1")
    return folder


def test_a_version_is_the_same_before_every_run(snapshot: Path, tmp_path: Path) -> None:
    into = tmp_path / "checkout"
    for _ in range(2):
        fresh_copy(snapshot, into)
        assert sorted(path.relative_to(into).as_posix() for path in into.rglob("*")) == [
            "kernel.py", "profile_run.log", "pytest.ini", "run.sh", "tests",
        ]  # fmt: skip
        assert (into / "kernel.py").read_text() == "one"
        assert os.access(into / "run.sh", os.X_OK)
        (into / "conftest.py").write_text("evil")
        (into / "kernel.py").unlink()
        (into / "tests").rmdir()
        (into / "tests").symlink_to("/etc")
    assert (snapshot / "kernel.py").read_text() == "one"


@pytest.mark.parametrize(
    ("name", "text", "stops"),
    [
        ("pytest.ini", "", False),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", False),
        ("pyproject.toml", 'test = ["pytest"]\n', True),
        ("setup.cfg", "[tool:pytest]\n", False),
        ("pyproject.toml", "[project]\n", True),
    ],
)
def test_pytest_looks_for_its_settings_no_further_up(tmp_path: Path, name: str, text: str, stops: bool) -> None:
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / name).write_text(text)
    fresh_copy(tmp_path / "snapshot", tmp_path / "arm")
    assert (tmp_path / "arm" / name).read_text() == text
    assert (tmp_path / "arm/pytest.ini").exists() == (stops or name == "pytest.ini")


def shell(tmp_path: Path, script: str, extra: Mapping[str, str] | None = None, timeout_s: float = 60) -> Ran:
    """Run a Python program with `x = 1` beside it, as a command of a task would be."""
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    for folder in (root, scratch):
        folder.mkdir(exist_ok=True)
    (root / "beside.py").write_text("x = 1\n")
    place = Place(root, root, scratch, tmp_path / "tree")
    return run(["python", "-c", script], place, timeout_s, variables=extra)


def test_a_run_gets_a_clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTEST_ADDOPTS", "PYTHONPATH", "PYTHONSTARTUP", "LD_PRELOAD", "CUDA_INJECTION64_PATH", "SECRET"):
        monkeypatch.setenv(name, "/nowhere/evil.so" if name != "PYTEST_ADDOPTS" else "-p evil")
    found = shell(tmp_path, "import os; print(sorted(os.environ))", {"MY_BACKEND": "cutile"})
    assert found.status == 0
    assert "MY_BACKEND" in found.stdout
    assert not any(name in found.stdout for name in ("ADDOPTS", "STARTUP", "PRELOAD", "INJECTION", "SECRET"))
    there = shell(tmp_path, "import os, beside; print(os.environ['HOME'], beside.__file__)")
    assert there.stdout.split() == [str(tmp_path / "scratch"), str(tmp_path / "root/beside.py")]


def test_a_run_reads_nothing_of_the_working_tree_and_writes_nowhere_else(tmp_path: Path) -> None:
    if "Landlock" not in str(isolation_here(None, tmp_path)):
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/kernel.py").write_text("x = 2\n")
    found = shell(tmp_path, f"open({str(tmp_path / 'tree/kernel.py')!r})")
    assert (found.status, "PermissionError" in found.stderr) == (1, True)
    outside = shell(tmp_path, f"open({str(tmp_path / 'note')!r}, 'w')")
    assert (outside.status, "PermissionError" in outside.stderr) == (1, True)
    assert not (tmp_path / "note").exists()
    network = shell(tmp_path, "import socket; socket.create_connection(('127.0.0.1', 9))")
    assert (network.status, "PermissionError" in network.stderr) == (1, True)


def test_a_run_that_takes_too_long_is_ended_with_all_below_it(tmp_path: Path) -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(617)']); "
    found = shell(tmp_path, script + "print('there', flush=True); time.sleep(617)", timeout_s=6)
    assert found.timed_out
    assert found.stdout == "there\n"
    assert not running("time.sleep(617)")


def test_how_a_run_ended_is_told(tmp_path: Path) -> None:
    assert shell(tmp_path, "raise SystemExit(3)").ended == "exited with status 3"
    killed = shell(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (killed.status, killed.ended) == (None, "was killed by SIGSEGV")


def test_results_are_read_from_plain_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_result(tmp_path / "out") is None
    (tmp_path / "out").write_text("fresh")
    assert read_result(tmp_path / "out") == "fresh"
    monkeypatch.setattr(commands, "RESULT_LIMIT", 2)
    with pytest.raises(ValueError, match="larger than"):
        read_result(tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(ValueError, match="no plain file"):
            read_result(tmp_path / name)


def test_of_pythons_path_nothing_below_the_working_tree_is_readable_but_the_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    monkeypatch.setattr(sys, "path", [str(tree / "src"), str(tree / ".venv/lib"), str(tmp_path / "other")])
    monkeypatch.setattr(sys, "prefix", str(tree / ".venv"))
    folders = python_folders(tree)
    assert tree / "src" not in folders
    assert {tree / ".venv", tree / ".venv/lib", tmp_path / "other"} <= set(folders)
    assert tree / "src" in python_folders()


def test_settings_of_pytest_above_the_checkouts_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit('from above')\n")
    (tmp_path / "snapshot/tests").mkdir(parents=True)
    (tmp_path / "snapshot/tests/test_it.py").write_text("def test_it(): ...\n")
    (tmp_path / "scratch").mkdir()
    root = tmp_path / "checkout"
    fresh_copy(tmp_path / "snapshot", root)
    words = ["python", "-m", "pytest", "-p", "no:hypothesispytest", "tests"]
    place = Place(root, root, tmp_path / "scratch")
    found = run(words, place, 60)
    assert (found.status, "1 passed" in found.stdout) == (0, True), found.last_words


def test_a_whole_commit_holds_its_submodules_at_the_commits_that_it_names(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder, text in ((inner, "first"), (outer, "outer")):
        folder.mkdir()
        (folder / "file.txt").write_text(text)
        commit_all(folder)
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(inner), "third_party/inner")
    commit_all(outer, "submodule")
    (inner / "file.txt").write_text("second")
    commit_all(inner, "second")
    git(outer / "third_party/inner", "pull", "--quiet")
    repository = Repository(outer)
    whole = repository.whole(repository.head())
    assert whole["file.txt"] == b"outer"
    assert whole["third_party/inner/file.txt"] == b"first"
    assert repository.changed(repository.head()) == ["third_party/inner"]


@pytest.mark.parametrize("error", [GpuBusy("process 7 has the GPU"), OSError("the disk is gone")])
def test_what_stops_a_request_is_void_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def lease(*_: object) -> None:
        raise error

    monkeypatch.setattr(referee, "lease", lease)
    harness = referee.HarnessReferee(Backend.CPU, tmp_path, lambda _: None)
    harness._gpu = cast(Any, SimpleNamespace(uuid="GPU-7"))
    for request in (harness.correctness, harness.benchmark):
        result = request({"limit_s": 60.0, "arms": []})["result"]
        assert (result["status"], result["message"]) == (Status.VOID, str(error))

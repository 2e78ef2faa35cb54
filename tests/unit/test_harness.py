"""Runs of a repository's commands: a checkout that inherits nothing, an environment of its own, and no survivors."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import commit_all, git
from tests.stage import running
from tilewright.harness.checkouts import Checkout, Spoiled
from tilewright.harness.commands import Place, Ran, environment_of, isolation_here, read_result, run
from tilewright.harness.surroundings import startup_files
from tilewright.harness.watching import Watch
from tilewright.isolation.confinement import python_folders
from tilewright.repository import Repository


def tree(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def arms(tmp_path: Path) -> tuple[Path, Checkout]:
    """A baseline, and an arm of it with another kernel; gives the arm's folder and checkout."""
    for name, kernel in (("baseline", "one"), ("arm", "two")):
        folder = tmp_path / name
        (folder / "tests").mkdir(parents=True)
        (folder / "kernel.py").write_text(kernel)
        (folder / "tests/test_it.py").write_text("test")
        (folder / "run.sh").write_text("#!/bin/sh\n")
        (folder / "profile_run.log").write_text("latency 0.1")
    arm = tmp_path / "arm"
    return arm, Checkout(arm, Checkout(tmp_path / "baseline"), ["kernel.py"], [arm / "profile_run.log"])


def test_a_checkout_is_the_same_before_every_run(arms: tuple[Path, Checkout]) -> None:
    arm, checkout = arms
    before = tree(arm)
    assert before["pytest.ini"] == "[pytest]\n"
    assert "profile_run.log" not in before, "a result that was committed is not this run's"
    assert os.access(arm / "run.sh", os.X_OK)

    (arm / "conftest.py").write_text("evil")
    (arm / "tests/test_it.py").write_text("pass")
    (arm / "kernel.py").unlink()
    (arm / "cache/deep").mkdir(parents=True)
    (arm / "cache/deep/file").write_text("x")
    (arm / "link").symlink_to("/etc/passwd")
    (arm / "profile_run.log").write_text("latency 0.001")
    os.utime(arm / "tests/test_it.py", ns=(0, 0))
    checkout.renew()
    assert tree(arm) == before
    assert not (arm / "link").is_symlink()
    checkout.renew()
    assert tree(arm) == before


def test_a_folder_that_was_replaced_or_closed_comes_back(arms: tuple[Path, Checkout]) -> None:
    arm, checkout = arms
    before = tree(arm)
    (arm / "tests").rename(arm / "elsewhere")
    (arm / "tests").symlink_to(arm / "elsewhere")
    checkout.renew()
    assert tree(arm) == before
    (arm / "tests").chmod(0)
    checkout.renew()
    assert tree(arm) == before


def test_the_baseline_that_files_are_restored_from_must_be_untouched(arms: tuple[Path, Checkout]) -> None:
    arm, checkout = arms
    (arm / "tests/test_it.py").write_text("pass")
    (arm.parent / "baseline/tests/test_it.py").write_text("pass")
    with pytest.raises(Spoiled, match=r"tests/test_it\.py of the baseline"):
        checkout.renew()


@pytest.mark.parametrize(
    ("name", "text", "stops"),
    [
        ("pytest.ini", "", False),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", False),
        ("setup.cfg", "[tool:pytest]\n", False),
        ("pyproject.toml", "[project]\n", True),
    ],
)
def test_pytest_looks_for_its_settings_no_further_up(tmp_path: Path, name: str, text: str, stops: bool) -> None:
    for folder in ("baseline", "arm"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    Checkout(tmp_path / "arm", Checkout(tmp_path / "baseline"))
    assert (tmp_path / "arm" / name).read_text() == text
    assert (tmp_path / "arm/pytest.ini").exists() == (stops or name == "pytest.ini")


def shell(tmp_path: Path, script: str, extra: Mapping[str, str] | None = None, timeout_s: float = 60) -> Ran:
    """Run a Python program with `x = 1` beside it, as a command of a task would be."""
    root, scratch = tmp_path / "root", tmp_path / "scratch"
    for folder in (root, scratch):
        folder.mkdir(exist_ok=True)
    (root / "beside.py").write_text("x = 1\n")
    place = Place(root, root, scratch, tmp_path / "tree")
    return run(["python", "-c", script], place, environment_of(scratch, [root], extra or {}), timeout_s)


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
    much = shell(tmp_path, "import sys; sys.stdout.write('x' * (17 * 2**20))")
    assert (much.status, much.ended) == (None, "printed more than 16 MiB")


def test_results_are_read_from_plain_files_of_the_run_alone(tmp_path: Path) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old/out").write_text("stale")
    assert read_result(run_folder / "out", run_folder, 100) is None
    (run_folder / "out").write_text("fresh")
    assert read_result(run_folder / "out", run_folder, 100) == "fresh"
    with pytest.raises(ValueError, match="larger than"):
        read_result(run_folder / "out", run_folder, 2)
    (run_folder / "link").symlink_to(tmp_path / "old/out")
    with pytest.raises(ValueError, match="cannot be read"):
        read_result(run_folder / "link", run_folder, 100)
    (run_folder / "below").symlink_to(tmp_path / "old")
    with pytest.raises(ValueError, match="leads out of the run's folder"):
        read_result(run_folder / "below/out", run_folder, 100)
    os.mkfifo(run_folder / "pipe")
    with pytest.raises(ValueError, match="no plain file"):
        read_result(run_folder / "pipe", run_folder, 100)


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
    for name in ("baseline", "arm"):
        (tmp_path / name / "tests").mkdir(parents=True)
        (tmp_path / name / "tests/test_it.py").write_text("def test_it(): ...\n")
    (tmp_path / "scratch").mkdir()
    arm = Checkout(tmp_path / "arm", Checkout(tmp_path / "baseline"))
    words = ["python", "-m", "pytest", "-p", "no:hypothesispytest", "tests"]
    place = Place(arm.root, arm.root, tmp_path / "scratch")
    found = run(words, place, environment_of(tmp_path / "scratch", [arm.root], {}), 60)
    assert (found.status, "1 passed" in found.stdout) == (0, True), found.last_words


def test_what_is_opened_is_seen_from_outside(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    watch, both = Watch(), [tmp_path / "a.py", tmp_path / "b.py"]
    with watch.over(both):
        assert watch.unopened() == both
        subprocess.run([sys.executable, "-B", "-c", "import a"], cwd=tmp_path, check=True)
        assert watch.unopened() == [tmp_path / "b.py"]
        (tmp_path / "b.py").read_text()  # seen by nobody: the period ends
    (tmp_path / "a.py").read_text()
    with watch.over(both):
        assert watch.unopened() == both, "what was opened before or between two periods is not of the second"
        (tmp_path / "b.py").unlink()
    (tmp_path / "b.py").write_text("x = 2\n")
    with watch.over(both):
        (tmp_path / "b.py").read_text()
        assert watch.unopened() == [tmp_path / "a.py"]
    with pytest.raises(OSError, match="inotify"), watch.over([tmp_path / "a.py", tmp_path / "gone.py"]):
        pass
    with watch.over([tmp_path / "a.py"]):
        for _ in range(40_000):  # more than the queue holds, and alike: the kernel makes one of them
            (tmp_path / "a.py").open().close()
    with watch.over(both):
        (tmp_path / "b.py").read_text()
        assert watch.unopened() == [tmp_path / "a.py"]
    watch.close()


def test_a_path_file_that_python_loads_unasked_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "tree/src")])
    (tmp_path / "site").mkdir()
    (tmp_path / "tree/src").mkdir(parents=True)
    before = startup_files(tmp_path / "tree")
    (tmp_path / "tree/src/torch.py").write_text("")
    assert startup_files(tmp_path / "tree") == before
    (tmp_path / "site/evil.pth").write_text("import os")
    changed = startup_files(tmp_path / "tree")
    assert {name for name in changed if changed[name] != before.get(name)} == {
        str(tmp_path / "site/evil.pth"),
        f"the names in {tmp_path / 'site'}",
    }
    (tmp_path / "site/evil.pth").write_text("import sys")
    assert startup_files(tmp_path / "tree") != changed


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

"""What a session says where the machine cannot confine a worker: nothing is less protected without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL
from tests.stage import edit, journal_of

ROOT = Path(__file__).parents[2]


def tilewright(root: Path, call: str, *arguments: str) -> tuple[int, str]:
    """What the command ends with and says, on a kernel without `call`."""
    command = [sys.executable, "-m", "tests.older_kernel", call, sys.executable, "-m", "tilewright", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("call", ["landlock", "seccomp"])
def test_a_session_on_a_machine_that_confines_nothing_is_refused(make_task: Callable[..., Path], call: str) -> None:
    root = make_task()
    status, text = tilewright(root, call, "start-session", "task", "--backend", "cpu")
    assert status == 2
    assert "cannot confine a candidate's code" in text and "--unconfined" in text
    assert not (root / "sandbox").exists()


@pytest.mark.slow
def test_a_session_that_confines_nothing_by_wish_says_so(make_task: Callable[..., Path]) -> None:
    root, call = make_task(), "landlock"
    status, text = tilewright(root, call, "start-session", "task", "--backend", "cpu", "--unconfined")
    assert status == 0, text
    assert "[unconfined]" in text
    edit(root, FASTER_KERNEL)
    for command in (["run-correctness"], ["run-benchmark"], ["git-checkpoint"], ["append-result", "large tiles"]):
        status, text = tilewright(root, call, *command)
        assert status == 0, text
        assert "[unconfined]" in text
    assert "large tiles [unconfined]" in (root / "sandbox" / "perf_results.md").read_text()
    assert "unconfined" in tilewright(root, call, "verify")[1]
    edit(root, FASTER_KERNEL + "\n")
    status, text = tilewright(root, "nothing", "run-correctness")  # as in another container
    assert status == 2 and "when the session began" in text
    started = json.loads(journal_of(root).read_text().splitlines()[0])["data"]
    assert not started["environment"]["confined"]


@pytest.mark.parametrize("command", [["check", "task"], ["dump-ir", "task"], ["autotune", "task", "--backend", "cpu"]])
@pytest.mark.slow
def test_a_tool_that_needs_no_session_is_refused_too(make_task: Callable[..., Path], command: list[str]) -> None:
    status, text = tilewright(make_task(), "landlock", *command)
    assert status == 2, text
    assert "cannot confine a candidate's code" in text and "TILEWRIGHT_UNCONFINED=1" in text


def test_a_person_may_let_a_tool_that_needs_no_session(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_UNCONFINED", "1")
    status, text = tilewright(make_task(), "landlock", "check", "task")
    assert (status, "nothing found" in text) == (0, True), text

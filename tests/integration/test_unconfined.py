"""What a session says where the machine cannot confine a worker: nothing is less protected without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_TOML
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
    status, text = tilewright(root, call, "session", "start", "task", "--backend", "cpu")
    assert status == 2
    assert "cannot confine a candidate's code" in text and "TILEWRIGHT_UNCONFINED=1" in text
    assert not (root / "sandbox").exists()


ENDS = """
import os, socket, subprocess, sys
from pathlib import Path
from types import ModuleType
from tilewright.harness import commands
from tilewright.isolation.fork_server import ForkServer

try:
    os.pidfd_open(os.getpid())
except OSError:
    print("no pidfd")
place = commands.Place(*[Path.cwd()] * 3, None)
for words, limit in ((["true"], 60), (["sh", "-c", "exit 3"], 60), (["sleep", "60"], 0.2)):
    print(commands.run(words, place, limit).ended)
def main(channel):
    sys.exit(int(channel.recv(1)))
code = sys.modules["ending"] = ModuleType("ending")
code.main, code.get_ready = main, str
server = ForkServer.forked("ending", "")
ours, theirs = socket.socketpair()
worker = server.start(theirs, [], os.environ, Path.cwd())
print(worker.poll())
ours.send(b"7")
print(worker.wait(60), worker.poll())
theirs.close(), server.close()
supervisor = [sys.executable, "-I", "-m", "tilewright.isolation.supervisor", "sh", "-c", "exit 5"]
environment = os.environ | {"TILEWRIGHT_FOLDER": "nowhere"}
print(subprocess.Popen(supervisor, stdin=subprocess.PIPE, env=environment).wait())  # its input stays open
"""


@pytest.mark.parametrize("call", ["pidfd", "nothing"])
def test_the_end_of_a_process_is_seen_without_a_handle_of_it(tmp_path: Path, call: str) -> None:
    command = [sys.executable, "-m", "tests.older_kernel", call, sys.executable, "-u", "-c", ENDS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout.splitlines()
    assert said == ["no pidfd"] * (call == "pidfd") + [
        "exited with status 0", "exited with status 3", "did not end in time", "None", "7 7", "5",
    ], done.stderr  # fmt: skip


@pytest.mark.slow
def test_a_session_needs_no_handles_of_processes(make_task: Callable[..., Path]) -> None:
    root, call = make_task(), "pidfd"
    for command in (
        ["session", "start", "task", "--backend", "cpu"],
        ["run-correctness"],
        ["check", "task"],
        ["doctor"],
    ):
        if command[0] == "run-correctness":
            edit(root, FASTER_KERNEL)
        status, text = tilewright(root, call, *command)
        assert status == 0, text


@pytest.mark.slow
def test_a_session_that_confines_nothing_by_wish_says_so(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, call = make_task(), "landlock"
    monkeypatch.setenv("TILEWRIGHT_UNCONFINED", "1")
    status, text = tilewright(root, call, "session", "start", "task", "--backend", "cpu")
    assert status == 0, text
    assert "[unconfined]" in text
    edit(root, FASTER_KERNEL)
    for command in (["run-correctness"], ["run-benchmark"], ["git-checkpoint"], ["append-result", "large tiles"]):
        status, text = tilewright(root, call, *command)
        assert status == 0, text
        assert "[unconfined]" in text
    assert "large tiles [unconfined]" in (root / "sandbox" / "perf_results.md").read_text()
    edit(root, FASTER_KERNEL + "\nOTHER = 1\n")
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
    status, text = tilewright(make_task(toml=SCALE_TOML.replace("1048576", "512")), "landlock", "check", "task")
    assert (status, "nothing found" in text) == (0, True), text

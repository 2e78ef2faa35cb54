"""compute-sanitizer on a program's replay: how it is run, and what its answer means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.compiler.tools import find_tool
from tilewright.errors import UsageError
from tilewright.profile.sanitizer import TOOLS, sanitized

SCRIPT = """#!/bin/sh
echo "$@" >> {log}
echo "========= COMPUTE-SANITIZER"
echo "isolation: all"
case "$2" in
memcheck) echo "========= Invalid __global__ read of size 4 bytes"; echo "========= ERROR SUMMARY: 3 errors";;
racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)";;
*) echo "{last}";;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "log"


def install(log: Path, last: str) -> None:
    script = log.with_name("compute-sanitizer")
    script.write_text(SCRIPT.format(log=log, last=last))
    script.chmod(0o755)


def test_each_tool_runs_the_replay_of_the_program(log: Path, tmp_path: Path) -> None:
    install(log, "========= ERROR SUMMARY: 0 errors")
    found = [*sanitized(tmp_path / "a.program")]
    assert [one[:2] for one in found] == [("memcheck", 3), ("racecheck", 0), ("synccheck", 0)]
    assert found[0][2] == "========= Invalid __global__ read of size 4 bytes\n========= ERROR SUMMARY: 3 errors"
    asked = log.read_text().splitlines()
    assert [line.split()[1] for line in asked] == [*TOOLS]
    assert all(line.endswith(f"-m tilewright.replay.once {tmp_path / 'a.program'}") for line in asked)


def test_a_tool_without_an_answer_is_no_all_clear(log: Path, tmp_path: Path) -> None:
    install(log, "Error: the driver is too old")
    with pytest.raises(UsageError, match=r"synccheck gave no answer: .*the driver is too old"):
        [*sanitized(tmp_path / "a.program")]


def test_that_it_is_not_installed_is_said_with_what_to_do(log: Path, tmp_path: Path) -> None:
    if find_tool("compute-sanitizer"):
        pytest.skip("it is installed among the system's commands")
    with pytest.raises(UsageError, match=r"compute-sanitizer is not installed: .*cuda-sanitizer"):
        [*sanitized(tmp_path / "a.program")]

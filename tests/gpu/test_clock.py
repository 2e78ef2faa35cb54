"""The clock of this machine, by programs of ours against themselves, and compute-sanitizer on one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tilewright.profile.counters import find_tool
from tilewright.programs.format import write
from tilewright.referee.clock import COPIED_MIB, copy_program
from tilewright.referee.replayer import Replayer

pytestmark = pytest.mark.gpu


def test_doctor_says_what_the_clock_resolves() -> None:
    done = tilewright("doctor", "--clock")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    print(*lines, sep="\n")
    assert len(lines) == len(COPIED_MIB)
    for line in lines:
        found = re.search(r"resolves ([\d.]+)%, in \d+ rounds", line)
        assert found is not None, line
        assert float(found[1]) < 5, line


def test_a_program_without_errors_is_sanitized(tmp_path: Path) -> None:
    if find_tool("compute-sanitizer") is None:
        pytest.skip("compute-sanitizer is not installed")
    with Replayer() as replayer:
        write(copy_program(replayer.start().arch, 1 << 20), tmp_path / "copy.program")
    done = tilewright("program", "replay", str(tmp_path / "copy.program"), "--sanitize")
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["memcheck:", "0", "errors", "racecheck:", "0", "errors", "synccheck:", "0", "errors"],
    ), done.stdout + done.stderr

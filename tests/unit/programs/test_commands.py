"""`tilewright program` on files, where there is no GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.unit.programs.made import OUT, clear, copied, fill, program
from tilewright.gpu.telemetry import find_gpu
from tilewright.programs.format import write
from tilewright.programs.identity import identity
from tilewright.programs.text import shown

ONE, OTHER = program([fill(OUT, 1), clear(), copied()]), program([fill(OUT, 2), clear(), copied()])


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    write(ONE, tmp_path / "one.program")
    write(OTHER, tmp_path / "other.program")
    return str(tmp_path / "one.program"), str(tmp_path / "other.program")


def test_a_program_is_shown(files: tuple[str, str]) -> None:
    done = tilewright("program", "show", files[0])
    assert (done.returncode, done.stdout.strip()) == (0, shown(ONE).strip())
    answer = json.loads(tilewright("program", "show", files[0], "--json").stdout)
    assert (answer["text"], answer["identity"]) == (shown(ONE), identity(ONE))


def test_a_file_that_is_no_program_is_named(tmp_path: Path, files: tuple[str, str]) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(Path(files[0]).read_bytes()[:-1])
    done = tilewright("program", "show", str(broken))
    assert done.returncode == 2
    assert "it is longer or shorter than its header says" in " ".join(done.stderr.split())
    assert tilewright("program", "show", str(tmp_path / "none")).returncode == 2


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU")
def test_a_replay_without_a_gpu_says_what_is_missing(files: tuple[str, str]) -> None:
    done = tilewright("program", "replay", files[0])
    assert done.returncode == 2
    assert "the replayer could not start" in " ".join(done.stderr.split())
    assert "tilewright doctor" in " ".join(done.stderr.split())

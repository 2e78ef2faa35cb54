"""What a fork server does once, so that none of its forks has to."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from cuda.tile._cext import default_tile_context

from tilewright.frontends.cutile import ahead

ASKS = """
import io, subprocess, tempfile
from cuda.tile import _compile as compiler
from cuda.tile._cext import default_tile_context
from cuda.tile.compilation import CallingConvention, KernelSignature, export_kernel
import cuda.tile as ct
from tilewright.frontends.cutile import ahead

ran, run = [], subprocess.run
def running(command, **options):
    ran.append(command)
    return run(command, **options)
subprocess.run = running
ahead.get_ready()
print(len(ran), "before")
ran.clear()
default_tile_context.config.temp_dir = tempfile.mkdtemp()
signature = KernelSignature([], CallingConvention.cutile_python_v1())
export_kernel(ct.kernel(ahead.nothing), [signature], io.BytesIO(), gpu_code="sm_90", output_format="cubin")
print([command[0].rpartition("/")[2] + " " + command[1].rpartition(".")[2] for command in ran])
"""


def test_a_process_that_is_ready_asks_the_compiler_for_nothing_but_a_cubin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["2 before", "['tileiras bytecode']"], done.stderr


def test_cutile_looks_where_its_files_go_in_the_process_that_runs_the_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = default_tile_context.config
    monkeypatch.setattr(config, "cache_dir", "another process's")
    monkeypatch.setattr(config, "temp_dir", "another process's")
    monkeypatch.setenv("CUDA_TILE_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ahead.begin()
    assert (config.cache_dir, config.temp_dir) == (str(tmp_path / "compiled"), str(tmp_path))


FORKS = """
import os, socket, sys
from pathlib import Path
from tilewright.frontends.cutile import CUTILE
from tilewright.isolation.fork_server import ForkServer

server = ForkServer.forked("tests.unit.frontends.fork", "")
server.get_ready(CUTILE.ahead)
for name in sys.argv[1:]:
    folder = Path(name)
    folder.mkdir()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        places = {"TMPDIR": name, "CUDA_TILE_CACHE_DIR": str(folder / "compiled")}
        fork = server.start(theirs, [], places, folder)
        assert fork.wait(60) == 0
    print(fork.stdout.read().decode(), end="")
server.close()
"""


def test_each_fork_of_a_process_that_is_ready_has_places_of_its_own(tmp_path: Path) -> None:
    folders = [str(tmp_path / "one"), str(tmp_path / "other")]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, *folders], capture_output=True, text=True, timeout=120, cwd=root
    )
    assert done.stdout.splitlines() == [f"{folder} {folder}/compiled" for folder in folders], done.stderr

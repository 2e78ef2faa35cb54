"""One process at a time holds a GPU, and holding it writes to no file but this user's own."""

from __future__ import annotations

import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tilewright.gpu import lease as leasing
from tilewright.gpu.lease import GpuBusy, lease, whose

HOLDER = """
import sys
from pathlib import Path
from tilewright.gpu import lease
lease.notes_folder = lambda: Path(sys.argv[2])
with lease.lease("GPU-1", 5, print, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands in for the GPU's device file; notes lie beside it."""
    monkeypatch.setattr(leasing, "notes_folder", lambda: tmp_path / "state" / "leases")
    (tmp_path / "nvidia0").touch(mode=0o444)
    return tmp_path / "nvidia0"


def holder(device: Path, notes: Path) -> subprocess.Popen[str]:
    """A process that holds the GPU until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(device), str(notes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_gpu_is_waited_for_and_its_holder_is_named(device: Path) -> None:
    told: list[str] = []
    with holder(device, leasing.notes_folder()) as process:
        with pytest.raises(GpuBusy, match=f"GPU-1 is in use by process {process.pid} since"):
            lease("GPU-1", 0, told.append, device).__enter__()
        assert not told
        assert process.stdin is not None
        threading.Timer(0.5, process.stdin.close).start()
        with lease("GPU-1", 10, told.append, device):
            pass
    assert [line.rpartition(" since")[0] for line in told] == [f"waiting for the GPU, in use by process {process.pid}"]


def test_who_holds_a_gpu_is_told_without_a_wait(device: Path) -> None:
    with holder(device, leasing.notes_folder()) as process:
        assert whose("GPU-1", device).startswith(f"process {process.pid} since")
        process.communicate()
    assert whose("GPU-1", device) == ""
    with lease("GPU-1", 0, print, device):
        pass


def test_it_is_held_against_other_users_who_are_not_named(device: Path, tmp_path: Path) -> None:
    with holder(device, tmp_path / "another user's") as process:
        with pytest.raises(GpuBusy, match="in use by another user's process"):
            lease("GPU-1", 0, print, device).__enter__()
        process.communicate()


def test_a_holder_that_was_killed_holds_nothing(device: Path, tmp_path: Path) -> None:
    with holder(device, leasing.notes_folder()) as process:
        process.kill()
    with holder(device, tmp_path / "another user's") as process:
        with pytest.raises(GpuBusy, match="in use by another user's process"):
            lease("GPU-1", 0, print, device).__enter__()
        process.communicate()


def test_a_gpu_whose_device_cannot_be_locked_is_held_among_one_users_processes(device: Path) -> None:
    missing = device.with_name("missing")
    with holder(missing, leasing.notes_folder()) as process:
        with pytest.raises(GpuBusy, match=f"process {process.pid}"):
            lease("GPU-1", 0, print, missing).__enter__()
        with lease("GPU-2", 0, print, missing):
            pass
        process.communicate()


def test_without_a_note_the_gpu_is_held_all_the_same(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "notes_folder", lambda: Path("/proc/nowhere"))
    with lease("GPU-1", 0, print, device), pytest.raises(GpuBusy, match="in use by another process"):
        lease("GPU-1", 0, print, device).__enter__()
    with pytest.raises(FileNotFoundError):
        lease("GPU-1", 0, print, device.with_name("missing")).__enter__()


def test_nothing_is_written_through_a_link(device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in a folder that all users share nor in this user's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    precious = tmp_path / "precious"
    precious.write_text("x")
    for link in (tmp_path / "tilewright-leases" / "GPU-1.json", leasing.notes_folder() / "GPU-1"):
        link.parent.mkdir(parents=True)
        link.symlink_to(precious)
    with lease("GPU-1", 0, print, device):
        assert precious.read_text() == "x"
    assert sorted(path.name for path in (tmp_path / "tilewright-leases").iterdir()) == ["GPU-1.json"]


def test_the_folder_is_the_users_and_no_child_has_the_lock(device: Path) -> None:
    with lease("GPU-1", 0, print, device):
        child = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True)
    assert "/proc/" in child.stdout
    assert str(device) not in child.stdout
    assert "GPU-1" not in child.stdout
    assert stat.S_IMODE(leasing.notes_folder().stat().st_mode) == 0o700
    assert (leasing.notes_folder() / "GPU-1").read_text() == ""

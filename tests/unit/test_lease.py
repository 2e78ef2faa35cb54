"""One process at a time holds a GPU."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright.gpu import lease as leasing
from tilewright.gpu.lease import GpuBusy, lease, whose

HOLDER = """
import sys
from pathlib import Path
from tilewright.gpu import lease
lease.locks_folder = lambda: Path(sys.argv[2])
with lease.lease("GPU-1", 5, print, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What stands in for the GPU's device file."""
    monkeypatch.setattr(leasing, "locks_folder", lambda: tmp_path / "state" / "leases")
    (tmp_path / "nvidia0").touch(mode=0o444)
    return tmp_path / "nvidia0"


def holder(device: Path) -> subprocess.Popen[str]:
    """A process that holds the GPU until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(device), str(leasing.locks_folder())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_held_gpu_is_waited_for_and_its_holder_is_named(device: Path) -> None:
    told: list[str] = []
    with holder(device) as process:
        with pytest.raises(GpuBusy, match=f"GPU-1 is in use by process {process.pid};"):
            lease("GPU-1", 0, told.append, device).__enter__()
        assert not told
        assert process.stdin is not None
        threading.Timer(0.5, process.stdin.close).start()
        with lease("GPU-1", 10, told.append, device):
            pass
    assert told == [f"waiting for the GPU, in use by process {process.pid}"]


def test_who_holds_a_gpu_is_told_without_a_wait(device: Path) -> None:
    with holder(device) as process:
        assert whose("GPU-1", device) == f"process {process.pid}"
        process.communicate()
    assert whose("GPU-1", device) == ""
    with lease("GPU-1", 0, print, device):
        pass


def test_a_holder_that_was_killed_holds_nothing(device: Path) -> None:
    with holder(device) as process:
        process.kill()
    with lease("GPU-1", 0, print, device):
        pass


def test_a_gpu_whose_device_cannot_be_locked_is_held_among_one_users_processes(device: Path) -> None:
    missing = device.with_name("missing")
    with holder(missing) as process:
        with pytest.raises(GpuBusy, match=f"process {process.pid}"):
            lease("GPU-1", 0, print, missing).__enter__()
        with lease("GPU-2", 0, print, missing):
            pass
        process.communicate()


def test_nothing_is_opened_through_a_link(device: Path, tmp_path: Path) -> None:
    link = leasing.locks_folder() / "GPU-1"
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"):
        lease("GPU-1", 0, print, device.with_name("missing")).__enter__()
    assert not (tmp_path / "precious").exists()


def test_no_child_has_the_lock(device: Path) -> None:
    with lease("GPU-1", 0, print, device):
        child = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, capture_output=True, text=True)
    assert "/proc/" in child.stdout
    assert str(device) not in child.stdout

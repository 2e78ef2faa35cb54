"""A module that runs confined: before it is imported, and at addresses that are the same in each process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROBE = """
import ctypes, json, os, threading
import numpy  # starts threads

LIBC = ctypes.CDLL(None)

def main(channel, isolation):
    held = threading.Event()
    threading.Thread(target=held.wait, daemon=True).start()
    threads = []
    for name in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{name}/status") as status:
            threads.append(next(line.split()[1] for line in status if line.startswith("Seccomp:")))
    where = ctypes.addressof(ctypes.c_int.in_dll(ctypes.pythonapi, "Py_OptimizeFlag")), LIBC.personality(0xFFFFFFFF)
    channel.sendall(json.dumps({"threads": threads, "where": where, "isolation": str(isolation)}).encode())
"""


def probed(folder: Path) -> dict[str, object]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = ["-m", "tilewright.isolation.confined", "fixed:probe", str(folder), str(theirs.fileno())]
        environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=environment,
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(ours.recv(65536))
        return found


def test_every_thread_is_confined_and_addresses_are_fixed(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    one, other = probed(tmp_path), probed(tmp_path)
    if "seccomp" in str(one["isolation"]):
        assert set(one["threads"]) == {"2"}  # type: ignore[call-overload]
        assert len(one["threads"]) >= 2  # type: ignore[arg-type]
    flags = one["where"][1]  # type: ignore[index]
    if flags & 0x0040000:
        assert one["where"] == other["where"]

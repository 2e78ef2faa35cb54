"""A module that runs confined before it is imported."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

PROBE = """
import json, os, threading
import numpy  # starts threads

def main(channel, isolation):
    held = threading.Event()
    threading.Thread(target=held.wait, daemon=True).start()
    threads = []
    for name in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{name}/status") as status:
            threads.append(next(line.split()[1] for line in status if line.startswith("Seccomp:")))
    channel.sendall(json.dumps({"threads": threads, "isolation": str(isolation)}).encode())
"""


def probed(folder: Path) -> dict[str, object]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = ["-m", "tilewright.isolation.confined", "probe", str(folder), str(theirs.fileno())]
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


def test_every_thread_is_confined(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    found = probed(tmp_path)
    if "seccomp" in str(found["isolation"]):
        assert set(found["threads"]) == {"2"}  # type: ignore[call-overload]
        assert len(found["threads"]) >= 2  # type: ignore[arg-type]

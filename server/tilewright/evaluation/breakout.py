"""Proves a worker's confinement by trying to break it: `python -I -m tilewright.evaluation.breakout OUTSIDE PORT`.

The process confines itself as a worker does, tries what a worker may not do, and prints what succeeded as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tilewright.evaluation.confinement import Isolation, confine

TIMEOUT_S = 20.0


def attempts(outside: Path, tcp_port: int) -> dict[str, Callable[[], object]]:
    """What a worker may not do, by name; each raises OSError where it is refused."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    file = os.open(sys.executable, os.O_RDONLY)

    def trace() -> None:
        if libc.ptrace(16, parent, 0, 0):  # PTRACE_ATTACH
            raise OSError(ctypes.get_errno(), "refused")
        libc.ptrace(17, parent, 0, 0)

    return {
        "write a file outside its folder": lambda: (outside / "written").write_text("x"),
        "write to shared memory": lambda: Path(f"/dev/shm/tilewright-{os.getpid()}").write_text("x"),
        "read a file of this user": lambda: (outside / "secret").read_text(),
        "read another process's memory": lambda: Path(f"/proc/{parent}/mem").open("rb").close(),
        "read another process's environment": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "trace another process": trace,
        "signal another process": lambda: os.kill(parent, 0),
        "see which pages of a file are in memory": lambda: os.preadv(file, [bytearray(1)], 0, os.RWF_NOWAIT),
        "connect by TCP": lambda: socket.create_connection(("127.0.0.1", tcp_port), timeout=2).close(),
        "open a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
    }


def prove() -> tuple[Isolation, list[str]]:
    """How a worker is confined on this machine, and which attempts succeeded. Raises OSError where none can be made."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder, socket.create_server(("127.0.0.1", 0)) as tcp:
        outside, port = Path(folder), str(tcp.getsockname()[1])
        (outside / "secret").write_text("x")
        (outside / "scratch").mkdir()
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-m", "tilewright.evaluation.breakout", folder, port],
            cwd=outside / "scratch",
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise OSError(f"the proof failed: {done.stderr.strip().splitlines()[-1:]}")
    answer = json.loads(done.stdout)
    return Isolation.model_validate(answer["isolation"]), list(answer["succeeded"])


def main(outside: Path, tcp_port: int) -> None:
    """Confine this process, then try everything."""
    isolation = confine(writable=[Path.cwd()], readable=[])
    succeeded = []
    for name, attempt in attempts(outside, tcp_port).items():
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    print(json.dumps({"isolation": isolation.model_dump(), "succeeded": succeeded}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

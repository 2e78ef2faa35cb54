"""Starting and ending worker processes: clean environment, limits, captured output, no survivors."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tilewright.evaluation.channel import Channel
from tilewright.evaluation.supervisor import descendants, kill_all

KEPT_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LANG",
    "LC_ALL",
    "TZ",
)
"""What a worker inherits from the server's environment; everything else is left behind."""

OUTPUT_TAIL = 8192
FILE_LIMIT = 8 * 2**30
OPEN_FILES_LIMIT = 4096


def kept_environment() -> dict[str, str]:
    """What any child of the server inherits of its environment."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def worker_environment(scratch: Path) -> dict[str, str]:
    """The whole environment of a worker whose only writable folder is `scratch`."""
    return kept_environment() | {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "CUDA_CACHE_PATH": str(scratch / "cache" / "cuda"),
        "CUDA_TILE_CACHE_DIR": str(scratch / "cache" / "cutile"),
        "TRITON_CACHE_DIR": str(scratch / "cache" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(scratch / "cache" / "inductor"),
        "PYTHONHASHSEED": "0",
    }


def apply_limits() -> None:
    """Bound what this process and its children can do to the machine; called by a worker before anything else."""
    for limit, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_LIMIT),
        (resource.RLIMIT_NOFILE, OPEN_FILES_LIMIT),
    ):
        _, hard = resource.getrlimit(limit)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


class ChildProcess:
    """A child in its own session with a channel to it; its output is drained, and the last of it kept."""

    def __init__(self, module: str, arguments: list[str], environment: Mapping[str, str], folder: Path) -> None:
        """Start `python -I -m module arguments... FD`, with FD the child's end of the channel."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-B",
                    "-u",
                    "-X",
                    "faulthandler",
                    "-m",
                    module,
                    *arguments,
                    str(theirs.fileno()),
                ],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.channel = Channel(ours)
        self._tail = bytearray()
        self._drain = threading.Thread(target=self._read_output, daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_reason(self, patience_s: float = 2.0) -> str | None:
        """How the process ended, in words; None while it runs on."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            known = -code in set(signal.Signals)
            return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        return f"exited with status {code}"

    def output(self) -> str:
        """The last of what the process printed. For people to read: no verdict depends on it."""
        self._drain.join(1.0 if self._process.poll() is not None else 0.05)  # let it catch up
        return bytes(self._tail).decode("utf-8", "replace")

    def kill(self) -> None:
        """End the process, its group and all below it, and wait for it."""
        kill_all(lambda: descendants(self._process.pid))
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self.channel.close()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout as stream:
            while chunk := os.read(stream.fileno(), 65536):
                self._tail += chunk
                del self._tail[:-OUTPUT_TAIL]

"""Starting and ending worker processes: clean environment, captured output, no survivors."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.isolation.limits import overuse
from tilewright.isolation.supervisor import kill_group
from tilewright.wire.channel import Channel

if TYPE_CHECKING:
    from tilewright.isolation.fork_server import Forked

KEPT_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "LANG",
    "LC_ALL",
    "TZ",
    "TILEWRIGHT_MEMORY_MIB",
    "TILEWRIGHT_SCRATCH_MIB",
    "TILEWRIGHT_SPARES",
)
"""What a worker inherits from the server's environment; everything else is left behind."""

OUTPUT_TAIL = 8192
PACKAGE = f"{Path(__file__).parents[1]}/"
MOST_FRAMES = 3
_FRAME = re.compile(r'  File "([^"]*)", line (\d+) in (.*)')
WATCH_S = 0.25
"""Between two looks at what a process uses, while its answer is waited for."""


def kept_environment() -> dict[str, str]:
    """What any child of the server inherits of its environment, and what torch reads when it is imported."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return kept | {"KINETO_LOG_LEVEL": "6"}  # torch's profiler would write to the candidate's output


def worker_environment(scratch: Path, caches: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a worker whose only writable folder is `scratch`. `caches` are the variables that say
    where compilers keep what they made."""
    return kept_environment() | {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "XDG_CACHE_HOME": str(scratch / "cache"),
        "CUDA_CACHE_PATH": str(scratch / "cache" / "cuda"),
        "PYTHONHASHSEED": "0",
        **caches,
    }


def spawned(module: str, arguments: list[str], environment: Mapping[str, str], folder: Path) -> ChildProcess:
    """A new interpreter that runs `python -I -m module arguments... FD`, with FD its end of the channel."""

    def start(theirs: socket.socket) -> subprocess.Popen[bytes]:
        flags = ["-I", "-B", "-u", "-X", "faulthandler"]
        return subprocess.Popen(
            [sys.executable, *flags, "-m", module, *arguments, str(theirs.fileno())],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )

    return ChildProcess(start, folder)


class ChildProcess:
    """A child in its own session with a channel to it; its output is drained, and the last of it kept."""

    def __init__(self, start: Callable[[socket.socket], subprocess.Popen[bytes] | Forked], folder: Path) -> None:
        """`start` is given the child's end of the channel; the child may write to `folder`."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start(theirs)
        self.channel = Channel(ours)
        self._folder = folder
        self._overuse = ""
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
        if self._overuse:
            return self._overuse
        if code < 0:
            known = -code in set(signal.Signals)
            return f"killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
        return f"exited with status {code}"

    def await_answer(self, timeout_s: float, stop: threading.Event | None = None) -> bool:
        """Wait until something can be received, and end the process where it takes too much meanwhile. Whether it can
        be: False after `timeout_s`, and soon after `stop` is set."""
        deadline = time.monotonic() + timeout_s
        while not self.channel.ready(min(WATCH_S, max(deadline - time.monotonic(), 0.0))):
            if found := overuse(self._process.pid, self._folder):
                self._overuse = found
                self._end()
                return True  # what ended it is known, however long ending it took
            if time.monotonic() >= deadline or (stop is not None and stop.is_set()):
                return False
        return True

    def output(self) -> str:
        """The last of what the process printed. For people to read: no verdict depends on it."""
        self._drain.join(1.0 if self._process.poll() is not None else 0.05)  # let it catch up
        return trimmed(bytes(self._tail).decode("utf-8", "replace"))

    def kill(self) -> None:
        """End the process and its group, and wait for it."""
        self._end()
        self.channel.close()

    def _end(self) -> None:
        if self._process.poll() is None:
            kill_group(self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # it may have had no time to make its group
            self._process.wait()

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout as stream:
            while chunk := os.read(stream.fileno(), 65536):
                self._tail += chunk
                del self._tail[:-OUTPUT_TAIL]


def trimmed(output: str) -> str:
    """What a process printed. In a trace of `-X faulthandler` the list of extension modules is left out, and the frames
    of this package and of `runpy`, which called the candidate."""
    return "".join(line for line in output.splitlines(keepends=True) if not _is_ours(line))


def frames(output: str) -> str:
    """Where a process crashed, the innermost frame first, in a few words; empty where it printed no trace."""
    trace = output.rpartition("Current thread")[2].splitlines()[1:] if "Current thread" in output else []
    known = [_FRAME.fullmatch(line) for line in trace if not _is_ours(line)]
    return ", ".join(f"{one[3]} ({Path(one[1]).name}:{one[2]})" for one in [*filter(None, known)][:MOST_FRAMES])


def _is_ours(line: str) -> bool:
    frame = _FRAME.fullmatch(line.rstrip("\r\n"))
    if frame is None:
        return line.startswith("Extension modules:")
    return frame[1].startswith(PACKAGE) or frame[1] == "<frozen runpy>"

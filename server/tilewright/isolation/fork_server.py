"""Workers by fork from a process that has imported what they need and nothing else: in a moment instead of seconds.

The fork server is a fork of the referee, made before that has read a message, opened CUDA or imported its own modules.
Where the process that asks for workers has done so already, it is an interpreter of its own:
`python -I -m tilewright.isolation.fork_server MODULE BACKEND FD`. No candidate ever runs in it. Each worker is a fork
of the server with an environment, a session and a channel of its own, and confines itself before it does anything else;
a fork has one thread, so that none stays outside.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tilewright.isolation.process import kept_environment
from tilewright.isolation.supervisor import die_with_parent, is_dead, kill_group, name_process

MAX_REQUEST = 2**16
LOOK_S = 0.005
"""Between two looks at whether a worker has ended. A pidfd would tell, but some container runtimes have none."""


class ForkServer:
    """Where the referee asks for workers. They run the `main` of a module, whose `get_ready` imports before it forks
    what workers of a backend need."""

    def __init__(self, control: socket.socket, process: subprocess.Popen[bytes] | None = None) -> None:
        """`control` leads to the fork server, which is `process`, or a fork of this one."""
        self._socket = control
        self._process = process
        self._turn = threading.Lock()  # of a question and its answer: workers are ended side by side

    @classmethod
    def forked(cls, module: str, backend: str, close: Sequence[int] = ()) -> ForkServer:
        """Import `module`, and fork. To be called before CUDA is opened; the file descriptors `close` are not for the
        fork server."""
        run = _imported(module, backend)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        parent = os.getpid()
        if not _fork():
            with _last_words():
                die_with_parent(parent)
                name_process("tw-fork-server")
                for number in (ours.fileno(), *close):
                    os.close(number)
                _serve(theirs, run)
        theirs.close()
        return cls(ours)

    @classmethod
    def spawned(cls, module: str, backend: str, environment: Mapping[str, str]) -> ForkServer:
        """An interpreter of its own, which imports `module` while the caller goes on. It ends with `close`, or with
        this process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = ["-m", __name__, module, backend, str(theirs.fileno())]
            process = subprocess.Popen(
                [sys.executable, "-I", "-B", "-u", "-X", "faulthandler", *words],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return cls(ours, process)

    @property
    def control(self) -> int:
        """The file descriptor of this process by which the fork server is asked."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the fork server, and with it its workers."""
        self._socket.close()
        if self._process is not None:
            self._process.wait()

    def start(
        self, channel: socket.socket, arguments: Sequence[str], environment: Mapping[str, str], folder: Path
    ) -> Forked:
        """Fork a worker: `arguments` are `main`'s, `environment` is the whole of its environment, `folder` its working
        directory. Raises RuntimeError where the fork server is gone."""
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            asked = {"arguments": [*arguments], "environment": dict(environment), "folder": str(folder)}
            pid = self._ask(asked, [channel.fileno(), writing])
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return Forked(self, pid, reading)

    def get_ready(self, module: str) -> None:
        """Have it import `module`, and call that module's own `get_ready`, before it forks the next worker. That one
        calls the module's `begin`, if there is one. It says nothing of how that went."""
        with self._turn, contextlib.suppress(OSError):
            socket.send_fds(self._socket, [json.dumps({"ready": module}).encode()], [])

    def status_of(self, pid: int) -> int:
        """How the worker `pid`, which has ended, did so: its exit status, or minus the signal."""
        try:
            return self._ask({"ended": pid}, [])
        except RuntimeError:
            return -signal.SIGKILL  # whom the fork server leaves behind, the kernel ends

    def _ask(self, asked: Mapping[str, Any], handles: list[int]) -> int:
        with self._turn:
            try:
                socket.send_fds(self._socket, [json.dumps(asked).encode()], handles)
                answer = self._socket.recv(MAX_REQUEST)
            except OSError:
                answer = b""
        if not answer:
            raise RuntimeError("the process that starts workers is gone")
        return int(answer)


def capture_server() -> ForkServer:
    """What workers that capture are forked from: it imports torch once, while the caller goes on."""
    return ForkServer.spawned("tilewright.worker.process", "", kept_environment())


class Forked:
    """A worker, as `subprocess.Popen` shows a child: it is the fork server's, which knows how it ended."""

    def __init__(self, server: ForkServer, pid: int, reading: int) -> None:
        self._server = server
        self.pid = pid
        self.stdout = os.fdopen(reading, "rb", buffering=0)
        self._status: int | None = None
        self._turn = threading.Lock()

    def poll(self) -> int | None:
        """Its exit status, or minus the signal that ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        with self._turn:
            if self._status is None:
                while not is_dead(self.pid):  # it stays in /proc until somebody has asked for its status
                    if time.monotonic() >= deadline:
                        raise subprocess.TimeoutExpired("worker", timeout or 0.0)
                    time.sleep(LOOK_S)
                kill_group(self.pid)  # what it left running, as long as nobody else can have its number
                self._status = self._server.status_of(self.pid)
            return self._status


def _imported(module: str, backend: str) -> Callable[..., None]:
    """The `main` of a module that is ready for a backend."""
    code = importlib.import_module(module)
    code.get_ready(backend)
    run: Callable[..., None] = code.main
    return run


def _fork() -> int:
    gc.collect()
    gc.freeze()  # so that collections in a child touch, and thereby copy, less
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's idle threads: its library sees to them itself
        return os.fork()


@contextlib.contextmanager
def _last_words() -> Iterator[None]:
    """For what runs in a fork: it ends here, whatever happens, and never returns into the code of its parent."""
    status = 1
    try:
        yield
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _serve(control: socket.socket, run: Callable[..., None]) -> None:
    """Fork workers that run `run`, and say how they ended, until the referee is gone."""
    ready: dict[str, ModuleType] = {}
    while True:
        text, handles, _, _ = socket.recv_fds(control, MAX_REQUEST, 2)
        if not text:
            return
        asked = json.loads(text)
        if "ready" in asked:
            try:
                if asked["ready"] not in ready:
                    ready[asked["ready"]] = module = importlib.import_module(asked["ready"])
                    module.get_ready()
            except Exception:  # each worker does without
                traceback.print_exc()
            continue
        if "ended" in asked:
            _, status = os.waitpid(asked["ended"], 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        server = os.getpid()
        pid = _fork()
        if not pid:
            with _last_words():
                control.close()
                _become(run, ready.values(), asked, server, *handles)
        for number in handles:
            os.close(number)
        control.send(str(pid).encode())


def _become(
    run: Callable[..., None],
    ready: Iterable[ModuleType],
    asked: Mapping[str, Any],
    server: int,
    channel: int,
    output: int,
) -> None:
    """Turn this fork of the server into a worker, and be one to the end."""
    die_with_parent(server)
    os.setsid()
    name_process("tw-worker")
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    os.set_inheritable(channel, False)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # or all workers would draw the same numbers
    for module in ready:
        getattr(module, "begin", lambda: None)()
    run(*asked["arguments"], socket.socket(fileno=channel))


if __name__ == "__main__":
    name_process("tw-fork-server")
    _module, _backend, _number = sys.argv[1:]
    _serve(socket.socket(fileno=int(_number)), _imported(_module, _backend))

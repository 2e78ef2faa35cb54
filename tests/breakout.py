"""Attempts to break out of a worker's confinement, made in a process that confines itself as a worker does."""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tilewright.isolation import confinement
from tilewright.isolation.confinement import Isolation, confine
from tilewright.wire.record import Record

_NEW_USER, _NEW_MOUNTS, _IPC_CREAT, _IPC_RMID, _MODE = 0x10000000, 0x20000, 0o1000, 0, 0o600


class Proof(Record):
    """How a worker is confined on this machine, and what a process that was confined so tried."""

    isolation: Isolation
    tried: dict[str, list[str]]
    succeeded: list[str]


def _call_number(name: str) -> int:
    """The number here of a system call that is refused, or judged by its arguments."""
    column, _ = confinement._MACHINES[platform.machine()]
    return (confinement._REFUSED | confinement._JUDGED)[name][column]


def attempts(outside: Path, tcp_port: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What a worker may not do, by class and name; each raises OSError if it is refused. `outside` is what `laid_out`
    has laid out; only the working folder may be written to."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> int:
        result = int(libc.syscall(_call_number(name), *arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return result

    def truncate() -> None:
        os.close(os.open(outside / "shown" / "file", os.O_RDONLY | os.O_TRUNC))

    def connect() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
            one.connect(str(outside / "listening"))

    def load() -> None:
        os.close(call("bpf", 0, struct.pack("=4I", 2, 4, 4, 1).ljust(128, b"\0"), 128))

    return {
        "files": {
            "write a file outside its folder": lambda: (outside / "written").write_text("x"),
            "read a file of this user": lambda: (outside / "secret").read_text(),
            "truncate a file of this user": truncate,
        },
        "devices": {"open a terminal": lambda: os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))},
        "shared memory": {
            "attach shared memory": lambda: call("shmctl", call("shmget", 0, 1, _IPC_CREAT | _MODE), _IPC_RMID, None)
        },
        "other processes": {
            "read another process's memory": lambda: Path(f"/proc/{parent}/mem").open("rb").close(),
            "signal another process": lambda: os.kill(parent, 0),
        },
        "sockets": {
            "connect by TCP": lambda: socket.create_connection(("127.0.0.1", tcp_port), timeout=2).close(),
            "connect to a UNIX socket": connect,
        },
        "the kernel": {"load a program into the kernel": load},
        "privileges": {
            "become another user": lambda: os.setuid(os.getuid() + 1),
            "make a namespace": lambda: call("unshare", _NEW_USER | _NEW_MOUNTS),
        },
    }


@contextmanager
def laid_out() -> Iterator[tuple[Path, int]]:
    """A folder with files and a socket for the attempts, and the port of a TCP socket."""
    with ExitStack() as held:
        outside = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tilewright-")))
        for folder in ("shown", "scratch"):
            (outside / folder).mkdir()
        for file in ("secret", "shown/file"):
            (outside / file).write_text("x")
        listening = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        listening.bind(str(outside / "listening"))
        listening.listen()
        yield outside, held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]


def main(outside: Path, tcp_port: int) -> None:
    """Confine this process, then try everything."""
    isolation = confine(writable=[Path.cwd()], readable=[outside / "shown"])
    tried = attempts(outside, tcp_port)
    succeeded = []
    for name, attempt in [one for listed in tried.values() for one in listed.items()]:
        try:
            attempt()
        except OSError:
            continue
        succeeded.append(name)
    names = {kind: list(listed) for kind, listed in tried.items()}
    print(Proof(isolation=isolation, tried=names, succeeded=succeeded).model_dump_json())

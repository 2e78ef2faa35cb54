"""Proves a worker's confinement by trying to break it: `python -I -m tilewright.isolation.breakout OUTSIDE PORT`.

The process confines itself as a worker does, tries what a worker may not do, and prints what succeeded as JSON.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tilewright.isolation.confinement import Isolation, call_number, confine
from tilewright.wire.record import Record

TIMEOUT_S = 20.0
_PTRACE_SEIZE, _NEW_USER, _NEW_MOUNTS, _IPC_CREAT, _IPC_RMID, _SHM_INFO = 0x4206, 0x10000000, 0x20000, 0o1000, 0, 14
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_MODE = 0o600


class Proof(Record):
    """How a worker is confined on this machine, and what a process that was confined so tried."""

    isolation: Isolation
    tried: dict[str, list[str]]
    succeeded: list[str]

    def __str__(self) -> str:
        """How much was tried, and against what."""
        return f"{sum(map(len, self.tried.values()))} ways out ({', '.join(self.tried)})"


def attempts(outside: Path, tcp_port: int) -> dict[str, dict[str, Callable[[], object]]]:
    """What a worker may not do, by class and name; each raises OSError if it is refused. `outside` is what `laid_out`
    has laid out; only the working folder may be written to."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> int:
        result = int(libc.syscall(call_number(name), *arguments))
        if result < 0:
            raise OSError(ctypes.get_errno(), "refused")
        return result

    def own() -> Path:
        Path("own").write_text("x")
        return Path("own")

    def truncate_by_opening() -> None:
        os.close(os.open(outside / "shown" / "file", os.O_RDONLY | os.O_TRUNC))

    def mark() -> None:
        with (outside / "shown" / "file").open("rb") as file:
            flags = fcntl.ioctl(file, _GET_FLAGS, bytes(8))
            fcntl.ioctl(file, _SET_FLAGS, flags)

    def share() -> None:
        path = Path(f"/dev/shm/tilewright-{os.getpid()}")
        path.write_text("x")
        path.unlink()

    def queue() -> None:
        os.close(call("mq_open", b"tilewright", os.O_RDWR | os.O_CREAT, _MODE, None))
        call("mq_unlink", b"tilewright")

    def unix(kind: socket.SocketKind, address: str) -> None:
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.connect(address)

    def datagram() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            ours.sendto(b"x", str(outside / "datagram"))

    def pass_file() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(ours, [b"x"], [0])

    def load() -> None:
        os.close(call("bpf", 0, struct.pack("=4I", 2, 4, 4, 1).ljust(128, b"\0"), 128))

    def count() -> None:
        os.close(call("perf_event_open", struct.pack("=IIQ", 1, 112, 0).ljust(112, b"\0"), 0, -1, -1, 0))

    def namespace() -> None:
        child = call("clone", _NEW_USER | 17, None, None, None, None)
        if not child:
            os._exit(0)
        os.waitpid(child, 0)

    return {
        "files": {
            "write a file outside its folder": lambda: (outside / "written").write_text("x"),
            "read a file of this user": lambda: (outside / "secret").read_text(),
            "truncate a file of this user": lambda: os.truncate(outside / "shown" / "file", 0),
            "truncate a file by opening it": truncate_by_opening,
            "move a file out of its folder": lambda: own().rename(outside / "moved"),
            "link a file out of its folder": lambda: os.link(own(), outside / "linked"),
            "watch a folder outside": lambda: call("inotify_init1", 0),
            "mark a file that it may read": mark,
        },
        "devices": {
            "open a terminal": lambda: os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)),
            "make a device": lambda: os.mknod("device", stat.S_IFCHR | _MODE, os.makedev(1, 3)),
        },
        "shared memory": {
            "write to shared memory": share,
            "attach shared memory": lambda: call("shmctl", call("shmget", 0, 1, _IPC_CREAT | _MODE), _IPC_RMID, None),
            "control others' shared memory": lambda: call("shmctl", 0, _SHM_INFO, ctypes.create_string_buffer(256)),
            "leave messages": lambda: call("msgctl", call("msgget", 0, _IPC_CREAT | _MODE), _IPC_RMID, None),
            "open a message queue": queue,
        },
        "other processes": {
            "read another process's memory": lambda: Path(f"/proc/{parent}/mem").open("rb").close(),
            "read another process's environment": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
            "trace another process": lambda: call("ptrace", _PTRACE_SEIZE, parent, None, None),
            "signal another process": lambda: os.kill(parent, 0),
            "slow another process": lambda: os.sched_setaffinity(parent, os.sched_getaffinity(parent)),
            "slow all processes of this user": lambda: os.setpriority(
                os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0)
            ),
        },
        "sockets": {
            "connect by TCP": lambda: socket.create_connection(("127.0.0.1", tcp_port), timeout=2).close(),
            "open a UDP socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
            "connect to a UNIX socket": lambda: unix(socket.SOCK_SEQPACKET, str(outside / "listening")),
            "connect to an abstract name": lambda: unix(socket.SOCK_SEQPACKET, f"\0{outside}"),
            "send to a UNIX datagram socket": datagram,
            "open a netlink socket": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close(),
            "pass a file to another process": pass_file,
        },
        "the kernel": {
            "load a program into the kernel": load,
            "queue system calls": lambda: os.close(call("io_uring_setup", 1, ctypes.create_string_buffer(256))),
            "count events of the kernel": count,
        },
        "privileges": {
            "start a process in a namespace": namespace,
            "become another user": lambda: os.setuid(os.getuid() + 1),
            "make a namespace": lambda: call("unshare", _NEW_USER | _NEW_MOUNTS),
            "open a file system to mount it": lambda: os.close(call("fsopen", b"tmpfs", 0)),
        },
    }  # fmt: skip


@contextmanager
def laid_out() -> Iterator[tuple[Path, int]]:
    """A folder with files and sockets for the attempts, and the port of a TCP socket."""
    with ExitStack() as held:
        outside = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tilewright-")))
        for folder in ("shown", "scratch"):
            (outside / folder).mkdir()
        for file in ("secret", "shown/file"):
            (outside / file).write_text("x")
        for kind, address in (
            (socket.SOCK_SEQPACKET, str(outside / "listening")),
            (socket.SOCK_SEQPACKET, f"\0{outside}"),
            (socket.SOCK_DGRAM, str(outside / "datagram")),
        ):
            made = held.enter_context(socket.socket(socket.AF_UNIX, kind))
            made.bind(address)
            if kind is socket.SOCK_SEQPACKET:
                made.listen()
        yield outside, held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]


def prove() -> Proof:
    """Try what a worker may not do. Raises OSError if nothing can be tried."""
    with laid_out() as (outside, port):
        done = subprocess.run(
            [sys.executable, "-I", "-B", "-m", "tilewright.isolation.breakout", str(outside), str(port)],
            cwd=outside / "scratch",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise OSError(f"the proof failed: {done.stderr.strip().splitlines()[-1:]}")
    return Proof.model_validate_json(done.stdout)


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


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

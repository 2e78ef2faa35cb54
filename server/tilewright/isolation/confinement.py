"""What a worker may not do, enforced by the kernel: Landlock for files, TCP, signals and ptrace; seccomp for the rest.

Both are inherited by every thread and child that comes after, and cannot be taken back, so a worker applies them to
itself before it imports torch, which starts threads. Sources: Documentation/userspace-api/landlock.rst and
seccomp_filter.rst of the Linux kernel.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from tilewright.wire.record import Record

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION_FLAG = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = (1 << bit for bit in range(4))
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""The rights that a rule on something other than a folder may name."""
_FILE_RIGHTS_BY_ABI = {1: 13, 2: 14, 3: 15, 5: 16}
"""From that ABI on, how many of the rights, counted from bit 0, the kernel knows."""
_TCP = 0b11  # bind, connect; from ABI 4
_SCOPES = 0b11  # abstract unix sockets, signals; from ABI 6

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/sys")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/nvidiactl", "/dev/nvidia-uvm",
           "/dev/nvidia-uvm-tools", "/dev/nvidia-caps", "/dev/nvidia-modeset")  # fmt: skip

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_PR_CAPBSET_DROP, _CAPABILITY_VERSION_3 = 24, 0x20080522
_AF_UNIX, _SEQPACKET = 1, 5
_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_REFUSE = _ERRNO | _EPERM
_X32 = 0x40000000

# Numbers by machine: x86-64's, then those that arm64 shares with all newer machines.
_NONE = 2**32 - 1
_SOCKETS = {
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "sendto": (44, 206), "recvfrom": (45, 207),
    "sendmsg": (46, 211), "recvmsg": (47, 212), "shutdown": (48, 210), "bind": (49, 200), "listen": (50, 201),
    "getsockname": (51, 204), "getpeername": (52, 205), "socketpair": (53, 199), "setsockopt": (54, 208),
    "getsockopt": (55, 209), "accept4": (288, 242), "recvmmsg": (299, 243), "sendmmsg": (307, 269),
}  # fmt: skip
"""Every system call on sockets. A worker has those of `_USED_SOCKETS`, with some arguments."""
_USED_SOCKETS = {
    "socketpair", "sendto", "recvfrom", "recvmsg", "shutdown", "getsockname", "getpeername", "setsockopt", "getsockopt",
    "socket", "bind", "listen",
}  # fmt: skip
"""The last three are CUDA's: it does not start without a socket on which it listens. Nobody is accepted there."""
_REFUSED = {name: numbers for name, numbers in _SOCKETS.items() if name not in _USED_SOCKETS} | {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438),
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "truncate": (76, 45),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463), "removexattrat": (466, 466),
    "file_setattr": (469, 469), "inotify_init": (253, _NONE), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
}  # fmt: skip
"""System calls that no kernel needs: to reach other processes, the network, mounts or the kernel itself, to mark files,
or to watch them, where Landlock does not look. What needs root's powers is not listed: a worker has none."""
_FEIGNED = {
    "flock": (73, 32), "chmod": (90, _NONE), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, _NONE), "fchown": (93, 55), "lchown": (94, _NONE), "fchownat": (260, 54), "utime": (132, _NONE),
    "utimes": (235, _NONE), "futimesat": (261, _NONE), "utimensat": (280, 88), "setsid": (112, 157),
    "setpgid": (109, 154),
}  # fmt: skip
"""Answered as if they had succeeded, since harmless programs make them: modes, owners and times of files, which
Landlock does not guard; locks, by one of which the sessions of a machine take turns on its GPU; and leaving the process
group, since one signal to the group ends all that a worker started."""
_UNKNOWN = {"openat2": (437, 437), "clone3": (435, 435)}
"""Answered as by a kernel that does not have them, and libc then takes an older call, whose flags a filter can see."""
_JUDGED = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setpriority": (141, 140),
    "open": (2, _NONE), "openat": (257, 56), "ioctl": (16, 29), "clone": (56, 220),
}  # fmt: skip
"""Judged by their arguments, as some of those on sockets are."""
_WORD, _TYPE, _NAMESPACES, _ACCESS, _O_TRUNC, _REQUEST_KIND = 2**32 - 1, 0xF, 0x7E020000, 0o3, 0o1000, 0xFF00
"""Masks: a whole word, a socket's type, flags of clone and open, an ioctl's request."""
_ALLOWED_IF = (
    # call, place of the argument, byte of it where a word begins, mask, value
    ("prlimit64", 0, 0, _WORD, 0), ("sched_setaffinity", 0, 0, _WORD, 0), ("sched_setscheduler", 0, 0, _WORD, 0),
    ("sched_setparam", 0, 0, _WORD, 0), ("sched_setattr", 0, 0, _WORD, 0),  # of a process: the caller (0)
    ("setpriority", 0, 0, _WORD, 0), ("setpriority", 1, 0, _WORD, 0),  # of processes of a kind, 0: one process
    ("clone", 0, 0, _NAMESPACES, 0),
    ("socket", 0, 0, _WORD, _AF_UNIX), ("socket", 1, 0, _TYPE, _SEQPACKET), ("socketpair", 0, 0, _WORD, _AF_UNIX),
    ("sendto", 4, 0, _WORD, 0), ("sendto", 4, 4, _WORD, 0),  # no address: to whom the socket is connected
)  # fmt: skip
_REFUSED_IF = (
    *(("open", 1, 0, _ACCESS | _O_TRUNC, access | _O_TRUNC) for access in (0, 3)),  # Landlock 1 and 2 do not see
    *(("openat", 2, 0, _ACCESS | _O_TRUNC, access | _O_TRUNC) for access in (0, 3)),  # what is not opened to write
    *(("ioctl", 1, 0, _REQUEST_KIND, kind << 8) for kind in (*b"fXv", 0x94)),  # file systems': they mark files
)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class Isolation(Record):
    """What the kernel enforces on a worker."""

    landlock: int = Field(0, description="the ABI of the Landlock rules in force; 0 for none")
    seccomp: bool = False
    missing: str = Field("", description="what is not enforced, and why; empty if nothing is missing")

    def __str__(self) -> str:
        parts = [f"Landlock {self.landlock}" if self.landlock else "", "seccomp" if self.seccomp else ""]
        return (", ".join(filter(None, parts)) or "none") + (f" ({self.missing})" if self.missing else "")

    @property
    def confined(self) -> bool:
        """Whether files and system calls are restricted."""
        return self.landlock > 0 and self.seccomp

    @property
    def unprotected(self) -> str:
        """In two words, that a worker is not confined, or not in all; empty where it is."""
        return "" if self.confined and not self.missing else "partly confined" if self.confined else "unconfined"


def confine(writable: Iterable[Path], readable: Iterable[Path], hidden: Path | None = None) -> Isolation:
    """Restrict this process, and all that it will start, for good; what the kernel cannot enforce is left out and said.

    It may write below `writable` and to the GPU's device files alone; read these, `readable`, Python and the system's
    folders (of Python's none below `hidden` but the interpreter's own); reach nobody by a socket; neither signal,
    trace nor reconfigure a process outside; and is no longer root in more than name.
    """
    missing = []
    libc = ctypes.CDLL(None, use_errno=True)
    landlock, seccomp = 0, False
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        missing.append(f"no_new_privs: {_error()}")
    else:
        _drop_capabilities(libc)
        try:
            landlock = _apply_landlock(libc, [*writable], [*python_folders(hidden), *readable])
        except OSError as error:
            missing.append(f"Landlock: {error.strerror}")
        try:
            _apply_seccomp(libc)
            seccomp = True
        except OSError as error:
            missing.append(f"seccomp: {error.strerror}")
    if 0 < landlock < 6:
        missing.append("not prevented: signals to other processes")
    return Isolation(landlock=landlock, seccomp=seccomp, missing="; ".join(missing))


def python_folders(hidden: Path | None = None) -> list[Path]:
    """Where this interpreter, its packages and the programs on PATH and LD_LIBRARY_PATH lie; of what lies below
    `hidden` only the interpreter's own folder."""
    listed = [sys.prefix, sys.base_prefix, *sys.path, os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", "")]
    for name in ("PATH", "LD_LIBRARY_PATH"):
        listed += os.environ.get(name, "").split(":")
    found = [Path(entry) for entry in listed if entry.startswith("/") and Path(entry).resolve() != Path("/")]
    own = Path(sys.prefix)
    return [path for path in found if hidden is None or not path.is_relative_to(hidden) or path.is_relative_to(own)]


def _error() -> str:
    return os.strerror(ctypes.get_errno())


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Where this runs as root: be root without its powers. An owner's rights remain."""
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def _landlock_abi(libc: ctypes.CDLL) -> int:
    return _checked(libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))


def _apply_landlock(libc: ctypes.CDLL, writable: list[Path], readable: list[Path]) -> int:
    abi = _landlock_abi(libc)
    known = max(count for since, count in _FILE_RIGHTS_BY_ABI.items() if since <= abi)
    handled = (1 << known) - 1
    fields = [handled, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0]
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(_CREATE_RULESET, struct.pack("=QQQ", *fields), size, 0))
    try:
        devices = [Path(name) for name in DEVICES] + list(Path("/dev").glob("nvidia[0-9]*"))
        for path in [*map(Path, SYSTEM_FOLDERS), *readable]:
            _allow(libc, ruleset, path, handled & _READ)
        for path in devices:
            _allow(libc, ruleset, path, handled & (_READ | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV))
        os.open("/proc/self/task", os.O_PATH | os.O_CLOEXEC)  # held open: a rule is for the file that was looked up
        _allow(
            libc, ruleset, Path("/proc/self/task"), handled & (_READ | _WRITE_FILE | _TRUNCATE)
        )  # CUDA names its threads
        for path in writable:
            _allow(libc, ruleset, path, handled & ~_IOCTL_DEV)
        _checked(libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return abi


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not there: nothing to allow
        return
    try:
        if not path.is_dir():
            rights &= _OF_FILES
        _checked(libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, handle), 0))
    finally:
        os.close(handle)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _judging(column: int, rule: tuple[str, int, int, int, int], allowed: bool) -> list[bytes]:
    """Instructions for a rule: a call whose argument has the rule's value is `allowed`, or the only one that is
    refused. The call's number is loaded before and after."""
    name, place, byte, mask, value = rule
    return [
        _instruction(_EQUAL, (_JUDGED | _SOCKETS)[name][column], 0, 5),
        _instruction(_LOAD, 16 + 8 * place + byte),
        _instruction(_AND, mask),
        _instruction(_EQUAL, value, allowed, not allowed),
        _instruction(_RETURN, _REFUSE),
        _instruction(_LOAD, 0),
    ]


def _filter(column: int, machine: int) -> bytes:
    """The classic BPF program: refused calls fail with EPERM, a call of another machine's table kills."""
    program = [_instruction(_LOAD, 4), _instruction(_EQUAL, machine, 1, 0), _instruction(_RETURN, _KILL)]
    program += [_instruction(_LOAD, 0)]
    if column == 0:
        program += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _REFUSE)]
    for calls, answer in ((_REFUSED, _REFUSE), (_FEIGNED, _ERRNO), (_UNKNOWN, _ERRNO | _ENOSYS)):
        for numbers in calls.values():
            program += [_instruction(_EQUAL, numbers[column], 0, 1), _instruction(_RETURN, answer)]
    for rules, allowed in ((_ALLOWED_IF, True), (_REFUSED_IF, False)):
        for rule in rules:
            program += _judging(column, rule, allowed)
    return b"".join([*program, _instruction(_RETURN, _ALLOW)])


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _apply_seccomp(libc: ctypes.CDLL) -> None:
    if platform.machine() not in _MACHINES:
        raise OSError(0, f"no table of system calls for {platform.machine()}")
    column, machine = _MACHINES[platform.machine()]
    code = _filter(column, machine)
    program = _Program(len(code) // 8, code)
    _checked(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))

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

from tilewright.records import Record

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
_AF_UNIX = 1
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_ARGUMENT_0, _ARGUMENT_1, _ARGUMENT_2, _SIXTH_BIT_SET = 16, 24, 32, 0x40000000

# Numbers by machine: x86-64's, then those that arm64 shares with all newer machines.
_REFUSED = {
    "connect": (42, 203), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (170, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "semop": (65, 193), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "mq_open": (240, 180),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "mincore": (27, 232), "cachestat": (451, 451),
    "io_setup": (206, 0),
}  # fmt: skip
"""System calls that no kernel needs: to reach other processes, the network, mounts, clocks or the kernel itself, or to
leave word for a later process where Landlock does not look."""
_OF_ITSELF = {
    "prlimit64": (302, 261, _ARGUMENT_0), "sched_setaffinity": (203, 122, _ARGUMENT_0),
    "sched_setscheduler": (144, 119, _ARGUMENT_0), "sched_setparam": (142, 118, _ARGUMENT_0),
    "sched_setattr": (314, 274, _ARGUMENT_0), "setpriority": (141, 140, _ARGUMENT_1),
}  # fmt: skip
"""System calls that name a process: allowed on the caller (0) alone; with the place of that argument."""
_SOCKET = (41, 198)
_NONE = 2**32 - 1
_FEIGNED = {
    "flock": (73, 32), "chmod": (90, _NONE), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, _NONE), "fchown": (93, 55), "lchown": (94, _NONE), "fchownat": (260, 54), "utime": (132, _NONE),
    "utimes": (235, _NONE), "futimesat": (261, _NONE), "utimensat": (280, 88), "fadvise64": (221, 223),
    "readahead": (187, 213),
}  # fmt: skip
"""Answered as if they had succeeded, since harmless programs make them: a lock, a mode or a time of a file that all may
read, or which of its pages are in memory, would tell one process of another, and Landlock does not guard them."""
_MADVISE, _PAGED_OUT = (28, 233), (20, 21)
"""Feigned, too, with this advice (MADV_COLD, MADV_PAGEOUT)."""
_PREADV2 = (327, 286)
"""Answered as by a kernel that does not have it, and libc then takes preadv: RWF_NOWAIT tells what is in memory."""
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class Isolation(Record):
    """What the kernel enforces on a worker."""

    landlock: int = Field(0, description="the ABI of the Landlock rules in force; 0 for none")
    seccomp: bool = False
    missing: str = Field("", description="why a protection is not in force")

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
    folders (of Python's none below `hidden` but the interpreter's own); open no TCP or UDP socket; neither signal,
    trace nor reconfigure a process outside; and is no longer root in more than name.
    """
    missing = []
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return Isolation(missing=f"no_new_privs: {_error()}")
    _drop_capabilities(libc)
    landlock = 0
    try:
        landlock = _apply_landlock(libc, [*writable], [*python_folders(hidden), *readable])
    except OSError as error:
        missing.append(f"Landlock: {error.strerror}")
    seccomp = False
    try:
        _apply_seccomp(libc)
        seccomp = True
    except OSError as error:
        missing.append(f"seccomp: {error.strerror}")
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


def _apply_landlock(libc: ctypes.CDLL, writable: list[Path], readable: list[Path]) -> int:
    abi = _checked(libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG))
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


def _filter(column: int, machine: int) -> bytes:
    """The classic BPF program: refused calls fail with EPERM, a call of another machine's table kills."""
    refuse = _instruction(_RETURN, _ERRNO | _EPERM)
    program = [_instruction(_LOAD, 4), _instruction(_EQUAL, machine, 1, 0), _instruction(_RETURN, _KILL)]
    program += [_instruction(_LOAD, 0)]
    if column == 0:  # x32 calls on x86-64
        program += [_instruction(_AT_LEAST, _SIXTH_BIT_SET, 0, 1), refuse]
    for numbers in _REFUSED.values():
        program += [_instruction(_EQUAL, numbers[column], 0, 1), refuse]
    for numbers in _FEIGNED.values():
        program += [_instruction(_EQUAL, numbers[column], 0, 1), _instruction(_RETURN, _ERRNO)]
    for first, second, place in _OF_ITSELF.values():
        program += [
            _instruction(_EQUAL, (first, second)[column], 0, 4),
            _instruction(_LOAD, place),
            _instruction(_EQUAL, 0, 1, 0),
            refuse,
            _instruction(_RETURN, _ALLOW),
        ]
    program += [_instruction(_EQUAL, _PREADV2[column], 0, 1), _instruction(_RETURN, _ERRNO | _ENOSYS)]
    program += [
        _instruction(_EQUAL, _MADVISE[column], 0, 5),
        _instruction(_LOAD, _ARGUMENT_2),
        _instruction(_EQUAL, _PAGED_OUT[0], 1, 0),
        _instruction(_EQUAL, _PAGED_OUT[1], 0, 1),
        _instruction(_RETURN, _ERRNO),
        _instruction(_RETURN, _ALLOW),
    ]
    program += [
        _instruction(_EQUAL, _SOCKET[column], 0, 3),
        _instruction(_LOAD, _ARGUMENT_0),
        _instruction(_EQUAL, _AF_UNIX, 1, 0),
        refuse,
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def _apply_seccomp(libc: ctypes.CDLL) -> None:
    if platform.machine() not in _MACHINES:
        raise OSError(0, f"no table of system calls for {platform.machine()}")
    column, machine = _MACHINES[platform.machine()]
    code = _filter(column, machine)
    program = _Program(len(code) // 8, code)
    _checked(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))

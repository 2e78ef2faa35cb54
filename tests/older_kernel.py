"""Runs a command as on a Linux that cannot confine a process: `python -m tests.older_kernel CALL COMMAND...`.

CALL is `landlock`, `seccomp` or `pidfd`. Its system calls fail for the command, and for all below it, as on a kernel
without them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

ENOSYS, EINVAL = 38, 22
_LOAD, _EQUAL, _RETURN, _ALLOW, _ERRNO = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050000
_FIRST_ARGUMENT = 16
_LANDLOCK_CREATE, _PIDFD_OPEN = 444, 434
_PRCTL, _SET_SECCOMP = {"x86_64": 157, "aarch64": 167}, 22


def _code(*instructions: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, value, yes, no in instructions)


def _lost(number: int) -> bytes:
    return _code(
        (_LOAD, 0, 0, 0), (_EQUAL, number, 0, 1), (_RETURN, _ERRNO | ENOSYS, 0, 0), (_RETURN, _ALLOW, 0, 0)
    )  # fmt: skip


FILTERS = {
    "nothing": _code((_RETURN, _ALLOW, 0, 0)),
    "landlock": _lost(_LANDLOCK_CREATE),
    "pidfd": _lost(_PIDFD_OPEN),
    "seccomp": _code(
        (_LOAD, 0, 0, 0),
        (_EQUAL, _PRCTL[platform.machine()], 0, 3),
        (_LOAD, _FIRST_ARGUMENT, 0, 0),
        (_EQUAL, _SET_SECCOMP, 0, 1),
        (_RETURN, _ERRNO | EINVAL, 0, 0),
        (_RETURN, _ALLOW, 0, 0),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def lose(name: str) -> None:
    """Have these system calls fail in this process from now on, and in all that it starts."""
    code = FILTERS[name]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(_Program(len(code) // 8, code)), 0, 0):
        raise OSError(ctypes.get_errno(), "the filter was refused")


if __name__ == "__main__":
    lose(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])

"""Runs a module's `main` in a process that is confined before it imports anything that starts a thread.

`python -I -m tilewright.isolation.confined MODULE FOLDER... FD`: folders that it may read, and its end of a channel. A
rule of the kernel binds the thread that makes it and those that it starts later, so that a library that is imported
first, torch or numpy, would leave threads outside.

A module with FIXED before its name runs at addresses that are not randomised: what a program leaves uninitialised in a
kernel's parameters is then the same in two processes that do the same.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import socket
import sys
from pathlib import Path

from tilewright.isolation.confinement import confine
from tilewright.isolation.limits import apply_limits

FIXED = "fixed:"
_ADDR_NO_RANDOMIZE, _ASK = 0x0040000, 0xFFFFFFFF


def fix_addresses() -> None:
    """Start this process's program anew with addresses that are not randomised, if that can be had and is not so."""
    personality = ctypes.CDLL(None).personality
    personality.argtypes = [ctypes.c_ulong]
    now = personality(_ASK)
    if now == -1 or now & _ADDR_NO_RANDOMIZE or personality(now | _ADDR_NO_RANDOMIZE) == -1:
        return
    if personality(_ASK) & _ADDR_NO_RANDOMIZE:
        os.execv(sys.executable, sys.orig_argv)


def main() -> None:
    module, *folders, number = sys.argv[1:]
    if module.startswith(FIXED):
        fix_addresses()
        module = module.removeprefix(FIXED)
    apply_limits()
    isolation = confine(writable=[Path.cwd()], readable=[Path(folder) for folder in folders])
    importlib.import_module(module).main(socket.socket(fileno=int(number)), isolation)


if __name__ == "__main__":
    main()

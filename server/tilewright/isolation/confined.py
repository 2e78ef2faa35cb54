"""Runs a module's `main` in a process that is confined before it imports anything that starts a thread.

`python -I -m tilewright.isolation.confined MODULE FOLDER... FD`: folders that it may read, and its end of a channel. A
rule of the kernel binds the thread that makes it and those that it starts later, so that a library that is imported
first, torch or numpy, would leave threads outside.
"""

from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

from tilewright.isolation.confinement import confine
from tilewright.isolation.limits import apply_limits


def main() -> None:
    module, *folders, number = sys.argv[1:]
    apply_limits()
    isolation = confine(writable=[Path.cwd()], readable=[Path(folder) for folder in folders])
    importlib.import_module(module).main(socket.socket(fileno=int(number)), isolation)


if __name__ == "__main__":
    main()

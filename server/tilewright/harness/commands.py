"""One run of a repository's command: on a fresh copy, confined, limited in time and memory, and nothing left of it.

What the command writes is read from a folder made for the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.commandtask import JUNIT, OUT
from tilewright.evaluation.caches import compiler_variables
from tilewright.isolation.confinement import Isolation, confine
from tilewright.isolation.limits import apply_limits, overuse
from tilewright.isolation.process import worker_environment
from tilewright.isolation.supervisor import die_with_parent, group_of, kill_group

STDOUT_LIMIT = 16 * 2**20
STDERR_TAIL = 16 * 1024
RESULT_LIMIT = 64 * 2**20
WATCH_S = 1.0
"""Between two looks at what a run uses."""
GONE_S = 5.0
"""Within which what was killed is gone."""
PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
PYTEST_TABLES = {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}
"""Files in which pytest looks for its settings, and the table that it wants there."""
_PROGRAMS = {"python": [], "python3": [], "pytest": ["-m", "pytest"], "py.test": ["-m", "pytest"]}


@dataclass(frozen=True)
class Place:
    """Where a command runs: `root` is the checkout, `folder` in it the working folder, `scratch` a new folder of its
    own. `hidden` is the user's working tree, of which nothing may be read."""

    root: Path
    folder: Path
    scratch: Path
    hidden: Path | None = None

    @property
    def junit(self) -> Path:
        """The file that `{junit}` in a command stands for."""
        return self.scratch / "junit.xml"

    @property
    def out(self) -> Path:
        """The file that `{out}` in a command stands for."""
        return self.scratch / "out"


@dataclass(frozen=True)
class Ran:
    """How a run ended: its exit status, or in words why it had none, with what it printed."""

    status: int | None
    ended: str
    timed_out: bool
    stdout: str
    stderr: str
    seconds: float

    @property
    def last_words(self) -> str:
        """The end of what was printed, for people to read."""
        return "\n".join(filter(None, (self.stdout[-4000:].strip(), self.stderr[-4000:].strip())))[-6000:]


def fresh_place(snapshot: Path, folder: Path, workplace: str = ".", hidden: Path | None = None) -> Place:
    """A copy of a snapshot in `folder`, and a new scratch folder beside it; those of the run before are gone. Commands
    run in `workplace` of the copy. No run may write to the snapshot."""
    root, scratch = folder / "checkout", folder / "run"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    fresh_copy(snapshot, root)
    return Place(root, root / workplace, scratch, hidden)


def fresh_copy(snapshot: Path, into: Path) -> None:
    """Make `into` a copy of a snapshot; what lay there is gone. Scripts can be executed."""
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(snapshot, into, symlinks=True)
    for path in into.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb", buffering=0) as file:
                if file.read(2) == b"#!":
                    path.chmod(0o755)
    _stop_pytest_here(into)


def _stop_pytest_here(root: Path) -> None:
    """See that pytest looks for its settings no further up than in `root`: above it, others may write."""
    tables = [(root / name, table.encode()) for name, table in PYTEST_TABLES.items()]
    if any((root / name).exists() for name in PYTEST_FILES):
        return
    if not any(file.is_file() and table in file.read_bytes() for file, table in tables):
        (root / "pytest.ini").write_text("[pytest]\n")


def run(
    words: list[str],
    place: Place,
    timeout_s: float,
    import_roots: Iterable[str] = (".",),
    variables: Mapping[str, str] | None = None,
) -> Ran:
    """Run one command to its end, or for `timeout_s` seconds; then it and all that it started are gone. Its environment
    is a worker's, with the task's own `variables`; modules are imported from `import_roots`, folders in the working
    folder. Raises OSError where the program cannot be started."""
    words = [word.replace(JUNIT, str(place.junit)).replace(OUT, str(place.out)) for word in words]
    if words[0] in _PROGRAMS:
        words = [sys.executable, *_PROGRAMS[words[0]], *words[1:]]
    environment = worker_environment(place.scratch, compiler_variables(place.scratch)) | dict(variables or {}) | {
        "PYTHONPATH": os.pathsep.join(str(place.folder / root) for root in import_roots),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    parent = os.getpid()

    def prepare() -> None:  # in the child, before the program
        die_with_parent(parent)
        apply_limits()
        confine(writable=[place.root, place.scratch], readable=[], hidden=place.hidden)

    started = time.monotonic()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        process = subprocess.Popen(
            words,
            cwd=place.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complained,
            start_new_session=True,
            preexec_fn=prepare,
        )
        held = _tasks_of(process.pid)
        try:
            ended, timed_out = _wait(process, place.scratch, started + timeout_s)
            seconds = time.monotonic() - started
        finally:
            _end(process)
            if held is not None:
                os.close(held)
        status = process.returncode if not ended else None
        if not ended and process.returncode < 0:
            known = -process.returncode in set(signal.Signals)
            name = signal.Signals(-process.returncode).name if known else f"signal {-process.returncode}"
            status, ended = None, f"was killed by {name}"
        return Ran(
            status=status,
            ended=ended or f"exited with status {status}",
            timed_out=timed_out,
            stdout=_text(printed, 0, STDOUT_LIMIT),
            stderr=_text(complained, max(complained.seek(0, os.SEEK_END) - STDERR_TAIL, 0), STDERR_TAIL),
            seconds=seconds,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and all that it started, and see that they are gone."""
    kill_group(process.pid)
    process.wait()
    until = time.monotonic() + GONE_S
    while group_of(process.pid) and time.monotonic() < until:
        time.sleep(0.01)


def _text(file: IO[bytes], start: int, limit: int) -> str:
    file.seek(start)
    return file.read(limit).decode("utf-8", "replace")


def _tasks_of(pid: int) -> int | None:
    """Keep the kernel's entry of a process's threads, to which the rule that lets CUDA name them is tied."""
    try:
        return os.open(f"/proc/{pid}/task", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None


def isolation_here(hidden: Path | None, scratch: Path) -> Isolation:
    """What the kernel enforces on a run here, tried by a process made for it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        found = Isolation(missing="could not be tried")
        with contextlib.suppress(BaseException):
            found = confine(writable=[scratch], readable=[], hidden=hidden)
        os.write(writer, found.model_dump_json().encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as stream:
        return Isolation.model_validate_json(stream.read())


def read_result(path: Path) -> str | None:
    """The text of a file that a run has written; None where it wrote none. Raises ValueError for anything but a plain
    file of UTF-8 that is not too large: a run may leave links and pipes behind."""
    if not path.exists():
        return None
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path.name} is no plain file")
    if path.stat().st_size > RESULT_LIMIT:
        raise ValueError(f"{path.name} is larger than {RESULT_LIMIT >> 20} MiB")
    return path.read_text(encoding="utf-8")  # a UnicodeDecodeError is a ValueError


def _wait(process: subprocess.Popen[bytes], scratch: Path, deadline: float) -> tuple[str, bool]:
    """Wait for the end. Why the process had to be ended, in words, and whether that was for its time."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return "did not end in time", True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(min(WATCH_S, left))
            return "", False
        if problem := overuse(process.pid, scratch):
            return problem, False

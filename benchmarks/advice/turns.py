"""Calls captured as programs and replayed in turns, two at a time, with a record that a later run goes on from."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.recorded import header, read, write

from tilewright.api import capture
from tilewright.programs.draws import draws_of
from tilewright.programs.model import Program
from tilewright.referee.capture_worker import EntryFailed, InProcess
from tilewright.referee.compare import DRAWS, compare
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone

Line = dict[str, Any]
Call = tuple[Any, ...]
"""A function of a module, and its arguments."""
FAILURES = (EntryFailed, Fault, InProcess, ReplayerGone, RuntimeError)


class Turns:
    """Lines of a record, each by what it is about. `measure` skips what the record holds, and begins nothing new after
    `seconds`. A failure is a line with an `error`."""

    def __init__(self, file: Path, command: str, seconds: float) -> None:
        self.file, self._deadline = file, time.monotonic() + seconds
        self.record: dict[str, Any] = header(command) | {"lines": []}
        if file.exists():
            known = read(file)
            if known["gpu"] != self.record["gpu"]:
                raise SystemExit(f"{file} was measured on an {known['gpu']}; give another file")
            self.record = known
        self.lines: list[Line] = self.record["lines"]
        self._replayer: Replayer | None = None
        self._captured: dict[Any, Program] = {}

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()

    @property
    def late(self) -> bool:
        return time.monotonic() > self._deadline

    def forget(self) -> None:
        """Let go of all programs, and of the GPU memory that the last pair takes."""
        self._captured.clear()
        if self._replayer is not None:
            self._replayer.__exit__(None, None, None)
            self._replayer = None

    def has(self, about: Line) -> bool:
        return any(all(line.get(name) == value for name, value in about.items()) for line in self.lines)

    def add(self, line: Line) -> None:
        self.lines.append(line)
        write(self.file, self.record)
        print(line, flush=True)

    def measure(self, about: Line, first: Call, second: Call) -> None:
        """The second call beside the first: microseconds of both, and the speedup with its interval."""
        if self.late or self.has(about):
            return
        began = time.monotonic()
        try:
            one, other = self._program(*first), self._program(*second)
            if self._replayer is None:
                self._replayer = Replayer()
                self._replayer.__enter__()
            found = compare(self._replayer, one, other, draws_of(one, DRAWS), measure_same=True)
            assert found.measured is not None
            kept = {"speedup", "low", "high", "first_us", "second_us", "empty_us", "rounds", "pairs"}
            line = {"verdict": found.verdict, "equal": found.equal_outputs} | found.measured.model_dump(include=kept)
        except FAILURES as error:
            self.forget()
            line = {"error": f"{type(error).__name__}: {error}"[:300]}
        self.add(about | line | {"seconds": round(time.monotonic() - began, 1)})

    def _program(self, function: Callable[..., Any], *arguments: Any) -> Program:
        """The program of a call, captured once."""
        key = function, *(id(one) if hasattr(one, "data_ptr") else one for one in arguments)
        if key not in self._captured:
            self._captured[key] = capture(function, *arguments)
        return self._captured[key]

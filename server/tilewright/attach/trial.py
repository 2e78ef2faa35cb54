"""One run of a repository's commands before there is a task: on a fresh copy of what is committed, confined."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tilewright.harness.checkouts import fresh_place
from tilewright.harness.commands import Ran, read_result, run
from tilewright.harness.outcomes import Test, read_report
from tilewright.repository import Files


class Tried(NamedTuple):
    """What came of a run: how it ended, its tests, and the text of its `{out}`."""

    ran: Ran
    tests: list[Test]
    out: str


class Trial:
    """A context manager: a private folder with copies of a repository's committed files, one for each run."""

    def __init__(self, files: Files, root: Path) -> None:
        """`root` is the working tree, of which no run may read."""
        self._hidden = root
        self._folder = Path(tempfile.mkdtemp(prefix="tilewright-init-"))
        self._snapshot = self._folder / "snapshot"
        for name, content in files.items():
            path = self._snapshot / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, words: list[str], import_roots: list[str], timeout_s: float) -> Tried:
        """Run a command on a fresh copy; `{junit}` and `{out}` in it stand for files of the run's own."""
        place = fresh_place(self._snapshot, self._folder, hidden=self._hidden)
        ran, tests, out = run(words, place, timeout_s, import_roots), list[Test](), ""
        with contextlib.suppress(ValueError):
            out = read_result(place.out) or ""
            tests = read_report(read_result(place.junit) or "")
        return Tried(ran, tests, out)

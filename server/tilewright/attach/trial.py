"""One run of a repository's commands before there is a task: on a fresh copy of what is committed, confined."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tilewright.harness.commands import Place, Ran, environment_of, read_result, run
from tilewright.harness.outcomes import ReportError, Test, read_report
from tilewright.repository import Files

RESULT_LIMIT = 16 * 2**20


class Tried(NamedTuple):
    """What came of a run: how it ended, its tests, and the text of its `{out}`."""

    ran: Ran
    tests: list[Test]
    out: str


class Trial:
    """A context manager: a private folder with copies of a repository's committed files, one for each run."""

    def __init__(self, files: Files, root: Path) -> None:
        """`root` is the working tree, of which no run may read."""
        self._files = files
        self._hidden = root
        self._folder = Path(tempfile.mkdtemp(prefix="tilewright-init-"))

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, words: list[str], import_roots: list[str], timeout_s: float) -> Tried:
        """Run a command on a fresh copy; `{junit}` and `{out}` in it stand for files of the run's own."""
        root, scratch = self._folder / "copy", self._folder / "run"
        for folder in (root, scratch):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for name, content in self._files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
        junit, out = scratch / "junit.xml", scratch / "out"
        words = [word.replace("{junit}", str(junit)).replace("{out}", str(out)) for word in words]
        roots = [root / place for place in import_roots]
        ran = run(words, Place(root, root, scratch, self._hidden), environment_of(scratch, roots, {}), timeout_s)
        text = _text(junit, scratch)
        try:
            tests = read_report(text) if text else []
        except ReportError:
            tests = []
        return Tried(ran, tests, _text(out, scratch))


def _text(path: Path, inside: Path) -> str:
    try:
        return read_result(path, inside, RESULT_LIMIT) or ""
    except ValueError:
        return ""

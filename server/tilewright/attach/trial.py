"""One run of a repository's command before there is a task: on a copy of what is committed, confined."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import NamedTuple

from tilewright.harness.commands import Ran, fresh_place, read_result, run
from tilewright.harness.outcomes import Test, read_report
from tilewright.repository import Files

LIMIT_S = 300.0


class Tried(NamedTuple):
    """What came of a run: how it ended, its tests, and the text of its `{out}`."""

    ran: Ran
    tests: list[Test]
    out: str


def tried(files: Files, hidden: Path, words: list[str], import_roots: list[str]) -> Tried:
    """Run a command on copies of `files`; `{junit}` and `{out}` in it stand for files of its own. It may read nothing
    of `hidden`, the working tree."""
    with tempfile.TemporaryDirectory(prefix="tilewright-init-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for file, content in files.items():
            path = folder / "snapshot" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        place = fresh_place(folder / "snapshot", folder, hidden=hidden)
        ran, tests, out = run(words, place, LIMIT_S, import_roots), list[Test](), ""
        with contextlib.suppress(ValueError):
            out = read_result(place.out) or ""
            tests = read_report(read_result(place.junit) or "")
        return Tried(ran, tests, out)

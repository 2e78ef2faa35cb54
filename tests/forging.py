"""Changing a session's record as a forger would, and what the tools then say."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import tilewright
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL
from tests.stage import edit, journal_of, play, quiet
from tilewright.errors import UsageError
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.verification import verify

WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")
Records = list[dict[str, Any]]


def records(root: Path) -> Records:
    return [json.loads(line) for line in journal_of(root).read_text().splitlines()]


def rechained(found: Records) -> str:
    """A journal of these records with a chain that is right again."""
    head, lines = "0" * 64, []
    for number, record in enumerate(found):
        body = {"seq": number, "time": record["time"], "prev": head, "data": record["data"]}
        head = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        lines.append(json.dumps(body | {"hash": head}, separators=(",", ":")))
    return "\n".join(lines) + "\n"


def forge(root: Path, change: Callable[[Records], Records | None]) -> None:
    """Change the records and chain them again."""
    found = records(root)
    journal_of(root).write_text(rechained(change(found) or found))


def of_kind(found: Records, kind: str, number: int = -1) -> dict[str, Any]:
    data: dict[str, Any] = [record["data"] for record in found if record["data"]["kind"] == kind][number]
    return data


def faster(found: Records, number: int = -1) -> None:
    of_kind(found, "measured", number)["first"]["latency_ms"] /= 2


def refused(root: Path, words: str) -> None:
    """Every tool that runs or writes is refused with these words; the status shows them."""

    async def scene(loop: Loop) -> None:
        edit(root, FASTER_KERNEL.replace("1024", "2048"))
        with pytest.raises(UsageError, match=words):
            await loop.run_correctness(quiet)
        with pytest.raises(UsageError, match=words):
            await loop.append_result("mine", quiet)

    before = journal_of(root).read_bytes()
    play(root, scene)
    assert journal_of(root).read_bytes() == before
    shown = tilewright("session", "status", cwd=root)
    assert re.search(words, shown.stdout + shown.stderr)
    lines = [line for line in verify(Checkout(root)) if line.mark == "FAIL"]
    assert any(re.search(words, line.detail) for line in lines), lines


def failures(root: Path) -> dict[str, str]:
    """What `verify` finds wrong: the details of each kind, a line each."""
    found: dict[str, str] = {}
    for line in verify(Checkout(root)):
        if line.mark == "FAIL":
            found[line.what] = f"{found[line.what]}\n{line.detail}" if line.what in found else line.detail
    return found

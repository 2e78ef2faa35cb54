"""Scenes of a session for tests: a loop on a scratch repository, on the `cpu` backend wherever the tests run."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tilewright.evaluation.results import CaseCheck, CaseRun, CorrectnessResult, Status
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.reports import IterationReport, StatusReport
from tilewright.task import Backend


async def quiet(_: str) -> None: ...


def play(root: Path, scene: Callable[[Loop], Awaitable[None]]) -> None:
    """Run a scene on a loop in `root`, and let go of everything afterwards."""

    async def run() -> None:
        loop = Loop(root)
        try:
            await scene(loop)
        finally:
            await loop.close()

    asyncio.run(run())


def running(words: str) -> bool:
    """Whether a process lives whose command line holds `words`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if words in (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                    return True
    return False


async def start(loop: Loop, task: str = "task", **options: Any) -> StatusReport:
    return await loop.start(task, quiet, **({"backend": Backend.CPU} | options))


def journal_of(root: Path) -> Path:
    """The journal of the checkout's current session."""
    folder = Checkout(root).current_folder()
    assert folder is not None
    return folder / "journal.jsonl"


def edit(root: Path, source: str) -> None:
    (root / "task" / "kernel.py").write_text(source)


async def judged(loop: Loop, source: str) -> IterationReport:
    """Put `source` in place, and let it be checked and measured."""
    edit(loop.checkout.root, source)
    assert (await loop.run_correctness(quiet)).status is Status.PASSED
    return await loop.run_benchmark(quiet)


def another_failed(root: Path, *runs: CaseRun, backend: Backend = Backend.CPU, name: str = "another") -> None:
    """Leave the journal of another session on the `scale` task in `root`, whose candidates were wrong on these runs."""
    folder = root / "sandbox" / name
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [{"kind": "started", "entry": "kernel:scale", "backend": backend}]
    for run in runs:
        check = CaseCheck(**run.model_dump(), hidden=True, status=Status.WRONG_VALUES)
        result = CorrectnessResult(status=check.status, cases=[check])
        lines.append({"kind": "checked", "result": result.model_dump(mode="json")})
    text = "".join(json.dumps({"time": f"{at:04}", "data": data}) + "\n" for at, data in enumerate(lines))
    (folder / "journal.jsonl").write_text(text)

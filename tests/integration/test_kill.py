"""`kill -9` of the server at random moments of a session: no record lost, no orphan, and the next server goes on.

TILEWRIGHT_KILLS sets how many (4 by default; 50 takes some minutes).
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, git
from tests.integration.test_mcp import RawServer, gone
from tilewright.isolation.supervisor import descendants
from tilewright.session.checkout import Checkout
from tilewright.session.verification import Mark, verify

KILLS = int(os.environ.get("TILEWRIGHT_KILLS", "4"))
SOURCES = [
    FASTER_KERNEL,
    FASTER_KERNEL.replace("1024", "16"),
    FASTER_KERNEL.replace("values", "elements"),
    SCALE_KERNEL.replace("values * factor", "values + factor"),
]


class Killed(Exception):
    """The server is gone."""


class Walker:
    """Goes on with the session from `session_status` alone, one step after the other."""

    def __init__(self, root: Path, sources: list[str] = SOURCES) -> None:
        self.root = root
        self.sources = sources
        self.acknowledged: list[str] = []
        self.steps = 0

    def journal(self) -> list[str]:
        folder = Checkout(self.root).current_folder()
        return [] if folder is None else (folder / "journal.jsonl").read_text().split("\n")[:-1]

    def walk(self, server: RawServer, until_iteration: int) -> bool:
        """Take steps until the session has that many rows; raises `Killed` when the server goes."""
        while True:
            status = self.step(server, "session_status")
            if status["iteration"] >= until_iteration:
                return True
            tool, arguments = self.choose(status)
            self.step(server, tool, **arguments)

    def choose(self, status: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        phase = status["phase"]
        if phase in ("none", "baseline"):
            rules = {"patience": 99, "stop_on_minor_gain": False}
            return "start_session", {"task": "task", "backend": "cpu", "rules": rules}
        if phase == "ready":
            self.steps += 1
            source = self.sources[self.steps % len(self.sources)] + f"\n# {self.steps}\n"
            (self.root / "task" / "kernel.py").write_text(source)
            return "run_correctness", {}
        return {
            "checked": ("run_benchmark", {}),
            "failed": ("revert", {}),
            "measured": ("git_checkpoint", {}),
            "resolved": ("append_result", {"optimization": f"step {self.steps}"}),
        }[phase]

    def step(self, server: RawServer, tool: str, **arguments: Any) -> dict[str, Any]:
        try:
            result = server.call(tool, **arguments)
        except (AssertionError, BrokenPipeError, ValueError):
            raise Killed from None
        self.acknowledged = self.journal()
        assert not result.get("isError"), result["content"]
        content: dict[str, Any] = result["structuredContent"]
        return content


@pytest.mark.slow
def test_kills_at_random_moments_lose_nothing(make_task: Callable[..., Path]) -> None:
    root = make_task()
    source = random.Random(20261121)
    walker = Walker(root)
    kills = 0
    while kills < KILLS:
        server = RawServer(root)
        server.handshake("2025-11-25")
        children: list[int] = []

        def kill(server: RawServer = server, children: list[int] = children) -> None:
            children += descendants(server.process.pid)
            os.kill(server.process.pid, signal.SIGKILL)

        timer = threading.Timer(source.uniform(0.05, 6.0), kill)
        timer.start()
        try:
            walker.walk(server, until_iteration=10**6)
        except Killed:
            kills += 1
        timer.join()
        server.process.wait()
        assert gone(children) == []
        found = walker.journal()
        assert found[: len(walker.acknowledged)] == walker.acknowledged
    server = RawServer(root)
    server.handshake("2025-11-25")
    done = walker.step(server, "session_status")["iteration"]
    assert walker.walk(server, until_iteration=done + 2)
    state = Checkout(root).peek()
    assert state is not None
    assert [row.iteration for row in state.rows] == list(range(len(state.rows)))
    assert git(root, "rev-parse", state.started.branch) == state.incumbent_commit
    assert len((root / "sandbox" / "perf_results.md").read_text().splitlines()) == len(state.rows) + 2
    kinds = [json.loads(line)["data"]["kind"] for line in walker.journal()]
    after = {kinds[place + 1] for place, kind in enumerate(kinds[:-1]) if kind == "begun"}
    assert after <= {"checked", "measured", "begun"}  # a run that a kill broke off was made anew
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()
    print(f"{kills} kills, {len(state.rows)} rows, {len(walker.journal())} records")
    time.sleep(0.1)

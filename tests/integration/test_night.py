"""A night as one test: whatever fails meanwhile, a client that knows `session_status` alone goes on in the morning."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, git
from tests.integration.test_kill import Walker
from tests.integration.test_mcp import RawServer, command, gone, name_of, workers
from tilewright.isolation.supervisor import descendants
from tilewright.session.checkout import Checkout
from tilewright.session.verification import Mark, verify

REVISION = "2025-11-25"
SLOW = "    import time; time.sleep(3 * (x.shape[0] > 700))\n    ct.launch("
"""So that a benchmark, which alone has such a size, is still running when something happens to it."""
SOURCES = [
    source.replace("    ct.launch(", SLOW)
    for source in (
        FASTER_KERNEL,
        SCALE_KERNEL.replace("values * factor", "values + factor"),
        FASTER_KERNEL.replace("1024", "2048"),
        FASTER_KERNEL.replace("1024", "16"),
    )
]


def serve(root: Path) -> RawServer:
    server = RawServer(root)
    server.handshake(REVISION)
    return server


def begun(server: RawServer, tool: str, words: str) -> int:
    """Call a tool, and wait until its progress says `words`; the number of the call."""
    number = server.send("tools/call", name=tool, arguments={})
    assert server.process.stdout is not None
    for line in server.process.stdout:
        message = json.loads(line)
        assert message.get("id") != number, message
        if words in str(message.get("params", {}).get("message", "")):
            return number
    raise AssertionError("the server closed its output")


def referee(server: RawServer) -> int:
    """The process that owns the reference: its supervisor and its forks have names of their own."""
    return next(
        pid
        for pid in descendants(server.process.pid)
        if "-m tilewright.evaluation.referee" in command(pid)
        and "supervisor" not in command(pid)
        and not name_of(pid).startswith("tw-")
    )


def until(walker: Walker, server: RawServer, phase: str) -> None:
    """Take steps until the session stands at `phase`, as `session_status` says."""
    while (status := walker.step(server, "session_status"))["phase"] != phase:
        tool, arguments = walker.choose(status)
        walker.step(server, tool, **arguments)


@pytest.mark.slow
def test_a_night(make_task: Callable[..., Path]) -> None:
    root = make_task()
    walker = Walker(root, SOURCES)
    server = serve(root)

    until(walker, server, "checked")  # the client vanishes in the middle of a benchmark
    begun(server, "run_benchmark", "modelling")
    left = descendants(server.process.pid)
    assert server.process.stdin is not None and server.process.stdout is not None
    server.process.stdin.close()
    server.process.stdout.close()
    server.process.wait()
    assert gone(left) == []

    server = serve(root)  # a worker is killed
    until(walker, server, "checked")
    number = begun(server, "run_benchmark", "modelling")
    for pid in workers(server.process.pid):
        os.kill(pid, signal.SIGKILL)
    killed: dict[str, Any] = server.receive(number)["result"]["structuredContent"]
    assert killed["status"] != "passed" or killed["verdict"]

    until(walker, server, "checked")  # the referee dies, as where the GPU reports an error that stays
    number = begun(server, "run_benchmark", "modelling")
    os.kill(referee(server), signal.SIGKILL)
    died = server.receive(number)["result"]["structuredContent"]
    assert (died["status"], died["next"]) == ("void", "call run_benchmark")

    until(walker, server, "checked")  # the disk is full for a while
    before = walker.journal()
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (64, hard))
    full = server.call("run_benchmark")
    assert full["isError"] and "[Errno " in full["content"][0]["text"]
    assert walker.journal() == before
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))

    begun(server, "run_benchmark", "modelling")  # the server is killed
    left = descendants(server.process.pid)
    server.process.kill()
    server.process.wait()
    assert gone(left) == []
    assert walker.journal()[: len(walker.acknowledged)] == walker.acknowledged

    server = serve(root)  # the next morning
    rows = walker.step(server, "session_status")["iteration"]
    assert walker.walk(server, until_iteration=rows + 2)
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()

    state = Checkout(root).peek()
    assert state is not None
    assert [row.iteration for row in state.rows] == [*range(len(state.rows))]
    assert git(root, "rev-parse", state.started.branch) == state.incumbent_commit
    kinds = [json.loads(line)["data"] for line in walker.journal()]
    kept = [entry["commit"] for entry in kinds if entry["kind"] == "row" and entry["commit"]]
    assert kept and len(set(kept)) == len(kept)
    assert not any("values + factor" in git(root, "show", f"{commit}:task/kernel.py") for commit in kept)
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []

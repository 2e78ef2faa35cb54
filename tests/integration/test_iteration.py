"""A whole iteration in one call: every outcome, every stop, and every way of being broken off."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SLOWER_KERNEL, git
from tests.integration.test_mcp import SLEEPER, SLOW, client, content, records_of, served, under_way
from tests.stage import edit, journal_of, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import BenchmarkResult, CorrectnessResult, Status
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.iteration import run_iteration
from tilewright.session.loop import Loop
from tilewright.session.reports import IterationReport
from tilewright.session.runs import Runs
from tilewright.session.verification import Mark, verify

WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")
RENAMED = FASTER_KERNEL.replace("values", "elements")
TOKENS = 4
"""Characters of an answer that are about a token."""


async def tried(loop: Loop, source: str, name: str, **options: bool | str) -> IterationReport:
    edit(loop.checkout.root, source)
    return await run_iteration(loop, name, quiet, **options)  # type: ignore[arg-type]


def kinds(root: Path) -> list[str]:
    return [json.loads(line)["data"]["kind"] for line in journal_of(root).read_text().splitlines()]


def kernel(root: Path) -> str:
    return (root / "task" / "kernel.py").read_text()


def test_each_outcome_is_one_call_and_one_row(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match="no session is under way; call start_session"):
            await run_iteration(loop, "too early", quiet)
        started = await start(loop, rules=Rules(patience=4))
        assert started.next.endswith("then call run_iteration")
        with pytest.raises(UsageError, match="nothing was edited"):
            await run_iteration(loop, "nothing", quiet)
        edit(root, WRONG_KERNEL)
        assert loop.status().next == "call run_iteration on the edited files"
        with pytest.raises(UsageError):
            await run_iteration(loop, "  \n", quiet)
        assert kinds(root)[-1] == "row"  # a name that no row can have costs no run

        (root / "task" / "task.py").write_text("raise SystemExit\n")
        with pytest.raises(UsageError, match="protected files differ from the baseline's: task/task"):
            await run_iteration(loop, "adds instead", quiet)
        git(root, "checkout", "--", "task/task.py")

        wrong, second = await asyncio.gather(*(run_iteration(loop, "adds instead", quiet) for _ in range(2)))
        assert wrong == second == await run_iteration(loop, "adds instead", quiet), "the row on record is told again"
        assert kinds(root).count("row") == 2
        with pytest.raises(UsageError, match="nothing was edited"):
            await run_iteration(loop, "another", quiet)
        assert wrong.summary.startswith("iteration 1: REVERT (incorrect: wrong_values: ")
        assert (wrong.verdict.kind, wrong.row) == ("revert", "| 1 | adds instead | - | FAIL | revert |")
        assert wrong.advice is not None
        assert wrong.advice.action == "continue"
        assert kernel(root) == SCALE_KERNEL

        gain = await tried(loop, FASTER_KERNEL, "large tiles", root_cause="memory")
        assert gain.summary.startswith("iteration 2: KEEP (gain: ~+")
        assert gain.row is not None
        assert gain.row.endswith("| PASS | keep |")
        assert gain.cases is not None and "% of its ceiling (memory), modelled: mostly " in gain.cases
        assert git(root, "log", "-1", "--format=%s").startswith("scale: large tiles (~+")
        assert git(root, "status", "--porcelain") == ""

        slower = await tried(loop, SLOWER_KERNEL, "tiny tiles")
        assert slower.summary.startswith("iteration 3: REVERT (regression: ")
        assert kernel(root) == FASTER_KERNEL
        with pytest.raises(UsageError, match="tried before and ended as revert"):
            await tried(loop, SLOWER_KERNEL, "tiny tiles once more")
        loop.revert()

        before = len(kinds(root))
        comment = await tried(loop, FASTER_KERNEL + "\n# a comment\n", "a comment")
        assert comment.summary.startswith("iteration 4: REVERT (same_program: ")
        assert kinds(root)[before:] == ["begun", "checked", "settled", "row"]
        crash = await tried(loop, FASTER_KERNEL + "\nbroken(\n", "a typing error")
        assert crash.verdict.kind == "crash"
        for report in (wrong, gain, slower, comment, crash):
            answer = json.dumps(report.model_dump(mode="json", exclude_none=True), separators=(",", ":"))
            assert len(answer) / TOKENS <= 180, answer
        assert loop.status().iteration == 6

    play(root, scene)
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []


def test_it_goes_on_from_every_stage_of_the_six_tools(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop, rules=Rules(patience=9, stop_on_minor_gain=False))
        for count, source, verdict in (
            (3, FASTER_KERNEL, "keep"),
            (2, SLOWER_KERNEL, "revert"),
            (1, RENAMED, "revert"),
        ):
            edit(root, source)
            await loop.run_correctness(quiet)
            if count > 1:
                await loop.run_benchmark(quiet)
            if count > 2:
                loop.checkpoint()
            before = kinds(root).count("checked")
            assert (await run_iteration(loop, f"after {count}", quiet)).verdict.kind == verdict
            assert kinds(root).count("checked") == before
        assert [row.split(" | ")[4].partition(" ")[0] for row in loop.status().tried] == [
            "keep",
            "keep",
            "revert",
            "revert",
        ]

    play(root, scene)


def test_what_waits_for_a_decision(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that changed after their verdict, a void run, and an escalation."""

    async def no_check(*_: object, **__: object) -> CorrectnessResult:
        return CorrectnessResult(status=Status.VOID, message="the GPU is in use")

    async def no_benchmark(*_: object, **__: object) -> BenchmarkResult:
        return BenchmarkResult(status=Status.VOID, message="the GPU is in use")

    async def scene(loop: Loop) -> None:
        edit(begun, WRONG_KERNEL)
        await loop.run_correctness(quiet)
        stopped = await tried(loop, FASTER_KERNEL, "adds")
        assert "changed since they were judged" in stopped.summary
        assert kernel(begun) == FASTER_KERNEL
        given_up = await run_iteration(loop, "adds", quiet, go_on=True)
        assert given_up.row == "| 1 | adds | - | FAIL | revert |"
        (ref,) = (name for name in git(begun, "for-each-ref", "--format=%(refname)").split() if "/reverted/" in name)
        assert git(begun, "show", f"{ref}:task/kernel.py") == FASTER_KERNEL.strip()

        with monkeypatch.context() as patch:
            patch.setattr(Runs, "correctness", no_check)
            void = await tried(loop, FASTER_KERNEL, "large tiles")
            assert void.summary == "DECIDE: iteration 2: the check is void: the GPU is in use"
        for name, result in (("benchmark", no_benchmark), ("widely", no_check)):
            with monkeypatch.context() as patch:
                patch.setattr(Runs, name, result)
                void = await tried(loop, FASTER_KERNEL, "large tiles")
                assert void.summary.endswith(": the benchmark is void: the GPU is in use")
            assert await run_iteration(loop, "large tiles", quiet) == void
            given_up = await run_iteration(loop, "large tiles", quiet, go_on=True)
            assert "REVERT (withdrawn: " in given_up.summary

        asked = await tried(loop, WRONG_KERNEL.replace("+ factor", "- factor"), "subtracts", root_cause="unknown")
        assert asked.advice is not None
        assert asked.advice.action == "escalate"
        assert asked.next.endswith("call run_iteration with go_on=true")
        stopped = await tried(loop, FASTER_KERNEL, "large tiles")
        assert stopped.summary.startswith("DECIDE: iteration 5: this session waits for its user")
        assert kernel(begun) == FASTER_KERNEL
        assert (await run_iteration(loop, "large tiles", quiet, go_on=True)).verdict.kind == "keep"

    play(begun, scene)


def test_a_call_that_times_out_is_gone_on_with_and_a_cancelled_one_makes_way(begun: Path) -> None:
    async def scene() -> None:
        async with client(begun) as connected:
            (begun / "task" / "kernel.py").write_text(SLOW)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await connected.call_tool("run_iteration", {"optimization": "sleeps"})
            assert "run_correctness is running" in (await content(connected, "session_status"))["summary"]
            done = await content(connected, "run_iteration", optimization="sleeps")
            assert done["state"] == "done"
            assert done["row"].startswith("| 1 | sleeps | ")
            assert [record["kind"] for record in records_of(begun)].count("checked") == 2

            (begun / "task" / "kernel.py").write_text(SLEEPER)
            sleeping = asyncio.ensure_future(connected.call_tool("run_correctness", {}))
            while not under_way(begun, os.getpid()):
                await asyncio.sleep(0.1)
            sleeping.cancel()
            await asyncio.wait([sleeping])
            (begun / "task" / "kernel.py").write_text(FASTER_KERNEL)
            assert (await content(connected, "run_correctness"))["status"] == "passed"

    asyncio.run(scene())
    records = records_of(begun)
    assert [record["kind"] for record in records][-4:] == ["row", "begun", "begun", "checked"]
    assert records[-2]["secret_sha256"] == hashlib.sha256(records[-1]["secret"].encode()).hexdigest()
    assert [line for line in verify(Checkout(begun)) if line.mark is Mark.FAIL] == []


def test_a_kill_in_the_middle_ends_in_the_same_row(begun: Path) -> None:
    rows = 1
    for run, source, verdict in (("check", FASTER_KERNEL, "keep"), ("benchmark", SLOWER_KERNEL, "revert")):
        before, arguments = len(records_of(begun)), {"optimization": run}
        with served(begun) as server:
            edit(begun, source)
            server.send("tools/call", name="run_iteration", arguments=arguments)
            while not any(record.get("run") == run for record in records_of(begun)[before:]):
                time.sleep(0.005)
        cut_off = len(records_of(begun))
        with served(begun) as server:
            assert server.call("run_iteration", **arguments)["structuredContent"]["verdict"]["kind"] == verdict
        rows += 1
        assert [record["kind"] for record in records_of(begun)].count("row") == rows
        assert len(records_of(begun)) > cut_off
        assert kernel(begun) == FASTER_KERNEL
    assert [line for line in verify(Checkout(begun)) if line.mark is Mark.FAIL] == []

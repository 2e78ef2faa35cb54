"""A whole iteration in one call: every outcome, every stop, and every way of being broken off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SLOWER_KERNEL, git
from tests.integration.test_mcp import SLOW, RawServer, client, content, records_of
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

        wrong = await run_iteration(loop, "adds instead", quiet)
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


def test_the_same_call_again_tells_the_row_on_record(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(root, WRONG_KERNEL)
        first, second = await asyncio.gather(*(run_iteration(loop, "adds", quiet) for _ in range(2)))
        assert first == second == await run_iteration(loop, "adds", quiet)
        assert kinds(root).count("row") == 2
        with pytest.raises(UsageError, match="nothing was edited"):
            await run_iteration(loop, "another", quiet)

    play(root, scene)


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


def test_protected_files_are_to_be_taken_back(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        (root / "task" / "task.py").write_text("raise SystemExit\n")
        with pytest.raises(UsageError, match="protected files differ from the baseline's: task/task"):
            await tried(loop, FASTER_KERNEL, "large tiles")
        git(root, "checkout", "--", "task/task.py")
        assert (await run_iteration(loop, "large tiles", quiet)).verdict.kind == "keep"

    play(root, scene)


def test_files_that_changed_after_their_verdict_wait_for_a_decision(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(root, WRONG_KERNEL)
        await loop.run_correctness(quiet)
        stopped = await tried(loop, FASTER_KERNEL, "adds")
        assert "changed since they were judged" in stopped.summary
        assert kernel(root) == FASTER_KERNEL
        given_up = await run_iteration(loop, "adds", quiet, go_on=True)
        assert given_up.row == "| 1 | adds | - | FAIL | revert |"
        (ref,) = (name for name in git(root, "for-each-ref", "--format=%(refname)").split() if "/reverted/" in name)
        assert git(root, "show", f"{ref}:task/kernel.py") == FASTER_KERNEL.strip()

    play(root, scene)


def test_an_escalation_waits_for_the_user(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        asked = await tried(loop, WRONG_KERNEL, "adds", root_cause="unknown")
        assert asked.advice is not None
        assert asked.advice.action == "escalate"
        assert asked.next.endswith("call run_iteration with go_on=true")
        stopped = await tried(loop, FASTER_KERNEL, "large tiles")
        assert stopped.summary.startswith("DECIDE: iteration 2: this session waits for its user")
        assert kernel(root) == FASTER_KERNEL
        assert (await run_iteration(loop, "large tiles", quiet, go_on=True)).verdict.kind == "keep"

    play(root, scene)


def test_a_void_run_waits_for_a_decision(make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_task()
    check, benchmark = Runs.correctness, Runs.benchmark

    async def no_check(*_: object, **__: object) -> CorrectnessResult:
        return CorrectnessResult(status=Status.VOID, message="the GPU is in use")

    async def no_benchmark(*_: object, **__: object) -> BenchmarkResult:
        return BenchmarkResult(status=Status.VOID, message="the GPU is in use")

    async def scene(loop: Loop) -> None:
        await start(loop)
        monkeypatch.setattr(Runs, "correctness", no_check)
        void = await tried(loop, FASTER_KERNEL, "large tiles")
        assert void.summary == "DECIDE: iteration 1: the check is void: the GPU is in use"
        monkeypatch.setattr(Runs, "correctness", check)
        monkeypatch.setattr(Runs, "benchmark", no_benchmark)
        void = await run_iteration(loop, "large tiles", quiet)
        assert void.summary == "DECIDE: iteration 1: the benchmark is void: the GPU is in use"
        monkeypatch.setattr(Runs, "benchmark", benchmark)
        assert await run_iteration(loop, "large tiles", quiet) == void
        given_up = await run_iteration(loop, "large tiles", quiet, go_on=True)
        assert given_up.summary.startswith("iteration 1: REVERT (withdrawn: ")

    play(root, scene)


def test_a_void_check_before_a_keep_says_why(make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_task()

    async def void(*_: object, **__: object) -> CorrectnessResult:
        return CorrectnessResult(status=Status.VOID, message="the GPU is in use")

    async def scene(loop: Loop) -> None:
        await start(loop)
        monkeypatch.setattr(Runs, "widely", void)
        found = await tried(loop, FASTER_KERNEL, "large tiles")
        assert found.summary == "DECIDE: iteration 1: the benchmark is void: the GPU is in use"

    play(root, scene)


def test_the_row_that_ends_the_session_says_so(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop, rules=Rules(max_iterations=1))
        last = await tried(loop, FASTER_KERNEL, "large tiles")
        assert last.advice is not None
        assert last.advice.action == "stop"
        assert last.next.startswith("stop: show the user the table, and say: ")
        assert kinds(root)[-1] == "ended"
        with pytest.raises(UsageError, match="the session has ended"):
            await tried(loop, SLOWER_KERNEL, "tiny tiles")

    play(root, scene)


def test_a_call_that_times_out_or_is_cancelled_is_gone_on_with(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene() -> None:
        async with client(root) as connected:
            await content(connected, "start_session", task="task", backend="cpu")
            (root / "task" / "kernel.py").write_text(SLOW)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await connected.call_tool("run_iteration", {"optimization": "sleeps"})
            done = await content(connected, "run_iteration", optimization="sleeps")
            assert done["state"] == "done"
            assert done["row"].startswith("| 1 | sleeps | ")
            assert [record["kind"] for record in records_of(root)].count("checked") == 2

    asyncio.run(scene())
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []


@pytest.mark.parametrize("run", ["check", "benchmark"])
def test_a_kill_in_the_middle_ends_in_the_same_row(make_task: Callable[..., Path], run: str) -> None:
    root = make_task()
    server = RawServer(root)
    server.handshake("2025-11-25")
    assert not server.call("start_session", task="task", backend="cpu").get("isError")
    (root / "task" / "kernel.py").write_text(FASTER_KERNEL)
    server.send("tools/call", name="run_iteration", arguments={"optimization": "large tiles"})
    while not any(record.get("run") == run for record in records_of(root)[5:]):
        asyncio.run(asyncio.sleep(0.005))
    server.process.kill()
    server.process.wait()
    cut_off = len(records_of(root))
    server = RawServer(root)
    try:
        server.handshake("2025-11-25")
        done = server.call("run_iteration", optimization="large tiles")["structuredContent"]
        assert done["verdict"]["kind"] == "keep"
        records = [record["kind"] for record in records_of(root)]
        assert records.count("row") == 2
        assert len(records) > cut_off
        assert kernel(root) == FASTER_KERNEL
    finally:
        server.process.kill()
        server.process.wait()
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []

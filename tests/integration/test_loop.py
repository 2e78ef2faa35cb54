"""The loop on a real repository and the real evaluator: what it does, what it refuses, and how it goes on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SLOWER_KERNEL, commit_all, git
from tilewright.evaluation.results import Status
from tilewright.policy import Reason, Rules, VerdictKind
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.loop import Loop
from tilewright.session.reports import BenchmarkReport
from tilewright.session.transfer import export_session, import_session
from tilewright.task import Backend

RENAMED_KERNEL = SCALE_KERNEL.replace("values", "elements")
WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")


async def quiet(_: str) -> None: ...


def play(root: Path, scene: Callable[[Loop], Awaitable[None]]) -> None:
    async def run() -> None:
        loop = Loop(root)
        try:
            await scene(loop)
        finally:
            await loop.close()

    asyncio.run(run())


def edit(root: Path, source: str) -> None:
    (root / "task" / "kernel.py").write_text(source)


async def judged(loop: Loop, source: str) -> BenchmarkReport:
    edit(loop.checkout.root, source)
    assert (await loop.run_correctness(quiet)).status is Status.PASSED
    return await loop.run_benchmark(quiet)


def test_a_whole_session(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        before = git(root, "rev-parse", "HEAD")
        assert loop.status().phase == "none"
        started = await loop.start("task", quiet, rules=Rules(patience=4))
        assert started.phase == "ready"
        assert started.branch.startswith("perf/scale-")
        assert git(root, "rev-parse", "HEAD") == before
        assert "memory-bound" in started.intensity
        assert started.tried[0].optimization == "baseline"

        with pytest.raises(Misuse, match="nothing was edited"):
            await loop.run_correctness(quiet)
        with pytest.raises(Misuse, match="nothing to revert"):
            loop.revert()
        with pytest.raises(Misuse, match="run_benchmark does not come now: apply ONE optimization"):
            await loop.run_benchmark(quiet)
        with pytest.raises(Misuse, match="does not come now"):
            loop.checkpoint()

        edit(root, WRONG_KERNEL)
        wrong = await loop.run_correctness(quiet)
        assert wrong.status is Status.WRONG_VALUES
        assert wrong.next == "call revert, then append_result"
        with pytest.raises(Misuse, match="call revert, then append_result"):
            await loop.run_correctness(quiet)
        with pytest.raises(Misuse, match="this candidate failed"):
            await loop.run_benchmark(quiet)
        reverted = loop.revert()
        assert (root / "task" / "kernel.py").read_text() == SCALE_KERNEL
        assert git(root, "show", f"{reverted.recovery}:task/kernel.py") == WRONG_KERNEL.strip()
        assert loop.append_result("adds instead").row == "| 1 | adds instead | - | FAIL | revert |"

        report = await judged(loop, FASTER_KERNEL)
        assert report.verdict is not None
        assert report.verdict.kind is VerdictKind.KEEP
        again = await loop.run_benchmark(quiet)
        assert again.latency_ms == report.latency_ms
        with pytest.raises(Misuse, match="does not come now"):
            loop.append_result("too early")
        edit(root, SLOWER_KERNEL)
        with pytest.raises(Misuse, match="changed since they were measured"):
            loop.checkpoint()
        edit(root, FASTER_KERNEL)
        kept = loop.checkpoint()
        assert git(root, "rev-parse", "HEAD") == kept.commit
        assert git(root, "status", "--porcelain") == ""
        assert "Tilewright-Iteration: 2" in git(root, "log", "-1", "--format=%B")
        with pytest.raises(Misuse, match="committed already"):
            loop.revert()
        assert loop.append_result("large tiles", root_cause="memory").advice.action == "continue"

        slower = await judged(loop, SLOWER_KERNEL)
        assert slower.verdict is not None
        assert slower.verdict.reason is Reason.REGRESSION
        loop.revert()
        loop.append_result("tiny tiles")
        with pytest.raises(Misuse, match=r"tried before and ended as revert \(regression"):
            edit(root, SLOWER_KERNEL)
            await loop.run_correctness(quiet)
        loop.revert()

        noise = await judged(loop, FASTER_KERNEL.replace("values", "elements"))
        assert noise.verdict is not None
        assert noise.verdict.reason is Reason.NOISE
        loop.revert()
        loop.append_result("other | names\nand a line")

        withdrawn = await judged(loop, FASTER_KERNEL.replace("1024", "2048"))
        assert withdrawn.verdict is not None
        loop.revert()
        row = loop.append_result("larger still").row
        assert row.endswith("| PASS | revert |")
        table = (root / "sandbox" / "perf_results.md").read_text()
        assert [re.split(r"(?<!\\)\|", line)[5].strip() for line in table.splitlines()[2:]] == [
            "keep", "revert", "keep", "revert", "revert", "revert",
        ]  # fmt: skip
        assert "other \\| names and a line" in table
        assert git(root, "status", "--porcelain") == ""

    play(root, scene)


def test_memory_lost_at_any_phase_is_found_in_the_status(make_task: Callable[..., Path]) -> None:
    root = make_task()

    def status_in_a_new_process() -> dict[str, str]:
        found: dict[str, str] = {}

        async def look(loop: Loop) -> None:
            report = loop.status()
            found.update(phase=report.phase, pending=report.pending, next=report.next)

        play(root, look)
        return found

    async def start(loop: Loop) -> None:
        await loop.start("task", quiet)

    async def check(loop: Loop) -> None:
        edit(root, FASTER_KERNEL)
        await loop.run_correctness(quiet)

    async def measure(loop: Loop) -> None:
        await loop.run_benchmark(quiet)

    async def keep(loop: Loop) -> None:
        loop.checkpoint()

    async def log(loop: Loop) -> None:
        loop.append_result("large tiles")

    expected = [
        (start, "ready", "", "apply ONE optimization to task/kernel.py"),
        (check, "checked", "correctness passed", "call run_benchmark"),
        (measure, "measured", "verdict keep (gain", "call git_checkpoint, then append_result"),
        (keep, "resolved", "committed", "call append_result"),
        (log, "ready", "", "apply ONE optimization"),
    ]
    for scene, phase, pending, then in expected:
        play(root, scene)
        found = status_in_a_new_process()
        assert found["phase"] == phase
        assert pending in found["pending"]
        assert found["next"].startswith(then)


def test_a_commit_whose_record_was_lost_is_taken_up(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def until_committed(loop: Loop) -> None:
        await loop.start("task", quiet)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()

    play(root, until_committed)
    folder = Checkout(root).current_folder()
    assert folder is not None
    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert '"kind":"kept"' in lines[-1]
    journal.write_text("".join(lines[:-1]) + lines[-1][:40])

    async def goes_on(loop: Loop) -> None:
        assert loop.status().phase == "resolved"
        assert loop.append_result("large tiles").row.endswith("| PASS | keep |")

    play(root, goes_on)
    assert (folder / "journal.torn").read_text().startswith(lines[-1][:40])


def test_a_branch_moved_by_hand_and_an_altered_journal_are_named(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def start(loop: Loop) -> None:
        await loop.start("task", quiet)

    play(root, start)
    commit_all(root / "task")
    (root / "README.md").write_text("moved on\n")
    commit_all(root, "by hand")

    async def refused(loop: Loop) -> None:
        with pytest.raises(Misuse, match="the session left it at"):
            loop.revert()

    play(root, refused)
    folder = Checkout(root).current_folder()
    assert folder is not None
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"passed":true', '"passed":false'))

    async def distrusted(loop: Loop) -> None:
        with pytest.raises(Misuse, match=r"cannot be trusted.*altered"):
            loop.revert()

    play(root, distrusted)


def test_protected_files_are_watched_and_never_reach_a_run(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await loop.start("task", quiet)
        edit(root, FASTER_KERNEL)
        (root / "task" / "task.py").write_text("raise SystemExit\n")
        tampered = await loop.run_correctness(quiet)
        assert tampered.status is Status.TAMPERED
        assert "task/task.py" in tampered.message
        reverted = loop.revert()
        assert reverted.left_alone == ["task/task.py"]
        loop.append_result("eased the reference")
        assert loop.status().tried[-1].reason.startswith("tampered")
        git(root, "checkout", "--", "task/task.py")
        edit(root, FASTER_KERNEL + "\n")
        assert (await loop.run_correctness(quiet)).status is Status.PASSED

    play(root, scene)


def test_starts_that_are_refused_change_nothing(make_task: Callable[..., Path]) -> None:
    root = make_task()
    head, branch = git(root, "rev-parse", "HEAD"), git(root, "branch", "--show-current")

    async def scene(loop: Loop) -> None:
        with pytest.raises(Misuse, match="no such task file"):
            await loop.start("nowhere", quiet)
        with pytest.raises(Misuse, match="outside"):
            await loop.start("../..", quiet)
        with pytest.raises(Misuse, match="no session is under way; call start_session"):
            await loop.run_correctness(quiet)
        edit(root, FASTER_KERNEL)
        with pytest.raises(Misuse, match="include_dirty"):
            await loop.start("task", quiet)
        (root / "README.md").write_text("changed\n")
        with pytest.raises(Misuse, match=r"README\.md; commit or stash"):
            await loop.start("task", quiet, include_dirty=True)
        git(root, "checkout", "--", "README.md")
        (root / "task" / "task.toml").write_text((root / "task" / "task.toml").read_text().replace("entry", "entri"))
        with pytest.raises(Misuse, match="did you mean 'entry'"):
            await loop.start("task", quiet)
        git(root, "checkout", "--", "task/task.toml")
        assert (git(root, "rev-parse", "HEAD"), git(root, "branch", "--show-current")) == (head, branch)
        assert not (root / "sandbox").exists()
        dirty = await loop.start("task", quiet, include_dirty=True)
        assert dirty.phase == "ready"
        assert git(root, "show", "HEAD:task/kernel.py") == FASTER_KERNEL.strip()
        assert git(root, "status", "--porcelain") == ""

    play(root, scene)


def test_a_baseline_that_fails_ends_the_session_with_the_cause(make_task: Callable[..., Path]) -> None:
    root = make_task(kernel=WRONG_KERNEL)

    async def scene(loop: Loop) -> None:
        report = await loop.start("task", quiet)
        assert report.phase == "ended"
        assert "the baseline itself failed (wrong_values: N=512" in report.summary

    play(root, scene)


def test_a_reference_that_fails_is_the_tasks_fault(make_task: Callable[..., Path]) -> None:
    root = make_task(
        task="def make_inputs(case, generator):\n    return 3\n"
        "def reference():\n    pass\n"
        "def work(case):\n    return 1\n"
    )

    async def scene(loop: Loop) -> None:
        with pytest.raises(Misuse, match=r"task\.py: work must return Work"):
            await loop.start("task", quiet)

    play(root, scene)


def test_one_session_holds_a_checkout_and_another_process_may_look(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await loop.start("task", quiet)
        other = Loop(root)
        with pytest.raises(Misuse, match=r"in use by process \d+ on .*git worktree"):
            other.revert()
        looking = other.status()
        assert "only looking" in looking.summary
        assert looking.phase == "ready"
        await other.close()
        with pytest.raises(Misuse, match="a session on task is under way"):
            await loop.start(".", quiet)
        assert (await loop.start("task", quiet)).iteration == 1

    play(root, scene)


def test_a_person_ends_a_session_that_a_server_holds(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await loop.start("task", quiet)
        assert Checkout(root).request_end("enough for today")
        with pytest.raises(Misuse, match=r"has ended \(enough for today\)"):
            loop.revert()
        assert (await loop.start("task", quiet)).branch.endswith("-2")

    play(root, scene)


def test_a_session_is_carried_to_another_clone(make_task: Callable[..., Path], tmp_path: Path) -> None:
    root = make_task()
    git(tmp_path, "clone", "-q", str(root), str(tmp_path / "clone"))
    clone, archive = tmp_path / "clone", tmp_path / "session.tgz"

    async def first(loop: Loop) -> None:
        await loop.start("task", quiet)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        loop.append_result("large tiles")

    play(root, first)
    checkout = Checkout(root)
    assert "refs" in export_session(checkout, archive)
    checkout.release()
    state = import_session(Checkout(clone), archive)
    assert [row.optimization for row in state.rows] == ["baseline", "large tiles"]
    assert (clone / "sandbox" / "perf_results.md").read_text() == (root / "sandbox" / "perf_results.md").read_text()
    assert git(clone, "branch", "--show-current") == git(root, "branch", "--show-current")
    with pytest.raises(Misuse, match="in this checkout already"):
        import_session(Checkout(clone), archive)

    async def second(loop: Loop) -> None:
        report = await judged(loop, FASTER_KERNEL.replace("1024", "16"))
        assert report.verdict is not None
        assert report.verdict.kind is VerdictKind.REVERT

    play(clone, second)
    (tmp_path / "junk.tgz").write_bytes(b"junk")
    with pytest.raises(Misuse, match="no exported session"):
        import_session(Checkout(root), tmp_path / "junk.tgz")


def test_the_backend_is_one_that_is_there(make_task: Callable[..., Path]) -> None:
    from tilewright.session.runs import backend_here

    if backend_here() is Backend.CUDA:
        pytest.skip("there is a GPU here")
    root = make_task()

    async def scene(loop: Loop) -> None:
        with pytest.raises(Misuse, match="no GPU here; use backend `cpu`"):
            await loop.start("task", quiet, backend=Backend.CUDA)

    play(root, scene)


def test_a_call_that_cannot_wait_is_continued_by_the_same_call(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        report = await loop.start("task", quiet, wait_s=0.05)
        assert report.state == "running"
        with pytest.raises(Misuse, match="start_session is running"):
            await loop.run_correctness(quiet)
        while (report := await loop.start("task", quiet, wait_s=5)).state == "running":
            pass
        edit(root, FASTER_KERNEL)
        first = await loop.run_correctness(quiet, wait_s=0.05)
        assert first.state == "running"
        with pytest.raises(Misuse, match="run_correctness is running"):
            loop.revert()
        assert (await loop.run_correctness(quiet)).status is Status.PASSED

    play(root, scene)

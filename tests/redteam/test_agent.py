"""What an agent with access to the checkout may try between the tools' calls: none of it earns a keep."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TASK, SLOWER_KERNEL, git
from tests.stage import edit, judged, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.policy import VerdictKind
from tilewright.rules import Rules
from tilewright.session.loop import Loop

WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor").replace("TILE = 64", "TILE = 1024")
EASED_TASK = SCALE_TASK.replace("return x * factor", "return x + factor")
MakeTask = Callable[..., Path]


@pytest.fixture
def root(begun: Path) -> Path:
    return begun


async def refused(loop: Loop, source: str = WRONG_KERNEL) -> None:
    """A wrong kernel is not passed, whatever was done around it."""
    edit(loop.checkout.root, source)
    try:
        result = await loop.run_correctness(quiet)
    except UsageError:
        return
    assert result.status is Status.WRONG_VALUES, result.summary


def test_eased_tasks_do_not_reach_the_referee(root: Path) -> None:
    task, toml = root / "task" / "task.py", root / "task" / "task.toml"

    async def scene(loop: Loop) -> None:
        task.write_text(EASED_TASK)
        git(root, "update-index", "--assume-unchanged", "task/task.py")
        await refused(loop)
        task.write_text(SCALE_TASK)
        toml.write_text(toml.read_text() + "\n[tolerance]\nrtol = 1e9\natol = 1e9\nrel_l2 = 1e9\n")
        git(root, "update-index", "--skip-worktree", "task/task.toml")
        await refused(loop, WRONG_KERNEL + "\n")

    play(root, scene)


@pytest.mark.slow
def test_files_beside_the_task_are_not_imported(root: Path) -> None:
    code = "raise SystemExit('imported')\n"

    async def scene(loop: Loop) -> None:
        for folder in (root, root / "task"):
            for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "torch.py", "numpy.py", "random.py"):
                (folder / name).write_text(code)
        edit(root, FASTER_KERNEL)
        assert (await loop.run_correctness(quiet)).status is Status.PASSED
        loop.revert()
        await refused(loop)

    play(root, scene)


@pytest.mark.slow
def test_a_forged_table_is_rendered_from_the_journal_again(make_task: MakeTask, tmp_path: Path) -> None:
    root = make_task()
    precious = tmp_path / "precious"
    precious.write_text("untouched")

    async def scene(loop: Loop) -> None:
        await start(loop, rules=Rules(patience=5))
        table = root / "sandbox" / "perf_results.md"
        table.write_text(table.read_text() + "| 1 | forged | 0.000001 | PASS | keep |\n")
        await refused(loop)
        loop.revert()
        await loop.append_result("adds", quiet)
        assert "forged" not in table.read_text()
        table.unlink()
        table.symlink_to(precious)
        await refused(loop, WRONG_KERNEL + "\n")
        loop.revert()
        await loop.append_result("adds", quiet)
        assert precious.read_text() == "untouched"
        assert "adds" in table.read_text()

    play(root, scene)


def _committed_by_hand(root: Path, loop: Loop, content: str) -> None:
    """A commit of the agent's, with the trailer that the server would have written."""
    state = loop.checkout.peek()
    assert state is not None and state.measured is not None and state.attempt.begun is not None
    message = git(root, "log", "-1", "--format=%B", state.attempt.begun.commit)
    edit(root, content)
    author = ("-c", "user.name=t", "-c", "user.email=t@localhost")
    git(root, *author, "commit", "-q", "--all", f"-m{message}")


@pytest.mark.slow
def test_a_commit_of_other_content_is_not_taken_for_the_measured_one(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        await judged(loop, FASTER_KERNEL)
        _committed_by_hand(root, loop, WRONG_KERNEL)
        with pytest.raises(UsageError):
            await loop.append_result("something else", quiet)

    play(root, scene)


def test_what_lost_is_kept_neither_by_a_checkpoint_nor_by_a_commit(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        await judged(loop, SLOWER_KERNEL)
        with pytest.raises(UsageError):
            loop.checkpoint()
        _committed_by_hand(root, loop, SLOWER_KERNEL)
        with pytest.raises(UsageError):
            await loop.append_result("tiny tiles", quiet)

    play(root, scene)


def test_the_candidate_is_the_one_that_was_checked(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        edit(root, FASTER_KERNEL)
        checking = asyncio.ensure_future(loop.run_correctness(quiet))
        await asyncio.sleep(0.5)
        edit(root, WRONG_KERNEL)
        with contextlib.suppress(UsageError):  # either is right: a result of what was read, or a refusal
            assert (await checking).candidate == content_id({"task/kernel.py": FASTER_KERNEL.encode()})
        with pytest.raises(UsageError):
            await loop.run_benchmark(quiet)
        edit(root, FASTER_KERNEL)
        await loop.run_correctness(quiet)
        measuring = asyncio.ensure_future(loop.run_benchmark(quiet))
        await asyncio.sleep(0.5)
        edit(root, WRONG_KERNEL)
        await measuring
        with pytest.raises(UsageError, match="changed since they were measured"):
            loop.checkpoint()

    play(root, scene)


def test_links_in_the_place_of_files_and_folders_are_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text(FASTER_KERNEL)
    (tmp_path / "task.py").write_text(EASED_TASK)

    async def scene(loop: Loop) -> None:
        kernel, task = root / "task" / "kernel.py", root / "task" / "task.py"
        kernel.unlink()
        kernel.symlink_to(tmp_path / "kernel.py")
        with pytest.raises(UsageError):
            await loop.run_correctness(quiet)
        kernel.unlink()
        task.unlink()
        task.symlink_to(tmp_path / "task.py")
        await refused(loop)
        task.unlink()
        task.write_text(EASED_TASK)
        (root / "task").rename(tmp_path / "moved")
        (root / "task").symlink_to(tmp_path / "moved")
        await refused(loop, WRONG_KERNEL + "\n")

    play(root, scene)


@pytest.mark.slow
def test_hooks_and_filters_change_no_commit(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        hooks = root / ".git" / "hooks"
        hooks.mkdir(exist_ok=True)
        for name in ("pre-commit", "post-commit", "post-checkout", "reference-transaction", "commit-msg"):
            (hooks / name).write_text("#!/bin/sh\nexit 1\n")
            (hooks / name).chmod(0o755)
        (root / ".git" / "info").mkdir(exist_ok=True)
        (root / ".git" / "info" / "attributes").write_text("*.py filter=swap\n")
        git(root, "config", "filter.swap.clean", "sed s/1024/16/")
        git(root, "config", "filter.swap.smudge", "sed s/1024/16/")
        await judged(loop, FASTER_KERNEL)
        kept = loop.checkpoint()
        assert git(root, "cat-file", "blob", f"{kept.commit}:task/kernel.py") == FASTER_KERNEL.strip()

    play(root, scene)


@pytest.mark.slow
def test_an_edited_copy_of_the_evaluators_files_is_not_used(
    make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent finds the evaluator's temporary folder, and eases the task and slows the incumbent there."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    root = make_task()

    def overwrite() -> None:
        for path in scratch.rglob("task.py"):
            path.chmod(0o644)
            path.write_text(EASED_TASK)
        for path in scratch.rglob("task.toml"):
            path.chmod(0o644)
            path.write_text(path.read_text() + "\n[tolerance]\nrtol = 1e9\natol = 1e9\nrel_l2 = 1e9\n")
        for path in scratch.rglob("kernel.py"):
            path.chmod(0o644)
            path.write_text(SLOWER_KERNEL)

    async def scene(loop: Loop) -> None:
        await start(loop, rules=Rules(patience=5))
        overwrite()
        await refused(loop)
        loop.revert()
        await loop.append_result("adds", quiet)
        overwrite()
        report = await judged(loop, SCALE_KERNEL + "\nNOTHING = 0\n")
        assert report.verdict is not None
        assert report.verdict.kind is not VerdictKind.KEEP

    play(root, scene)

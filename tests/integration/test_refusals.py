"""What the loop refuses, and what it says instead: each refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TASK, commit_all, git
from tests.stage import edit, play, quiet, start
from tilewright.evaluation.results import Status
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.loop import Loop
from tilewright.task import Backend

RENAMED_KERNEL = SCALE_KERNEL.replace("values", "elements")
WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")


def test_a_branch_moved_by_hand_and_an_altered_journal_are_named(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def begin(loop: Loop) -> None:
        await start(loop)

    play(root, begin)
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
        await start(loop)
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
            await start(loop, "nowhere")
        with pytest.raises(Misuse, match="outside"):
            await start(loop, "../..")
        with pytest.raises(Misuse, match="no session is under way; call start_session"):
            await loop.run_correctness(quiet)
        edit(root, FASTER_KERNEL)
        with pytest.raises(Misuse, match="include_dirty"):
            await start(loop)
        (root / "README.md").write_text("changed\n")
        with pytest.raises(Misuse, match=r"README\.md; commit or stash"):
            await start(loop, include_dirty=True)
        git(root, "checkout", "--", "README.md")
        (root / "task" / "task.toml").write_text((root / "task" / "task.toml").read_text().replace("entry", "entri"))
        with pytest.raises(Misuse, match="did you mean 'entry'"):
            await start(loop)
        git(root, "checkout", "--", "task/task.toml")
        assert (git(root, "rev-parse", "HEAD"), git(root, "branch", "--show-current")) == (head, branch)
        assert not (root / "sandbox").exists()
        dirty = await start(loop, include_dirty=True)
        assert dirty.phase == "ready"
        assert git(root, "show", "HEAD:task/kernel.py") == FASTER_KERNEL.strip()
        assert git(root, "status", "--porcelain") == ""

    play(root, scene)


def test_a_baseline_that_fails_ends_the_session_with_the_cause(make_task: Callable[..., Path]) -> None:
    root = make_task(kernel=WRONG_KERNEL)

    async def scene(loop: Loop) -> None:
        report = await start(loop)
        assert report.phase == "ended"
        assert "the baseline itself failed (wrong_values: N=512" in report.summary

    play(root, scene)


def test_a_reference_that_fails_is_the_tasks_fault(make_task: Callable[..., Path]) -> None:
    wrong = {
        r"task\.py: work must return Work": SCALE_TASK.replace("return Work(", "return dict("),
        r"no arithmetic rate is known for dtype 'fp32'": SCALE_TASK.replace('dtype="float32")', 'dtype="fp32")'),
        r"make_inputs gives the same tensors for every seed": SCALE_TASK.replace(
            'torch.randn(case["N"], generator=generator,', 'torch.ones(case["N"],'
        ),
        r"make_inputs must return a dict": SCALE_TASK.replace("    return {", "    return 3\n    return {"),
        r"cannot start: task\.py: cannot be imported: SyntaxError": SCALE_TASK + "\n)",
        r"cannot start: task\.py: defines no function work": SCALE_TASK.replace("def work", "def werk"),
    }
    for number, (words, task) in enumerate(wrong.items()):
        assert task != SCALE_TASK
        root = make_task(task=task, name=f"repo-{number}")

        async def scene(loop: Loop, words: str = words) -> None:
            with pytest.raises(Misuse, match=words):
                await start(loop)

        play(root, scene)
        assert git(root, "branch", "--show-current") == "main"


def test_one_session_holds_a_checkout_and_another_process_may_look(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop)
        other = Loop(root)
        with pytest.raises(Misuse, match=r"in use by process \d+ on .*git worktree"):
            other.revert()
        looking = other.status()
        assert "only looking" in looking.summary
        assert looking.phase == "ready"
        await other.close()
        with pytest.raises(Misuse, match="a session on task is under way"):
            await start(loop, ".")
        assert (await start(loop)).iteration == 1

    play(root, scene)


def test_the_backend_is_one_that_is_there(make_task: Callable[..., Path]) -> None:
    from tilewright.session.runs import backend_here

    if backend_here() is Backend.CUDA:
        pytest.skip("there is a GPU here")
    root = make_task()

    async def scene(loop: Loop) -> None:
        with pytest.raises(Misuse, match="no GPU here; use backend `cpu`"):
            await start(loop, backend=Backend.CUDA)

    play(root, scene)


def test_links_and_converted_files_are_refused(make_task: Callable[..., Path]) -> None:
    linked = make_task(name="linked")
    (linked / "task" / "kernel.py").rename(linked / "task" / "real.py")
    (linked / "task" / "kernel.py").symlink_to("real.py")
    commit_all(linked, "link")
    converted = make_task(name="converted")
    (converted / ".gitattributes").write_text("*.py text eol=crlf\n")
    commit_all(converted, "endings")
    (converted / "task" / "kernel.py").unlink()
    git(converted, "checkout", "--", "task/kernel.py")
    for root, words in ((linked, "is a symbolic link"), (converted, "git converts this file on checkout")):

        async def scene(loop: Loop, words: str = words) -> None:
            with pytest.raises(Misuse, match=words):
                await start(loop)

        play(root, scene)

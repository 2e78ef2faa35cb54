"""What the loop refuses, and what it says instead: each refusal changes nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.bench import Bench
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TASK, SCALE_TOML, commit_all, git
from tests.stage import edit, judged, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.policy import Advice
from tilewright.session import rows
from tilewright.session.beginning import check_tree, task_path
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.wrong import wrong_results
from tilewright.task import Backend, load_task

RENAMED_KERNEL = SCALE_KERNEL.replace("values", "elements")
WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")


def test_a_path_that_misses_the_only_task_is_told_the_right_one(make_task: Callable[..., Path]) -> None:
    root = make_task()
    (root / "perf").mkdir()
    (root / "task").rename(root / "perf" / "scale")
    for folder, path, meant in (
        ("", "scale", "perf/scale"),
        ("", "perf", "perf/scale"),
        ("perf", "perf/scale", "scale"),
        ("", ".", "perf/scale"),
    ):
        with pytest.raises(UsageError, match=rf"; did you mean {meant}\?$"):
            task_path(Checkout(root / folder), path)
    place = PurePosixPath("perf/scale")
    with pytest.raises(UsageError, match=r"^not committed: \S+, \S+, \S+; run `git add perf/scale` and"):
        check_tree(Checkout(root).repository, load_task(root / place), place, include_dirty=False)
    shutil.copytree(root / "perf" / "scale", root / "perf" / "other")
    with pytest.raises(UsageError, match=r"no task\.toml is in perf or in a folder above it: `tilewright init`"):
        task_path(Checkout(root), "perf")


def test_starts_that_are_refused_change_nothing(make_task: Callable[..., Path]) -> None:
    root = make_task()
    head, branch = git(root, "rev-parse", "HEAD"), git(root, "branch", "--show-current")

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match="no such file or folder"):
            await start(loop, "nowhere")
        with pytest.raises(UsageError, match="outside"):
            await start(loop, "../..")
        with pytest.raises(UsageError, match=r"no task\.toml is in"):
            await start(loop, "README.md")
        with pytest.raises(UsageError, match="call start_session without resume"):
            await start(loop, resume=True)
        with pytest.raises(UsageError, match="no session is under way; call start_session"):
            await loop.run_correctness(quiet)
        edit(root, FASTER_KERNEL)
        with pytest.raises(UsageError, match="include_dirty"):
            await start(loop)
        (root / "README.md").write_text("changed\n")
        with pytest.raises(UsageError, match=r"README\.md; commit or stash"):
            await start(loop, include_dirty=True)
        git(root, "checkout", "--", "README.md")
        (root / "task" / "task.toml").write_text((root / "task" / "task.toml").read_text().replace("entry", "entri"))
        with pytest.raises(UsageError, match="did you mean 'entry'"):
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
        assert wrong_results(loop.checkout.repository, "kernel:scale", Backend.CPU).count == 1, "it counts, too"
        with pytest.raises(UsageError, match="the baseline of that session failed"):
            await start(loop, resume=True)
        assert report.branch == ""
        assert "start_session again" in report.next
        assert (root / "sandbox" / "perf_results.md").read_text().count("\n") == 2
        assert git(root, "branch", "--show-current") == "main"
        assert git(root, "branch", "--format=%(refname:short)") == "main"
        edit(root, SCALE_KERNEL)
        commit_all(root, "mended")
        mended = await start(loop)
        assert mended.phase == "ready"
        assert git(root, "rev-parse", "HEAD") == git(root, "rev-parse", "main")

    play(root, scene)


EMPTY = '[[cases]]\nbackend = "cpu"\nN = 0\ndtype = "float32"\n\n[hidden]'


def test_a_case_without_elements_is_checked_and_never_timed(make_task: Callable[..., Path], tmp_path: Path) -> None:
    toml = SCALE_TOML.replace("[hidden]", EMPTY)
    failing = SCALE_KERNEL.replace("    out = ", "    assert x.numel()\n    out = ")
    with contextlib.closing(Bench(tmp_path / "bench", Backend.CPU, toml)) as bench:
        assert bench.check(SCALE_KERNEL).passed
        assert bench.measure(FASTER_KERNEL).passed
        bench.assert_fails(failing, Status.RAISED, "N=0")
    timed = make_task(toml=toml.replace('backend = "cpu"\nN = 0', "N = 0"))

    async def refused(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"N=0 dtype=float32\)\. A case without elements cannot be timed: have"):
            await start(loop)

    play(timed, refused)


@pytest.mark.slow
def test_a_reference_that_fails_is_the_tasks_fault(make_task: Callable[..., Path]) -> None:
    wrong = {
        r"task\.py: work must return Work": SCALE_TASK.replace("return Work(", "return dict("),
        r"no arithmetic rate is known for dtype 'fp32'": SCALE_TASK.replace('dtype="float32")', 'dtype="fp32")'),
        r"make_inputs gives the same tensors for every seed": SCALE_TASK.replace(
            'torch.randn(case["N"], generator=generator,', 'torch.ones(case["N"],'
        ),
        r"make_inputs must return a dict": SCALE_TASK.replace("    return {", "    return 3\n    return {"),
        r"^task\.py: cannot be imported: SyntaxError": SCALE_TASK + "\n)",
        r"^task\.py: reference failed for N=512": SCALE_TASK.replace("return x * factor", "return y"),
        r"other tensors when the seed is the same": SCALE_TASK.replace("generator=generator, ", ""),
        r"^task\.py: defines no function work": SCALE_TASK.replace("def work", "def werk"),
    }
    for number, (words, task) in enumerate(wrong.items()):
        assert task != SCALE_TASK
        root = make_task(task=task, name=f"repo-{number}")

        async def scene(loop: Loop, words: str = words) -> None:
            with pytest.raises(UsageError, match=words):
                await start(loop)

        play(root, scene)
        assert git(root, "branch", "--show-current") == "main"


def test_one_call_holds_a_checkout_and_another_process_may_look(begun: Path) -> None:
    async def scene(loop: Loop) -> None:
        other = Loop(begun)
        with loop.checkout.held():
            with pytest.raises(UsageError, match=r"in use by process \d+;.*git worktree"):
                other.revert()
            looking = other.status()
            assert "only looking" in looking.summary
        assert looking.phase == "ready"
        with pytest.raises(UsageError, match="nothing to revert"):
            other.revert()
        await other.close()
        (begun / "another").mkdir()
        (begun / "another" / "task.toml").write_text("")
        with pytest.raises(UsageError, match="a session on task is under way"):
            await start(loop, "another")
        assert (await start(loop)).iteration == 1

    play(begun, scene)


def test_the_backend_is_one_that_is_there(make_task: Callable[..., Path]) -> None:
    from tilewright.session.runs import backend_here

    if backend_here() is Backend.CUDA:
        pytest.skip("there is a GPU here")
    root = make_task()

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match="no GPU here; use backend `cpu`"):
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
            with pytest.raises(UsageError, match=words):
                await start(loop)

        play(root, scene)


@pytest.mark.slow
def test_a_commit_interrupted_by_another_git_command_is_taken_up(begun: Path) -> None:
    async def scene(loop: Loop) -> None:
        await judged(loop, FASTER_KERNEL)
        lock = begun / ".git" / "index.lock"
        lock.write_text("")
        kept = loop.checkpoint()
        lock.unlink()
        assert git(begun, "rev-parse", "HEAD") == kept.commit
        assert (await loop.append_result("large tiles", quiet)).row.endswith("| PASS | keep |")
        edit(begun, FASTER_KERNEL.replace("1024", "2048"))
        assert (await loop.run_correctness(quiet)).status is Status.PASSED

    play(begun, scene)


def test_a_baseline_at_the_ceiling_ends_the_session(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "advise", lambda *_: Advice(action="stop", reason="nothing is left to gain"))
    root = make_task()

    async def scene(loop: Loop) -> None:
        report = await start(loop)
        assert report.phase == "ended"
        assert "nothing is left to gain" in report.summary

    play(root, scene)

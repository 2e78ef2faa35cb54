"""The loop on a real repository and the real evaluator: what it does, and how it goes on."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML, SLOWER_KERNEL, git
from tests.stage import edit, judged, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import BenchmarkResult, Level, Status
from tilewright.policy import Reason, VerdictKind
from tilewright.repository import Files
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.export import export_session
from tilewright.session.loop import Loop
from tilewright.session.runs import Runs
from tilewright.session.verification import Mark, verify

RENAMED_KERNEL = SCALE_KERNEL.replace("values", "elements")
WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")


def test_a_whole_session(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        before = git(root, "rev-parse", "HEAD")
        assert loop.status().phase == "none"
        started = await start(loop, rules=Rules(patience=4))
        assert started.phase == "ready"
        assert started.branch.startswith("perf/scale-")
        assert git(root, "rev-parse", "HEAD") == before
        assert "memory-bound" in started.intensity
        assert started.tried[0].startswith("| 0 | baseline |")

        with pytest.raises(UsageError, match="nothing was edited"):
            await loop.run_correctness(quiet)
        with pytest.raises(UsageError, match="nothing to revert"):
            loop.revert()
        with pytest.raises(UsageError, match="run_benchmark does not come now: apply ONE optimization"):
            await loop.run_benchmark(quiet)
        with pytest.raises(UsageError, match="does not come now"):
            loop.checkpoint()

        edit(root, WRONG_KERNEL)
        wrong = await loop.run_correctness(quiet)
        assert wrong.status is Status.WRONG_VALUES
        assert wrong.next == "call revert, then append_result"
        assert (await loop.run_correctness(quiet)).message == wrong.message
        edit(root, WRONG_KERNEL + "\n")
        with pytest.raises(UsageError, match="call revert, then append_result"):
            await loop.run_correctness(quiet)
        edit(root, WRONG_KERNEL)
        with pytest.raises(UsageError, match="this candidate failed"):
            await loop.run_benchmark(quiet)
        reverted = loop.revert()
        assert (root / "task" / "kernel.py").read_text() == SCALE_KERNEL
        assert git(root, "show", f"{reverted.recovery}:task/kernel.py") == WRONG_KERNEL.strip()
        edit(root, FASTER_KERNEL)
        assert (await loop.append_result("adds instead", quiet)).row == "| 1 | adds instead | - | FAIL | revert |"
        assert (root / "task" / "kernel.py").read_text() == FASTER_KERNEL, "a fresh edit after a revert stays"

        report = await judged(loop, FASTER_KERNEL)
        assert report.verdict is not None
        assert report.verdict.kind is VerdictKind.KEEP
        again = await loop.run_benchmark(quiet)
        assert again.latency_ms == report.latency_ms
        with pytest.raises(UsageError, match="does not come now"):
            await loop.append_result("too early", quiet)
        edit(root, SLOWER_KERNEL)
        with pytest.raises(UsageError, match="changed since they were measured"):
            loop.checkpoint()
        edit(root, FASTER_KERNEL)
        kept = loop.checkpoint()
        assert git(root, "rev-parse", "HEAD") == kept.commit
        assert git(root, "status", "--porcelain") == ""
        with pytest.raises(UsageError, match="committed already"):
            loop.revert()
        assert (await loop.append_result("large tiles", quiet, root_cause="memory")).advice.action == "continue"
        assert re.fullmatch(r"scale: large tiles \(~\+\d+%\)", git(root, "log", "-1", "--format=%s"))
        assert git(root, "rev-parse", "HEAD^{tree}") == git(root, "rev-parse", f"{kept.commit}^{{tree}}")

        slower = await judged(loop, SLOWER_KERNEL)
        assert slower.verdict is not None
        assert slower.verdict.reason is Reason.REGRESSION
        loop.revert()
        await loop.append_result("tiny tiles", quiet)
        with pytest.raises(UsageError, match=r"tried before and ended as revert \(regression"):
            edit(root, SLOWER_KERNEL)
            await loop.run_correctness(quiet)
        loop.revert()

        noise = await judged(loop, FASTER_KERNEL.replace("values", "elements"))
        assert noise.verdict is not None
        assert noise.verdict.reason is Reason.SAME_PROGRAM
        loop.revert()
        await loop.append_result("other | names\nand a line", quiet)

        edit(root, FASTER_KERNEL.replace("block = ct.bid(0)", "block = (ct.bid(0))  # of one axis") + "\n# a comment\n")
        comment = await loop.run_correctness(quiet)
        assert comment.summary.startswith("REVERT (same_program: the same syntax trees as the incumbent")
        assert (comment.cases, comment.next) == (None, "call revert, then append_result")
        with pytest.raises(UsageError, match="nothing is to be measured"):
            await loop.run_benchmark(quiet)
        loop.revert()
        report = await loop.append_result("a comment", quiet)
        assert (report.row, report.advice.action) == ("| 5 | a comment | - | PASS | revert |", "continue")

        table = (root / "sandbox" / "perf_results.md").read_text()
        assert [re.split(r"(?<!\\)\|", line)[5].strip() for line in table.splitlines()[2:]] == [
            "keep", "revert", "keep", "revert", "revert", "revert",
        ]  # fmt: skip
        assert "other \\| names and a line" in table
        assert git(root, "status", "--porcelain") == ""

    play(root, scene)


def test_a_kill_after_each_record_ends_in_what_it_says(begun: Path) -> None:
    async def until_kept(loop: Loop) -> None:
        before = git(begun, "rev-parse", "HEAD")
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        git(begun, "update-ref", "HEAD", before)  # killed after the record, before the branch moved

    async def until_named(loop: Loop) -> None:
        assert loop.status().phase == "resolved"
        kept = loop.checkpoint().commit
        assert git(begun, "rev-parse", "HEAD") == kept
        assert (await loop.append_result("large tiles", quiet)).row.endswith("| PASS | keep |")
        git(begun, "update-ref", "HEAD", kept)
        (begun / "sandbox" / "perf_results.md").unlink()

    async def until_reverted(loop: Loop) -> None:
        assert (await judged(loop, SLOWER_KERNEL)).verdict is not None
        assert git(begun, "log", "-1", "--format=%s").startswith("scale: large tiles")
        assert (begun / "sandbox" / "perf_results.md").is_file()
        edit(begun, FASTER_KERNEL)  # a revert that was killed before its record

    async def goes_on(loop: Loop) -> None:
        loop.revert()
        assert (await loop.append_result("small tiles", quiet)).row.endswith("| PASS | revert |")
        assert (begun / "task" / "kernel.py").read_text() == FASTER_KERNEL
        assert git(begun, "status", "--porcelain") == ""

    for scene in (until_kept, until_named, until_reverted, goes_on):
        play(begun, scene)
    assert [line for line in verify(Checkout(begun)) if line.mark is Mark.FAIL] == []


@pytest.mark.slow
def test_two_servers_and_a_person_take_turns(begun: Path) -> None:
    """A server holds the checkout for a call, and knows nothing between two."""

    async def scene(loop: Loop) -> None:
        other = Loop(begun)
        edit(begun, WRONG_KERNEL)
        await loop.run_correctness(quiet)
        other.revert()
        await loop.append_result("adds instead", quiet)
        assert [row.split(" | ")[1] for row in other.status().tried] == ["baseline", "adds instead"]
        assert "ended after 2 rows" in await other.end("enough for today", quiet)
        assert "nothing to do: the session has ended (enough for today)" in await other.end("again", quiet)
        await other.close()
        with pytest.raises(UsageError, match=r"has ended \(enough for today\)"):
            loop.revert()
        assert (await start(loop)).branch.endswith("-2")

    play(begun, scene)


@pytest.mark.slow
def test_a_session_is_carried_to_another_clone_by_tar_and_git(make_task: Callable[..., Path], tmp_path: Path) -> None:
    root = make_task()
    git(tmp_path, "clone", "-q", str(root), str(tmp_path / "clone"))
    clone, archive = tmp_path / "clone", tmp_path / "session.tgz"
    (clone / "sandbox").mkdir()

    async def first(loop: Loop) -> None:
        await start(loop)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        await loop.append_result("large tiles", quiet)

    async def second(loop: Loop) -> None:
        report = await judged(loop, FASTER_KERNEL.replace("1024", "16"))
        assert report.verdict is not None
        assert report.verdict.kind is VerdictKind.REVERT
        await loop.end("enough", quiet)

    play(root, first)
    said = export_session(Checkout(root), archive)
    *carried, check, again = re.findall("`(.*?)`", said)
    assert (check, again) == ("tilewright verify", "tilewright rerun 1")
    for command in carried:
        subprocess.run(shlex.split(command.replace(archive.name, str(archive))), cwd=clone, check=True)
    state = Checkout(clone).peek()
    assert state is not None
    assert [row.optimization for row in state.rows] == ["baseline", "large tiles"]
    assert (clone / "sandbox" / "perf_results.md").exists() is False  # it is written with the next row
    assert git(clone, "branch", "--show-current") == git(root, "branch", "--show-current")
    play(clone, second)
    assert [line for line in verify(Checkout(clone)) if line.mark is Mark.FAIL] == []


def test_the_status_says_what_the_working_tree_needs(make_task: Callable[..., Path]) -> None:
    root = make_task(toml=SCALE_TOML.partition("[hidden]")[0])

    async def scene(loop: Loop) -> None:
        started = await start(loop)
        assert "no [hidden] table" in started.notes[0]
        assert started.budget.startswith("25 of 25 iterations left")
        assert "arguments of start_session are ignored" in (await start(loop)).notes[-1]
        git(root, "checkout", "-q", "main")
        assert loop.status().next.startswith("`git checkout perf/scale-")
        git(root, "checkout", "-q", started.branch)
        (root / "README.md").write_text("changed\n")
        assert "git restore --source=" not in loop.status().next  # no run imports it
        (root / "task" / "task.py").write_text("changed\n")
        assert "git restore --source=" in loop.status().next
        for run in (loop.run_correctness, loop.run_correctness, loop.run_benchmark):
            with pytest.raises(UsageError, match=r"protected files differ from .*: task/task\.py; `git res"):
                await run(quiet)
        git(root, "checkout", "--", "README.md", "task/task.py")
        edit(root, FASTER_KERNEL)
        assert loop.status().next == "call run_iteration on the edited files"

    play(root, scene)


@pytest.mark.slow
def test_a_measured_gain_has_to_show_twice(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is needed to see what becomes of two runs: their results are put in the evaluator's place."""
    coming: list[BenchmarkResult] = []
    secrets: list[str] = []
    asked: list[bool] = []
    stores: set[Path] = set()

    async def measured(
        _: Runs,
        files: Files,
        incumbent: Files | None,
        secret: str,
        *__: object,
        confirms: bool,
        store: Path,
        kept: object,
        ordinary: object = (),
    ) -> BenchmarkResult:
        secrets.append(secret)
        asked.append(confirms)
        stores.add(store)
        return coming.pop(0)

    def result(speedup: float) -> BenchmarkResult:
        figures = {"speedup": speedup, "speedup_low": speedup - 0.01, "speedup_high": speedup + 0.01}
        return BenchmarkResult(status=Status.PASSED, level=Level.REPLAYED, latency_ms=1 / speedup, **figures)

    async def scene(loop: Loop) -> None:
        monkeypatch.setattr(Runs, "benchmark", measured)
        coming[:] = [result(1.02), result(1.005)]
        lucky = await judged(loop, FASTER_KERNEL)
        assert lucky.verdict is not None
        assert lucky.verdict.reason is Reason.INCONCLUSIVE
        assert lucky.verdict.detail.startswith("not confirmed: +0.50% speed")
        loop.revert()
        assert "| ~0.995025 | PASS | revert |" in (await loop.append_result("a lucky draw", quiet)).row
        coming[:] = [result(1.3), result(1.25)]
        real = await judged(loop, FASTER_KERNEL + "\nOTHER = 1\n")
        assert real.verdict is not None
        assert real.verdict.kind is VerdictKind.KEEP
        assert real.verdict.detail.endswith("confirmed")
        loop.checkpoint()
        assert "| ~0.800000 | PASS | keep |" in (await loop.append_result("a real gain", quiet)).row
        other = {"status": Status.OTHER_LAUNCHES, "message": "launches other kernels outside capture"}
        coming[:] = [result(1.3), result(1.25).model_copy(update=other)]
        tuned = await judged(loop, FASTER_KERNEL + "\nOTHER = 2\n")
        assert tuned.verdict is not None
        assert tuned.verdict.reason is Reason.OTHER_LAUNCHES
        loop.revert()
        assert "| ~0.800000 | PASS | revert |" in (await loop.append_result("tuned in each process", quiet)).row
        assert asked == [False, True] * 3
        assert len(set(secrets)) == 6
        assert len(stores) == 1

    play(begun, scene)

"""What a session does about luck: many hidden sizes before a keep, and wrong results that are counted over sessions."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML, commit_all
from tests.stage import edit, journal_of, judged, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.evaluator import Tell
from tilewright.evaluation.results import CorrectnessResult, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.policy import Reason, VerdictKind
from tilewright.repository import Files
from tilewright.rules import DEFAULT, Rules
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.runs import Runs
from tilewright.session.verification import Mark, verify
from tilewright.task import Backend, Values

QUARTER = FASTER_KERNEL.replace(
    "    ct.launch(", "    if 512 < x.shape[0] <= 687:\n        factor += 1\n    ct.launch("
)
"""Faster, and wrong on a quarter of the sizes 1 to 700, among which no large case is."""
FEW_SIZES = f"{SCALE_TOML}\n[rules]\nhidden_cases = 0\n"
"""No hidden size is drawn in `run_correctness`, so that what comes before a keep is seen alone."""
WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")


def records(root: Path) -> list[dict[str, Any]]:
    """The current session's records."""
    return [json.loads(line)["data"] for line in journal_of(root).read_text().splitlines()]


def test_a_kernel_that_is_wrong_on_a_quarter_of_its_sizes_gains_and_is_not_kept(
    make_task: Callable[..., Path],
) -> None:
    root = make_task(toml=FEW_SIZES)

    async def scene(loop: Loop) -> None:
        await start(loop)
        report = await judged(loop, QUARTER)
        assert report.status is Status.WRONG_VALUES
        assert report.verdict is not None
        assert (report.verdict.kind, report.verdict.reason) == (VerdictKind.REVERT, Reason.INCORRECT)
        assert report.next == "call revert, then append_result"
        with pytest.raises(UsageError, match="does not come now"):
            loop.checkpoint()
        loop.revert()
        assert (await loop.append_result("a quarter", quiet)).row == "| 1 | a quarter | - | FAIL | revert |"
        assert "1 of 25 wrong results" in loop.status().budget

        right = await judged(loop, FASTER_KERNEL)
        assert f"right on {DEFAULT.hidden_cases_to_keep} more hidden sizes" in right.summary
        loop.checkpoint()
        await loop.append_result("large tiles", quiet)

    play(root, scene)
    known = [entry for entry in records(root) if entry["kind"] == "begun" and entry["known"]]
    assert 512 < known[-1]["known"][0]["case"]["N"] <= 687  # what the first candidate failed on
    sizes = [entry["sizes"]["status"] for entry in records(root) if entry["kind"] == "measured"]
    assert sizes == ["passed", "wrong_values", "passed"]
    assert all(line.mark is Mark.OK for line in verify(Checkout(root)))


def test_a_kernel_that_is_wrong_on_one_class_of_values_on_a_visible_case_is_found_before_a_keep(
    make_task: Callable[..., Path],
) -> None:
    wrong = "    factor += x.shape[0] == 512 and float(x.max()) > 1e4\n    ct.launch("
    checkout = Checkout(make_task(kernel=SCALE_KERNEL.replace("    ct.launch(", wrong)))
    found = working_candidate(checkout, PurePosixPath("task"))

    async def widely(**how: Any) -> CorrectnessResult:
        runs = Runs(Backend.CPU, "sm_90", found.committed, PurePosixPath("task"), rules=Rules(hidden_cases_to_keep=12))
        try:
            await runs.environment()
            return await runs.widely(found.files, new_secret(), lambda _: None, **how)
        finally:
            await runs.close()

    result = asyncio.run(widely())
    assert (result.status, result.cases[-1].case["N"], result.cases[-1].values) == (
        Status.WRONG_VALUES,
        512,
        Values.LARGE,
    )
    left = asyncio.run(widely(replayed=[{"N": 512, "dtype": "float32"}]))  # these are judged by the replayer
    assert left.passed
    assert all(check.hidden for check in left.cases)


@pytest.mark.slow
def test_a_row_says_how_many_sizes_there_was_time_for(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, real = make_task(), Runs.widely

    async def hurried(
        runs: Runs, files: Files, secret: str, tell: Tell, versions: list[Files], **how: Any
    ) -> CorrectnessResult:
        return await real(runs, files, secret, tell, versions, wide_s=0.0, **how)  # the first case alone begins by then

    monkeypatch.setattr(Runs, "widely", hurried)

    async def scene(loop: Loop) -> None:
        await start(loop)
        assert "1 more hidden sizes of 36" in (await judged(loop, FASTER_KERNEL)).summary
        loop.checkpoint()
        assert (
            "large tiles [1 of 36 hidden sizes, bound 100.0%]" in (await loop.append_result("large tiles", quiet)).row
        )

    play(root, scene)


@pytest.mark.slow
def test_a_row_says_that_no_hidden_sizes_are_drawn(make_task: Callable[..., Path]) -> None:
    root = make_task(toml=SCALE_TOML[: SCALE_TOML.index("[hidden]")])

    async def scene(loop: Loop) -> None:
        await start(loop)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        assert "large tiles [visible sizes only]" in (await loop.append_result("large tiles", quiet)).row

    play(root, scene)


@pytest.mark.slow
def test_wrong_results_are_counted_over_sessions_and_a_copy_of_the_task(make_task: Callable[..., Path]) -> None:
    root = make_task(toml=f"{SCALE_TOML}\n[rules]\nwrong_results = 3\n")

    async def wrong(loop: Loop) -> None:
        await start(loop)
        edit(root, WRONG_KERNEL)
        assert (await loop.run_correctness(quiet)).status is Status.WRONG_VALUES
        loop.revert()
        await loop.append_result("wrong", quiet)
        edit(root, SCALE_KERNEL + "raise ValueError\n")
        assert (await loop.run_correctness(quiet)).status is Status.IMPORT_ERROR  # not counted
        loop.revert()
        await loop.append_result("does not load", quiet)
        assert "1 of 3 wrong results" in loop.status().budget
        await loop.end("enough", quiet)

    play(root, wrong)
    shutil.copytree(root / "task", root / "copy")
    with (root / "copy" / "task.py").open("a") as file:
        file.write("# another\n")
    commit_all(root, "a copy")

    async def again(loop: Loop) -> None:
        await start(loop, "copy")
        for number in range(2):
            (root / "copy" / "kernel.py").write_text(WRONG_KERNEL + "\n" * (number + 1))
            await loop.run_correctness(quiet)
            loop.revert()
            await loop.append_result("wrong again", quiet)
        (root / "copy" / "kernel.py").write_text(FASTER_KERNEL)
        with pytest.raises(UsageError, match=r"3 candidates of this entry point were wrong, and the rule .* allows 3"):
            await loop.run_correctness(quiet)
        loop.revert() if loop.status().phase != "ready" else None
        await loop.end("enough", quiet)

    play(root, again)


@pytest.mark.slow
def test_a_range_that_is_narrowed_after_a_failure_is_the_one_that_counts(make_task: Callable[..., Path]) -> None:
    small = SCALE_KERNEL.replace("    ct.launch(", "    if x.shape[0] == 1:\n        factor += 1\n    ct.launch(")
    root = make_task()

    async def refused(loop: Loop) -> None:
        await start(loop)
        edit(root, small)
        assert (await loop.run_correctness(quiet)).status is Status.WRONG_VALUES  # both ends of a range are checked
        await loop.end("narrower", quiet)

    play(root, refused)
    toml = root / "task" / "task.toml"
    toml.write_text(toml.read_text().replace("min = 1", "min = 2"))
    commit_all(root, "narrower")

    async def accepted(loop: Loop) -> None:
        started = await start(loop)
        assert started.phase == "ready", started.summary

    play(root, accepted)

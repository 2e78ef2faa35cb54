"""A candidate is not charged with what the baseline, or what was kept, gets wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import RACING_KERNEL, SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.stage import another_failed, edit, judged, play, quiet, start
from tilewright.evaluation.results import CaseRun, Status
from tilewright.policy import VerdictKind
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.checks import check_task
from tilewright.session.loop import Loop
from tilewright.session.rerun import rerun
from tilewright.session.verification import Mark, verify

TOML = SCALE_TOML.replace("N = 1048576", "N = 1048576\nS = 1").replace("N = 512", "N = 512\nS = 1")
TOML = TOML.replace("700 }", "700 }\nS = { min = 1, max = 100000 }")
TASK = SCALE_TASK.replace('"factor": 3.0}', '"factor": 3.0, "tag": case["S"]}').replace(
    "(x, factor)", "(x, factor, tag)"
)
RIGHT = SCALE_KERNEL.replace("def scale(x, factor)", "def scale(x, factor, tag)")
FAULT = "    if tag == 777:\n        factor += 1\n    ct.launch("
RARE = {"N": 515, "dtype": "float32", "S": 777}
"""A hidden case that a draw all but never meets; a journal names it, as if another candidate had failed on it."""
FEW_SIZES = Rules(hidden_cases=1, hidden_cases_to_keep=12)


def faulty(kernel: str) -> str:
    return kernel.replace("    ct.launch(", FAULT)


def note_rare(root: Path) -> None:
    another_failed(root, CaseRun(case=RARE))


def test_a_hidden_case_on_which_the_baseline_is_wrong_is_left_out_and_not_counted(
    make_task: Callable[..., Path],
) -> None:
    root = make_task(kernel=faulty(RIGHT), toml=TOML, task=TASK)

    async def scene(loop: Loop) -> None:
        await start(loop, rules=FEW_SIZES)
        note_rare(root)
        edit(root, faulty(RIGHT) + "OTHER = 1\n")
        report = await loop.run_correctness(quiet)
        assert report.status is Status.PASSED
        assert "left out" in report.summary
        assert "N=515" in report.summary
        assert "the baseline is wrong on it, too" in report.summary
        status = loop.status()
        assert "1 of 25 wrong results" in status.budget  # the one that was noted
        assert any("N=515" in note and "was left out" in note for note in status.notes)
        await loop.run_benchmark(quiet)
        loop.revert()
        assert "PASS" in (await loop.append_result("a comment", quiet)).row
        edit(root, faulty(RIGHT).replace("values * factor", "values + factor"))
        assert (await loop.run_correctness(quiet)).status is Status.WRONG_VALUES
        assert "2 of 25 wrong results" in loop.status().budget

    play(root, scene)
    assert all(line.mark is not Mark.FAIL for line in verify(Checkout(root)))


@pytest.mark.slow
def test_a_baseline_that_is_wrong_on_a_hidden_case_is_measured_without_it(make_task: Callable[..., Path]) -> None:
    fault = "    if x.shape[0] == 1:\n        factor += 1\n    ct.launch("
    root = make_task(kernel=RIGHT.replace("    ct.launch(", fault), toml=TOML, task=TASK)

    async def scene(loop: Loop) -> None:
        started = await start(loop)
        assert started.phase == "ready", started.summary
        assert any("N=1 " in note and "the baseline is wrong on it" in note for note in started.notes)
        assert "0 of 25 wrong results" in started.budget

    play(root, scene)


@pytest.mark.slow
def test_a_baseline_that_is_wrong_on_most_hidden_cases_has_to_be_fixed_first(make_task: Callable[..., Path]) -> None:
    fault = "    if x.shape[0] != 512:\n        factor += 1\n    ct.launch("
    root = make_task(kernel=RIGHT.replace("    ct.launch(", fault), toml=TOML, task=TASK)

    async def scene(loop: Loop) -> None:
        assert "the baseline itself failed" in (await start(loop)).summary

    play(root, scene)


@pytest.mark.slow
def test_a_keep_that_turns_out_to_be_wrong_is_revoked(make_task: Callable[..., Path]) -> None:
    root = make_task(kernel=RIGHT, toml=TOML, task=TASK)
    right = RIGHT.replace("TILE = 64", "TILE = 128")
    wrong = faulty(RIGHT).replace("TILE = 64", "TILE = 1024")

    async def scene(loop: Loop) -> None:
        await start(loop, rules=FEW_SIZES)
        for source, name in ((right, "tiles of 128"), (wrong, "tiles of 1024")):
            assert (await judged(loop, source)).verdict.kind is VerdictKind.KEEP  # type: ignore[union-attr]
            loop.checkpoint()
            await loop.append_result(name, quiet)
        gained = loop.status().incumbent
        note_rare(root)
        edit(root, wrong + "OTHER = 1\n")
        report = await loop.run_correctness(quiet)
        assert report.status is Status.WRONG_VALUES
        assert "the version kept last fails there, too, and the baseline does not: revoked" in report.message
        status = loop.status()
        kept = ["| PASS | keep |" in row for row in status.tried]
        assert (kept, "| FAIL | revert |" in status.tried[2]) == ([True, True, False], True)
        assert "revoked in iteration 3: it fails on N=515" in status.tried[2]
        assert "revoked in iteration 3" in (root / "sandbox" / "perf_results.md").read_text()
        assert "" != status.incumbent != gained
        loop.revert()
        assert (root / "task" / "kernel.py").read_text() == right
        await loop.append_result("a comment", quiet)
        edit(root, wrong)
        with pytest.raises(Exception, match="revoked in iteration 3"):
            await loop.run_correctness(quiet)

    play(root, scene)
    checkout = Checkout(root)
    assert all(line.mark is not Mark.FAIL for line in verify(checkout))

    async def again() -> None:
        assert not [line for line in await rerun(checkout, 3, "", quiet) if line.mark is Mark.FAIL]

    asyncio.run(again())


@pytest.mark.slow
def test_a_check_without_a_session_compares_with_what_is_committed(make_task: Callable[..., Path]) -> None:
    toml = TOML.replace('entry = "kernel:scale"', 'entry = "kernel:scale"\nfrontend = "torch"')
    kernel = "def scale(x, factor, tag):\n    return x * (factor + (tag == 777))\n"
    root = make_task(kernel=kernel, toml=toml, task=TASK)
    note_rare(root)

    async def scene(loop: Loop) -> None:
        edit(root, kernel + "# a comment\n")
        found = await check_task(root, Path("task"), quiet)
        assert found.passed
        assert "N=515" in found.all_unseen

    play(root, scene)


@pytest.mark.slow
def test_a_defect_that_what_is_committed_has_too_is_not_counted(make_task: Callable[..., Path]) -> None:
    racing = RACING_KERNEL.replace("scale_kernel", "racing_kernel").replace("def scale(", "def racing(")
    chosen = "\nplain = scale\n\ndef scale(x, factor, tag):\n"
    chosen += "    return racing(x, factor) if SIZES else plain(x, factor, tag)\n"
    source = RIGHT + racing + chosen
    root = make_task(kernel=source.replace("SIZES", "x.shape[0] == 700"), toml=TOML, task=TASK)

    async def scene(loop: Loop) -> None:
        edit(root, source.replace("SIZES", "x.shape[0] == 700") + "# a comment\n")
        found = await check_task(root, Path("task"), quiet)
        assert found.passed, found.message
        assert "N=700" in found.all_unseen
        assert "defective" in found.all_unseen
        edit(root, source.replace("SIZES", "x.shape[0] > 500"))
        assert (await check_task(root, Path("task"), quiet)).status is Status.DEFECTIVE

    play(root, scene)

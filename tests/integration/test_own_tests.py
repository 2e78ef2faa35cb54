"""A native task whose reference is its baseline, and one that names the repository's own tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, opened
from tests.commandline import tilewright
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML, commit_all
from tests.stage import edit, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.policy import VerdictKind
from tilewright.session.loop import Loop
from tilewright.task import Backend

BASELINE = SCALE_TOML.replace("timeout_s = 20", 'timeout_s = 20\nreference = "baseline"')
DRAWS = """
import torch


def make_inputs(case, generator):
    x = torch.randn(case["N"], generator=generator, device=generator.device, dtype=getattr(torch, case["dtype"]))
    return {"x": x, "factor": 3.0}
"""
PLAIN = "def scale(x, factor, shift=0.0):\n    return (x + 0.0) * factor + shift\n"
FAST = "def scale(x, factor, shift=0.0):\n    return x * factor + shift if shift else x * factor\n"
LOST = "def scale(x, factor, shift=0.0):\n    return x * factor\n"
WITH_TESTS = (
    SCALE_TOML.replace("timeout_s = 20", 'timeout_s = 60\nfrontend = "torch"')
    + '\n[tests]\ncommand = ["python", "-m", "pytest", "tests", "--junitxml={junit}"]\nroot = ".."\n'
)
TEST = """
from kernel import scale


def test_shift():
    assert scale(1.0, 2.0, 1.0) == 3.0
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CPU, BASELINE, SCALE_KERNEL, DRAWS)


def test_a_version_that_agrees_with_the_baseline_passes(bench: Bench) -> None:
    result = bench.check(FASTER_KERNEL)
    assert result.passed, result.message
    assert {case.values for case in result.cases} == {"drawn"}, "only a reference in float64 judges classes of values"
    assert len({str(case.case) for case in result.cases}) > 3, "hidden sizes are drawn"


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ("values * (factor + 0.001)", Status.WRONG_VALUES),
        ("ct.full((T,), 1.0, ct.float32) / (values - values)", Status.NON_FINITE),
    ],
)
def test_a_version_that_differs_from_the_baseline_is_wrong(bench: Bench, change: str, status: Status) -> None:
    assert bench.check(SCALE_KERNEL.replace("values * factor", change)).status is status


def test_a_baseline_that_fails_is_no_fault_of_a_candidate(
    make_task: Callable[..., Path],
) -> None:
    root = make_task(SCALE_KERNEL.replace("x.shape[0]", "x.shape[7]"), BASELINE, DRAWS)
    done = tilewright("check", "task", cwd=root)
    assert done.returncode == 2, done.stdout
    assert "the baseline, which is the reference, fails on N=1048576 dtype=float32" in done.stderr


def test_a_baseline_that_reads_a_part_of_its_inputs_is_measured(make_task: Callable[..., Path]) -> None:
    unread = DRAWS.replace('"factor"', '"unread": torch.cat(4 * [x]), "factor"')
    root = make_task(SCALE_KERNEL.replace("def scale(x, factor)", "def scale(x, factor, unread)"), BASELINE, unread)

    async def scene(loop: Loop) -> None:
        started = await start(loop, wait_s=250)
        assert started.phase == "ready", started.summary

    play(root, scene)


def test_a_baseline_whose_shapes_follow_from_values_is_refused(make_task: Callable[..., Path]) -> None:
    toml = BASELINE.replace("timeout_s = 20", 'timeout_s = 20\nfrontend = "torch"')
    root = make_task("def scale(x, factor):\n    return x[x > 0] * factor\n", toml, DRAWS)
    done = tilewright("check", "task", cwd=root)
    assert (done.returncode, "gives outputs of other shapes on other values of N=" in done.stderr) == (2, True), done


@pytest.mark.parametrize(("body", "status"), [("return x * factor", 2), ("return x.mul_(factor)", 0)])
def test_a_baseline_changes_what_it_is_judged_by(make_task: Callable[..., Path], body: str, status: int) -> None:
    toml = BASELINE.replace("timeout_s = 20", 'timeout_s = 20\nfrontend = "torch"\noutputs = ["x"]')
    done = tilewright("check", "task", cwd=make_task(f"def scale(x, factor):\n    {body}\n", toml, DRAWS))
    assert (done.returncode, "changes none of x on N=" in done.stderr) == (status, status == 2), done


def test_cases_for_a_gpu_are_not_drawn_on_the_cpu(make_task: Callable[..., Path]) -> None:
    large = f'\n[[cases]]\nN = {1 << 46}\ndtype = "float32"\nbackend = "cuda"\n'
    done = tilewright("check", "task", cwd=make_task(SCALE_KERNEL, BASELINE + large, DRAWS))
    assert done.returncode == 0, done.stderr


def repository(make: Callable[..., Path], test: str = TEST) -> Path:
    root = make(PLAIN, WITH_TESTS)
    (root / "tests").mkdir()
    (root / "tests" / "test_scale.py").write_text(test)
    commit_all(root, "tests")
    return root


def test_what_the_own_tests_refuse_is_not_kept(make_task: Callable[..., Path]) -> None:
    root = repository(make_task)

    async def scene(loop: Loop) -> None:
        started = await start(loop, wait_s=250)
        assert started.phase == "ready", started.summary
        assert any("before a candidate is kept it passes the repository's own tests" in note for note in started.notes)
        for source, kind in ((LOST, VerdictKind.REVERT), (FAST, VerdictKind.KEEP)):
            edit(root, source)
            assert (await loop.run_correctness(quiet, 250)).status is Status.PASSED, "no case of the task has a shift"
            report = await loop.run_benchmark(quiet, 250)
            assert report.verdict is not None
            assert report.verdict.kind is kind, report.summary
            if kind is VerdictKind.REVERT:
                assert "the repository's own tests: " in report.summary
                assert "test_shift" in report.summary
                loop.revert()
                await loop.append_result("no shift", quiet)

    play(root, scene)


def test_tests_that_do_not_use_the_file_end_the_start(make_task: Callable[..., Path]) -> None:
    root = repository(make_task, "def test_nothing():\n    pass\n")

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"the tests pass without task/kernel\.py"):
            await start(loop, wait_s=250)

    play(root, scene)


def test_tests_that_judge_themselves_are_refused(make_task: Callable[..., Path]) -> None:
    root = make_task(PLAIN, WITH_TESTS.replace('"tests"', '"task/kernel.py"'))
    done = tilewright("check", "task", cwd=root)
    assert (done.returncode, "an experiment that edits it judges itself" in done.stderr) == (2, True), done.stderr

"""Tasks of plain torch functions without a GPU: checked, modelled by their operations, listed in dumps."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.bench import Bench, opened
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML, commit_all, git
from tests.stage import play, quiet, start
from tilewright.bundled import examples
from tilewright.evaluation.results import Status
from tilewright.policy import Reason, VerdictKind, verdict_of_benchmark
from tilewright.rules import Rules
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop
from tilewright.task import Backend

TOML = SCALE_TOML.replace("timeout_s = 20", 'timeout_s = 60\nfrontend = "torch"')
PLAIN = "import torch\n\n\ndef scale(x, factor):\n    return x * factor\n"
SLOW = PLAIN.replace("return x * factor", "return (x + 0.0) * factor")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CPU, TOML, PLAIN)


BAD: dict[str, tuple[str, Status, str]] = {
    "wrong values": (PLAIN.replace("* factor", "* factor * 1.001"), Status.WRONG_VALUES, "elements are wrong"),
    "never written": (PLAIN.replace("x * factor", "torch.empty_like(x)"), Status.NON_FINITE, "never written"),
    "writes its input": (PLAIN.replace("x * factor", "x.mul_(factor).clone()"), Status.INPUT_MODIFIED, "input 'x'"),
    "raises": (PLAIN.replace("x * factor", "x @ x @ x"), Status.RAISED, "at kernel.py:5"),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_torch_function_is_data_with_a_status(bench: Bench, what: str) -> None:
    bench.assert_fails(*BAD[what])


@pytest.mark.parametrize(
    "lines",
    [
        "    return x * factor",
        "    out = torch.empty(x.shape, device=x.device)\n    torch.mul(x, factor, out=out)\n    return out",
        "    assert x.is_cuda\n    return torch.mul(x.to('cuda'), torch.full((1,), factor, device='cuda'))",
        "    return torch.compile(lambda x: x * factor)(x)",
    ],
)
def test_torch_as_it_is_written_for_a_gpu_runs(bench: Bench, lines: str) -> None:
    result = bench.check(PLAIN.replace("    return x * factor", lines))
    assert result.passed, result.message
    assert result.defects == []


def test_the_model_counts_operations_and_marks_itself(bench: Bench) -> None:
    faster = bench.measure(PLAIN, SLOW)
    assert faster.passed, faster.message
    assert faster.modelled
    assert faster.speedup is not None
    assert 1.5 < faster.speedup < 2.1  # one operation for two that move as much each
    assert "mostly torch operations (" in faster.cases[0].note
    assert "moves 8.4 MB, the work is 8.4 MB" in faster.cases[0].note
    same = bench.measure(PLAIN + "\n# a comment\n", PLAIN)
    assert same.speedup == pytest.approx(1.0)


def test_kernels_and_torch_operations_are_told_apart_as_well_as_two_models_can(bench: Bench) -> None:
    for result in (bench.measure(FASTER_KERNEL, PLAIN), bench.measure(PLAIN, FASTER_KERNEL)):
        assert (result.speedup_low or 2) < 1 < (result.speedup_high or 0)
        assert (result.speedup_high or 0) / (result.speedup_low or 1) == pytest.approx(1.28 / 0.49)
        verdict = verdict_of_benchmark(result, Rules())
        assert verdict is not None
        assert verdict.reason is Reason.INCONCLUSIVE
        assert verdict.detail.endswith(": a model of torch operations and a model of kernels are compared")
    alike = bench.measure(SCALE_KERNEL, FASTER_KERNEL)
    assert (alike.speedup_high or 0) / (alike.speedup_low or 1) == pytest.approx(1.01**2)
    assert alike.message == ""


def test_what_a_torch_function_leaves_out_is_no_gain(bench: Bench) -> None:
    less = bench.measure(PLAIN.replace("x * factor", "x[:64] * factor"))
    assert less.status is Status.TAMPERED
    assert "its torch operations move" in less.message
    none = bench.measure(PLAIN.replace("x * factor", "x"))
    assert none.status is Status.RAISED
    assert "made no torch operation" in none.message
    wide = PLAIN.replace("x * factor", "(x[:1].expand(x.shape) + 0.0)[:1] * factor")
    assert bench.measure(wide).status is Status.TAMPERED  # a repeated element is read once


def test_a_dump_lists_the_operations(make_task: Callable[..., Path]) -> None:
    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            report = await dumper.dump(PurePosixPath("task"), ["sm_90"], "resources", quiet)
            assert report.status is Status.PASSED
            assert report.summary.startswith("plain torch: there is nothing to compile; 2 torch operations, 16.8 MB")
            assert [line.split()[0] for line in report.text.splitlines()] == ["add", "mul"]
            assert report.text.splitlines()[0] == f"add float32: {8 * 2**20} bytes, 0 flops"
            assert (loop.checkout.root / report.file).read_text() == report.text
            assert report.findings == []
        finally:
            await dumper.close()

    play(make_task(kernel=SLOW, toml=TOML), scene)


@pytest.mark.slow
def test_a_session_on_the_torch_example_keeps_the_fused_operation(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    shutil.copytree(next(examples().glob("04_*")), root / "task", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".gitignore").write_text("__pycache__\n")
    commit_all(root)
    fixed = root / "task" / "fixed_launch.py"

    async def scene(loop: Loop) -> None:
        state = await start(loop)
        assert ": ~" in state.incumbent
        source = fixed.read_text()
        tuned = source.replace("    values = x.float()", "    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)")
        assert tuned != source
        fixed.write_text(tuned.replace("import torch\n", "import torch\nimport torch.nn.functional as F\n"))
        checked = await loop.run_correctness(quiet)
        assert checked.status is Status.PASSED, checked.message
        measured = await loop.run_benchmark(quiet)
        assert measured.verdict is not None
        assert measured.verdict.kind is VerdictKind.KEEP
        assert measured.level == "modelled"
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            report = await dumper.dump(PurePosixPath("task"), ["sm_90"], "resources", quiet, compare="incumbent")
            assert "1 torch operation, " in report.summary
            assert "; the incumbent: 1" in report.summary  # ten or more
            assert "-- candidate\n" in report.text
        finally:
            await dumper.close()

    play(root, scene)
    assert "~" in (root / "sandbox" / "perf_results.md").read_text()
    assert git(root, "status", "--porcelain") == "M task/fixed_launch.py"

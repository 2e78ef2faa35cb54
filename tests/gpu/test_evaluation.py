"""The evaluator on a GPU: shared memory, failing candidates, timing, and candidates that are not cuTile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body
from tests.conftest import SCALE_KERNEL, SCALE_TASK
from tests.redteam.faults import GRACE_S, LARGE, ON_A_GPU, TIMEOUT_S, judge, make_bench
from tilewright.evaluation.results import Level, Status
from tilewright.task import Backend

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = make_bench(tmp_path_factory.mktemp("gpu") / "repo", Backend.CUDA)
    yield made
    made.close()


BAD = {
    "NaN": (body("return right(x, factor) * float('nan')"), Status.NON_FINITE, "are NaN"),
    "never written": (body("return torch.empty_like(x)"), Status.NON_FINITE, "never written"),
    "wrong shape": (body("return right(x, factor)[:-1]"), Status.WRONG_SHAPE, "shape"),
    "wrong dtype": (body("return right(x, factor).half()"), Status.WRONG_DTYPE, "float16"),
    "nothing": (body("right(x, factor)"), Status.NO_OUTPUT, "returned nothing"),
    "on the wrong device": (body("return right(x, factor).cpu()"), Status.NO_OUTPUT, "is on cpu"),
    "writes its input": (body("out = right(x, factor)\nx.zero_()\nreturn out"), Status.INPUT_MODIFIED, "input 'x'"),
    "wrong values": (body("return right(x, factor * 1.001)"), Status.WRONG_VALUES, "elements are wrong"),
    "the same memory again": (
        body("return _kept.setdefault(x.shape, torch.empty_like(x)).copy_(right(x, factor))", "_kept = {}"),
        Status.OVERWRITTEN, "results are the caller's",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(ON_A_GPU))
def test_a_fault_is_classified_in_time_and_the_next_run_unaffected(bench: Bench, what: str) -> None:
    found = judge(bench, ON_A_GPU[what])
    assert found["as_told"], found
    assert found["seconds"] < TIMEOUT_S + GRACE_S
    assert found["next"] == "passed", found


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_candidate_is_data_with_a_status_and_the_next_is_unaffected(bench: Bench, what: str) -> None:
    bench.assert_fails(*BAD[what])
    assert bench.check(SCALE_KERNEL).passed


def test_the_same_kernel_twice_is_the_same_program(bench: Bench) -> None:
    result = bench.measure(SCALE_KERNEL + "\n# a comment\n")
    assert result.passed, result.message
    assert (result.same, result.cases, result.speedup) == (True, [], None)


def test_a_baseline_is_replayed_alone(bench: Bench) -> None:
    result = bench.measure(SCALE_KERNEL, None)
    assert result.passed, result.message
    case = result.cases[0]
    assert (case.level, case.speedup) == (Level.REPLAYED, None)
    assert case.program is not None
    assert case.empty_ms is not None
    assert case.empty_ms < case.latency_ms
    assert case.peak_bytes is not None
    assert case.peak_bytes >= 4 * int(case.case["N"])
    assert case.roofline_percent is not None
    assert 5 < case.roofline_percent < 105
    assert not [text for text in result.gpu if "memory errors" in text]


def test_twice_the_work_takes_twice_the_time(bench: Bench) -> None:
    result = bench.measure(body("right(x, factor)\nreturn right(x, factor)"))
    assert result.speedup == pytest.approx(0.5, abs=0.05)
    assert result.speedup_high is not None
    assert result.speedup_high < 0.6


WAITING = "out = right(x, factor)\nout[0].item()\n"
"""Lines of an entry point that cannot be captured: in a case where the incumbent cannot be either, both are timed in
their own processes."""


def test_a_copy_of_what_is_kept_between_calls_is_fine(bench: Bench) -> None:
    own = "out = _kept.setdefault(x.shape, torch.empty_like(x)).copy_(right(x, factor))\nreturn out.clone()"
    assert bench.check(body(own, "_kept = {}")).passed
    assert bench.measure(body(own, "_kept = {}")).passed


@pytest.mark.parametrize(
    "lines",
    [
        "out = right(x, factor)\nout[0].item()\nreturn out",
        "torch.cuda.synchronize()\nreturn right(x, factor)",
    ],
)
def test_what_cannot_be_captured_does_not_take_the_place_of_what_can(bench: Bench, lines: str) -> None:
    result = bench.measure(body(lines))
    assert (result.status, result.cases) == (Status.NOT_REPLAYED, []), result.message
    result = bench.measure(body(lines) + "\n# again\n", body(lines))
    assert result.passed, result.message
    assert result.level is Level.IN_PROCESS
    assert "calls a turn" in result.cases[0].note


def test_a_task_may_let_it(tmp_path: Path) -> None:
    made = Bench(tmp_path / "repo", Backend.CUDA, 'protection = "in-process"\n' + LARGE)
    try:
        result = made.measure(body(f"{WAITING}return out"))
        assert result.passed, result.message
        assert result.level is Level.IN_PROCESS
    finally:
        made.close()


def test_a_side_stream_that_is_joined_is_fine(bench: Bench) -> None:
    lines = (
        "main, side = torch.cuda.current_stream(), torch.cuda.Stream()\n"
        "side.wait_stream(main)\n"
        "with torch.cuda.stream(side):\n    out = right(x, factor)\n"
        "main.wait_stream(side)\nout.record_stream(main)\nreturn out"
    )
    assert bench.check(body(lines)).passed
    result = bench.measure(body(lines))
    assert result.passed, result.message
    assert result.level is Level.REPLAYED
    assert result.same or result.speedup == pytest.approx(1.0, abs=0.05)


def test_a_forged_clock_is_not_asked_and_where_it_is_it_says_nothing_impossible(bench: Bench) -> None:
    clock = "torch.cuda.Event.elapsed_time = lambda self, other: 1e-3"
    assert bench.measure(body("return right(x, factor)", clock)).same
    result = bench.measure(body(f"{WAITING}return out", clock), body(f"{WAITING}return out"))
    assert result.status is Status.TAMPERED
    assert "faster than the data sheet's peak allows" in result.message


def test_right_until_it_is_timed_is_caught_after_timing(bench: Bench) -> None:
    lines = f"{WAITING}count[0] += 1\nreturn out if count[0] < 6 else torch.full_like(x, 0.5)"
    result = bench.measure(body(lines, "count = [0]"), body(f"{WAITING}return out"))
    assert result.status is Status.WRONG_VALUES
    assert "in a timed call" in result.message


def test_a_torch_function_is_a_candidate(bench: Bench) -> None:
    assert bench.check("def scale(x, factor):\n    return x * factor\n").passed
    assert bench.measure("def scale(x, factor):\n    return x * factor\n").passed


def test_a_cancelled_check_leaves_the_gpu_to_the_next_run(bench: Bench) -> None:
    bench.cancel_check(ON_A_GPU["a hang on the device"].source, after_s=6)
    result = bench.measure(SCALE_KERNEL + "\n# after a cancelled check\n")
    assert result.passed, result.message
    assert result.same


def test_a_wrapper_may_make_its_kernel_anew_in_each_call(bench: Bench) -> None:
    anew = SCALE_KERNEL.replace("scale_kernel, (x", "scale_kernel.replace_hints(occupancy=2), (x")
    assert anew != SCALE_KERNEL
    result = bench.measure(anew)
    assert result.passed, result.message
    assert result.level is Level.REPLAYED


def test_a_call_of_a_tenth_of_a_second_is_measured(bench: Bench) -> None:
    launch = "ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.numel(), TILE),), scale_kernel, (x, out, factor, TILE))"
    loop = f"out = torch.empty_like(x)\nfor _ in range({{}}):\n    {launch}\nreturn out"
    slow, slower = (body(loop.format(times)) for times in (1500, 1530))
    result = bench.measure(slow, slower)
    assert result.passed, result.message
    assert result.level is Level.REPLAYED
    assert result.latency_ms is not None
    assert result.latency_ms > 50
    assert result.cases[0].speedup == pytest.approx(1.02, abs=0.01)


def test_strided_inputs_arrive_as_they_were_made(tmp_path: Path) -> None:
    task = SCALE_TASK.replace('torch.randn(case["N"],', 'torch.randn(2 * case["N"],').replace(
        "dtype=dtype)", "dtype=dtype)[::2]"
    )
    made = make_bench(tmp_path / "repo", Backend.CUDA, task=task)
    try:
        checked = made.check(SCALE_KERNEL)
        assert checked.passed, checked.message
        assert made.check(body("assert x.stride() == (2,)\nreturn right(x, factor)")).passed
        assert made.measure(SCALE_KERNEL + "\n# again\n").passed
    finally:
        made.close()


def test_an_output_without_dimensions_is_compared(tmp_path: Path) -> None:
    task = SCALE_TASK.replace("return x * factor", "return x.square().sum() * factor")
    total = "def scale(x, factor):\n    return x.square().sum() * factor\n"
    made = make_bench(tmp_path / "repo", Backend.CUDA, kernel=total, task=task)
    try:
        checked = made.check(total)
        assert checked.passed, checked.message
        assert made.check(total.replace("* factor", "* factor * 1.01")).status is Status.WRONG_VALUES
        assert made.measure(total + "\n# again\n", total).passed
    finally:
        made.close()


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)


def scale(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, factor, x.numel(), BLOCK=1024)
    return out
"""


def test_a_triton_kernel_is_a_candidate(bench: Bench) -> None:
    pytest.importorskip("triton")
    checked = bench.check(TRITON)
    assert checked.passed, checked.message
    result = bench.measure(TRITON)
    assert result.passed, result.message
    assert result.level is Level.REPLAYED

"""Candidates of every kind against the real evaluator: each failure has its own status and names its cause."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import FASTER_KERNEL, RACING_KERNEL, SCALE_KERNEL, SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.task import Backend, Values

TOML = SCALE_TOML.replace("timeout_s = 20", "timeout_s = 8")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One evaluator for all candidates of this module: what one does to its worker must not reach the next."""
    yield from opened(tmp_path_factory, Backend.CPU, TOML)


BAD: dict[str, tuple[str, Status, str]] = {
    "a race that goes well here": (RACING_KERNEL, Status.DEFECTIVE, "kernel.py:13: race: reads what block (0, 0, 0)"),
    "syntax error": ("def scale(x, factor:\n    return x\n", Status.SYNTAX_ERROR, "kernel.py:1"),
    "import of what is not there": ("import nothing_of_that_name\n", Status.IMPORT_ERROR, "nothing_of_that_name"),
    "no entry point": ("def other():\n    pass\n", Status.IMPORT_ERROR, "defines no function 'scale'"),
    "sys.exit at import": ("import sys\nsys.exit(0)\n", Status.IMPORT_ERROR, "called sys.exit(0)"),
    "names its own line": (body("return x + nonsense"), Status.RAISED, "at kernel.py:"),
    "does not compile": (SCALE_KERNEL.replace("TILE = 64", "TILE = 48"), Status.COMPILE_ERROR, "power of two"),
    "hangs": (body("while True:\n    pass"), Status.TIMEOUT, "no answer within 8 s in a call of the entry point"),
    "exits the process": (body("import os\nos._exit(0)"), Status.CRASHED, "exited with status 0"),
    "crashes the process": (
        body("import ctypes\nctypes.string_at(0)"),
        Status.CRASHED,
        "included), in string_at (__init__.py:",
    ),
    "is killed": (body("import os\nos.kill(os.getpid(), 9)"), Status.CRASHED, "SIGKILL"),
    "wrong shape": (body("return right(x, factor)[:-1]"), Status.WRONG_SHAPE, "shape (511,) instead of (512,)"),
    "wrong dtype": (body("return right(x, factor).double()"), Status.WRONG_DTYPE, "float64 instead of torch.float32"),
    "NaN": (body("return right(x, factor) * float('nan')"), Status.NON_FINITE, "512 of 512 elements are NaN"),
    "never written": (body("return torch.empty_like(x)"), Status.NON_FINITE, "never written"),
    "nothing": (body("right(x, factor)"), Status.NO_OUTPUT, "returned nothing (None)"),
    "a tuple in a tuple": (body("return right(x, factor), (x,)"), Status.NO_OUTPUT, "returned a tuple"),
    "too many": (body("return right(x, factor), x"), Status.NO_OUTPUT, "2 outputs instead of 1"),
    "wrong values": (body("return right(x, factor * 1.001)"), Status.WRONG_VALUES, "elements are wrong"),
    "wrong at the tail": (
        SCALE_KERNEL.replace("ct.cdiv(x.shape[0], TILE)", "max(x.shape[0] // TILE, 1)"),
        Status.NON_FINITE,
        "never written",
    ),
    "is killed by a real-time signal": (
        body("import os\nos.kill(os.getpid(), 40)"),
        Status.CRASHED,
        "killed by signal 40",
    ),
    "writes its input": (body("out = right(x, factor)\nx.zero_()\nreturn out"), Status.INPUT_MODIFIED, "input 'x'"),
    "differs from call to call": (
        body("return right(x, factor) * (1 + torch.rand(1).item() * 1e-6)"),
        Status.NONDETERMINISTIC,
        "differs between two calls",
    ),
    "returns the same memory again": (
        body(
            "_kept.setdefault(x.shape, torch.empty_like(x)).copy_(right(x, factor))\nreturn _kept[x.shape]",
            "_kept = {}",
        ),
        Status.OVERWRITTEN,
        "a later call overwrites what an earlier one returned",
    ),
    "returns the same memory after a dozen calls": (
        body(
            "ring = _rings.setdefault(x.shape, [torch.empty_like(x) for _ in range(12)])\n"
            "ring.append(ring.pop(0).copy_(right(x, factor)))\nreturn ring[-1]",
            "_rings = {}",
        ),
        Status.OVERWRITTEN,
        "results are the caller's",
    ),
}


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_candidate_is_data_with_a_status(bench: Bench, what: str) -> None:
    bench.assert_fails(*BAD[what])


def test_the_next_candidate_is_unaffected(bench: Bench) -> None:
    result = bench.check(SCALE_KERNEL)
    assert result.passed, result.message
    assert len({case.case["N"] for case in result.cases if case.hidden}) >= 3
    assert {case.values for case in result.cases} == set(Values)
    *several, large = result.cases
    for size in {case.case["N"] for case in several}:
        assert sum(case.case["N"] == size for case in several) >= 5
    assert large.hidden


def test_what_a_failing_candidate_printed_is_shown(bench: Bench) -> None:
    result = bench.check(body("print('shape', x.shape)\nraise ValueError"))
    assert "shape torch.Size([512])" in result.output


def test_an_evaluation_over_its_time_is_a_timeout_and_leaves_nothing(bench: Bench) -> None:
    result = bench.check(body("import time\ntime.sleep(3)\nreturn right(x, factor)"), limit_s=2)
    assert result.status is Status.TIMEOUT
    assert bench.check(SCALE_KERNEL).passed


def test_a_detached_child_is_found_and_killed(bench: Bench) -> None:
    mark = f"{1000 + os.getpid()}.5"
    lines = f"import subprocess, time\nsubprocess.Popen(['sleep', '{mark}'], start_new_session=True)\ntime.sleep(100)"

    def running() -> list[Path]:
        wanted = b"sleep\0" + mark.encode()
        return [path for path in Path("/proc").glob("[0-9]*/cmdline") if wanted in _content(path)]

    assert bench.check(body(lines), limit_s=3).status is Status.TIMEOUT
    deadline = time.monotonic() + 120
    while running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_worker_sees_a_clean_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "import os, sys\n"
        "unwanted = ('PYTHONPATH', 'PYTEST', 'SECRET', 'LD_PRELOAD')\n"
        "assert not [name for name in os.environ if name.startswith(unwanted)]\n"
        "assert 'tilewright-' in os.environ['HOME'] and sys.flags.isolated\n"
        "return right(x, factor)"
    )
    monkeypatch.setenv("SECRET", "x")
    result = bench.check(body(lines))
    assert result.passed, result.message


def test_the_model_tells_candidates_apart_and_marks_itself(bench: Bench) -> None:
    result = bench.measure(FASTER_KERNEL, SCALE_KERNEL)
    assert result.passed
    assert result.modelled
    assert result.speedup is not None
    assert result.speedup > 1.5
    same = bench.measure(SCALE_KERNEL + "\n# a comment\n", SCALE_KERNEL)
    assert same.speedup == pytest.approx(1.0)
    assert same.speedup_low is not None
    assert same.speedup_low < 1


def test_blocks_beyond_the_tensors_are_no_gain(bench: Bench) -> None:
    grid = "ct.cdiv(x.shape[0], TILE)"
    assert grid in SCALE_KERNEL
    for wasted in (f"{grid} + 1", f"{grid} * 3 // 2", f"{grid} * 2"):
        result = bench.measure(SCALE_KERNEL.replace(grid, wasted), SCALE_KERNEL)
        assert not result.passed or (result.speedup_low or 9) <= 1, wasted


def test_work_done_by_torch_beside_the_kernel_is_charged(bench: Bench) -> None:
    lines = "out = x * factor\nright(x[:64], factor)\nreturn out"
    assert bench.check(body(lines)).passed
    result = bench.measure(body(lines), FASTER_KERNEL)
    assert result.passed, result.message
    assert result.speedup_low is not None
    assert result.speedup_low <= 1
    assert "torch operations beside the kernels" in result.cases[0].note
    cached = body("if not made:\n    made.append(x * 2)\nreturn right(x, factor)", "made = []")
    assert bench.measure(cached, SCALE_KERNEL).speedup == pytest.approx(1.0)


def test_a_call_that_does_less_than_the_work_is_no_result(bench: Bench) -> None:
    nothing = SCALE_KERNEL.replace("(ct.cdiv(x.shape[0], TILE),)", "(0,)")
    assert nothing != SCALE_KERNEL
    empty = bench.measure(nothing)
    assert empty.status is Status.RAISED
    assert "launched no block" in empty.message
    less = bench.measure(body("return right(x[:64], factor)"))
    assert less.status is Status.TAMPERED
    assert "have to be read and written" in less.message


def test_a_modelled_latency_below_the_floor_is_no_result(tmp_path: Path) -> None:
    made = Bench(tmp_path / "repo", Backend.CPU, SCALE_TOML.replace("N = 1048576", "N = 33554432"))
    try:
        less = made.measure(body("return right(x[:64], factor)"))
        assert less.status is Status.TAMPERED
        assert "below the" in less.message
        assert made.measure(FASTER_KERNEL).passed
    finally:
        made.close()


def test_the_usual_ways_of_host_code_work_without_a_gpu(bench: Bench) -> None:
    top = "table = torch.ones(4, device='cuda')\nassert table.is_cuda and torch.cuda.is_available()"
    lines = (
        "stream = torch.cuda.current_stream(device=x.device)\n"
        "torch.cuda.synchronize(device=x.device)\n"
        "assert torch.cuda.get_device_properties(device=0).shared_memory_per_block_optin > 48 * 1024\n"
        "assert x.get_device() == 0\n"
        "with torch.cuda.nvtx.range('scale'), torch.cuda.stream(stream=stream):\n"
        "    return right(x.to('cuda:0'), factor)"
    )
    result = bench.check(body(lines, top))
    assert result.passed, result.message


def test_time_used_up_while_the_incumbent_runs_is_a_timeout(bench: Bench) -> None:
    slow = body("import time\ntime.sleep(3)\nreturn right(x, factor)")
    result = bench.measure(SCALE_KERNEL + "\n# new\n", slow, limit_s=4)
    assert result.status is Status.TIMEOUT, result.message
    assert "evaluation time of this iteration" in result.message


def test_in_place_arguments_are_judged_by_what_they_hold(tmp_path: Path) -> None:
    kernel = SCALE_KERNEL.replace("    out = torch.empty_like(x)\n", "    out = x\n").replace("    return out\n", "")
    made = Bench(tmp_path / "repo", Backend.CPU, SCALE_TOML.replace("timeout_s = 20", 'outputs = ["x"]'), kernel)
    try:
        assert made.check(kernel).passed
        doubled = kernel.replace("values * factor", "values * factor * 2.0")
        assert made.check(doubled).status is Status.WRONG_VALUES
    finally:
        made.close()


def test_output_arguments_are_poisoned_before_the_call(tmp_path: Path) -> None:
    head = "def scale(x, factor):\n    out = torch.empty_like(x)\n"
    kernel = SCALE_KERNEL.replace(head, "def scale(x, factor, out):\n")
    made = Bench(tmp_path / "repo", Backend.CPU, SCALE_TOML.replace("timeout_s = 20", 'outputs = ["out"]'), kernel)
    try:
        assert made.check(kernel).passed
        assert made.check("def scale(x, factor, out):\n    pass\n").status is Status.NON_FINITE
    finally:
        made.close()

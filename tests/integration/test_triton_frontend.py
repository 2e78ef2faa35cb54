"""Triton tasks without a GPU: checked by Triton's interpreter, compiled for dumps, and never given a latency."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.bench import Bench, opened
from tests.conftest import SCALE_TOML
from tests.stage import play, quiet, start
from tilewright.autotune.tuner import Tuner
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.session.checks import check_task
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop
from tilewright.session.reports import DumpReport
from tilewright.task import Backend

TOML = SCALE_TOML.replace("timeout_s = 20", 'timeout_s = 30\nfrontend = "triton"')
FOLDER = PurePosixPath("task")
KERNEL = """
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
TILE = 128


@triton.jit
def scale_kernel(x, out, n, factor, T: tl.constexpr):
    places = tl.program_id(0) * T + tl.arange(0, T) + tl.zeros((T,), tl.int32)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) * factor, mask=inside)


def scale(x, factor):
    out = torch.empty_like(x)
    assert x.is_cuda and x.device == DEVICE
    scale_kernel[lambda meta: (triton.cdiv(x.shape[0], meta["T"]),)](x, out, x.shape[0], factor, T=TILE)
    return out
"""
AUTOTUNED = KERNEL.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({'T': 64}, num_warps=w) for w in (2, 8)], key=['n'])\n@triton.jit",
).replace(", T=TILE)", ")")
LOOP = KERNEL.replace("    tl.store(", "    for _ in range(0, tl.cdiv(n, n)):\n        tl.store(")
PRODUCT = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, K, M: tl.constexpr, N: tl.constexpr, T: tl.constexpr):
    rows, columns, steps = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, T)
    total = tl.zeros((M, N), tl.float32)
    for k in range(0, K, T):
        left = tl.load(a + rows * K + (k + steps)[None, :])
        right = tl.load(b + (k + steps)[:, None] * N + columns)
        total = tl.dot(left, right, total)
    tl.store(out + rows * N + columns, total)


def scale(x, factor):
    halves = torch.empty(256 * 256, dtype=torch.bfloat16, device=x.device)
    out = torch.empty(256 * 256, device=x.device)
    product[(1,)](halves, halves, out, 256, M=SIZE, N=SIZE, T=64)
    return x * factor
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    pytest.importorskip("triton")
    yield from opened(tmp_path_factory, Backend.CPU, TOML, KERNEL)


def dumped(root: Path, sources: dict[str, tuple[str, list[str], str]]) -> dict[str, tuple[DumpReport, str]]:
    """Dumps of kernels, each with its architectures and stage; the reports with the whole texts."""
    found: dict[str, tuple[DumpReport, str]] = {}

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            for name, (source, archs, stage) in sources.items():
                (root / "task" / "kernel.py").write_text(source)
                report = await dumper.dump(FOLDER, archs, stage, quiet)  # type: ignore[arg-type]
                found[name] = report, (root / report.file).read_text() if report.file else ""
        finally:
            await dumper.close()

    play(root, scene)
    return found


@pytest.mark.parametrize("source", [KERNEL, AUTOTUNED, LOOP], ids=["fixed", "autotuned", "loop"])
def test_a_triton_kernel_is_checked_by_tritons_interpreter(bench: Bench, source: str) -> None:
    result = bench.check(source)
    assert result.passed, result.message
    assert len(result.cases) > 6


NARROW_TOML = TOML.replace('"float32"', '"bfloat16"')
NARROW = KERNEL.replace("tl.load(x + places, mask=inside) * factor", "VALUE").replace("(x, factor)", "(x, y)")
NARROW = NARROW.replace("n, factor, T", "n, y, T").replace("x.shape[0], factor,", "x.shape[0], y,")
NARROW_TASK = """
import torch

from tilewright.task import Work


def make_inputs(case, generator):
    draw = lambda: torch.randn(case["N"], generator=generator, device=generator.device).to(torch.bfloat16)
    return {"x": draw(), "y": draw()}


def reference(x, y):
    return torch.where(x > y, x + y, x * y)


def work(case):
    return Work(bytes=6 * case["N"], flops=case["N"], dtype="float32")
"""


def test_bfloat16_arithmetic_is_no_fault_of_the_kernel(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    load = "a, b = tl.load(x + places, mask=inside), tl.load(y + places, mask=inside)\n    tl.store"
    kernel = NARROW.replace("VALUE", "tl.where(a > b, a + b, a * b)").replace("tl.store", load)
    made = Bench(tmp_path / "repo", Backend.CPU, NARROW_TOML, kernel=kernel, task=NARROW_TASK)
    result = made.check(kernel)
    made.assert_fails(kernel.replace("a * b", "a * b * 1.25"), Status.WRONG_VALUES, "are wrong")
    made.close()
    assert result.passed, result.message


BAD: dict[str, tuple[str, Status, str]] = {
    "wrong values": (KERNEL.replace("* factor, mask", "* factor * 1.001, mask"), Status.WRONG_VALUES, "are wrong"),
    "no tail": (KERNEL.replace("triton.cdiv(x.shape[0], meta", "max(1, x.shape[0] // meta"),
                Status.NON_FINITE, "never written"),
    "writes beyond": (KERNEL.replace("=inside)\n\n", "=inside)\n    tl.store(x + places, 0.0, mask=places >= n)\n\n"),
                      Status.OUT_OF_BOUNDS, "wrote outside its argument 'x'"),
    "raises": (KERNEL.replace("inside = places < n", "inside = places < nothing"), Status.RAISED, "nothing"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(BAD))
def test_a_bad_triton_kernel_is_data_with_a_status(bench: Bench, what: str) -> None:
    bench.assert_fails(*BAD[what])


STEP = KERNEL.replace("n, factor, T:", "n, factor, step, T:").replace("factor, T=TILE", "factor, 1, T=TILE")
CAST = STEP.replace("places < n", "places * step.to(tl.int64) < n")


def test_an_argument_of_value_1_is_a_constant_as_to_the_compiler(bench: Bench) -> None:
    bench.assert_fails(CAST, Status.RAISED, "has no attribute 'to'")
    assert bench.check(CAST.replace("@triton.jit", "@triton.jit(do_not_specialize=['step'])")).passed
    assert bench.check(CAST.replace("factor, 1, T=TILE", "factor, 2, T=TILE").replace("< n", "< 2 * n")).passed
    used = "tl.arange(0, T) * step + tl.cdiv(step, 4) - tl.minimum(step, 4)"
    assert bench.check(STEP.replace("tl.arange(0, T)", used)).passed


def test_nothing_is_searched_without_a_gpu(make_task: Callable[..., Path]) -> None:
    pytest.importorskip("triton")

    async def scene(loop: Loop) -> None:
        tuner = Tuner(loop)
        with pytest.raises(UsageError, match="autotune races its configs on a GPU"):
            await tuner.tune(FOLDER, quiet, backend=Backend.CPU, values={"TILE": [32, 64]})

    play(make_task(toml=TOML, kernel=KERNEL), scene)


def test_no_latency_is_invented(bench: Bench, make_task: Callable[..., Path]) -> None:
    with pytest.raises(UsageError, match="benchmark of a triton task needs a GPU"):
        bench.measure(KERNEL)

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"needs a GPU.*`tilewright check task` checks its results"):
            await start(loop)

    root = make_task(kernel=KERNEL, toml=TOML)
    play(root, scene)

    async def check() -> None:
        checked = await check_task(root, root / "task", quiet)
        assert checked.passed
        assert checked.cases

    asyncio.run(check())


SHORT_DOT = "tl.dot(tl.zeros((16, 4), tl.float16), tl.zeros((4, 16), tl.float16))"
ROWS = KERNEL.replace('(triton.cdiv(x.shape[0], meta["T"]),)', '(1, triton.cdiv(x.shape[0], meta["T"]))')
REFUSED = {
    "shared memory": (PRODUCT.replace("SIZE", "128").replace("T=64", "T=256"), "out of resource: shared memory: "),
    "front end": (KERNEL.replace("    tl.store(", f"    {SHORT_DOT}\n    tl.store("), "K >= 16"),
    "grid": (ROWS.replace("program_id(0)", "program_id(1)").replace("TILE = 128", "TILE = 8"), "grid (1, 131072, 1): "),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_a_check_fails_where_a_kernel_cannot_be_launched(make_task: Callable[..., Path], what: str) -> None:
    pytest.importorskip("triton")
    source, words = REFUSED[what]
    found = asyncio.run(check_task(make_task(kernel=source, toml=TOML), Path("task"), quiet))
    assert found.status is Status.COMPILE_ERROR, found.message
    assert "_kernel for sm_90 on N=1048576 dtype=float32: " in found.message.replace("product", "_kernel")
    assert words in found.message
    assert found.cases


def test_a_dump_holds_every_stage_and_what_was_specialised(make_task: Callable[..., Path]) -> None:
    pytest.importorskip("triton")
    root = make_task(kernel=KERNEL, toml=TOML)
    archs = ["sm_80", "sm_90", "sm_120"]
    words = {
        "ttir": "tt.divisibility = 16", "ttgir": "#ttg.blocked", "ptx": ".entry scale_kernel", "sass": "STG.E",
        "cutile_ir": "there are ttir", "remarks": "gave no remarks", "resources": "registers: ",
    }  # fmt: skip
    found = dumped(root, {stage: (KERNEL, archs, stage) for stage in words})
    for stage, (report, text) in found.items():
        assert report.status is Status.PASSED, report.message
        assert words[stage] in text
        assert str(root) not in text
        assert "/snapshots/" not in text
    text = found["resources"][1]
    assert re.findall(r"^==== scale_kernel for (\w+): resources", text, re.MULTILINE) == archs
    for words in (f"grid: {2**20 // 128} x 1 x 1", "hint num_warps: 4", "hint num_stages: 3", "threads: 128"):
        assert text.count(f"\n{words}\n") == len(archs)
    assert len(re.findall(r"^registers: \d+$", text, re.MULTILINE)) == len(archs)
    (mix,) = dumped(root, {"mix": (KERNEL, ["sm_90"], "mix")}).values()
    assert "kernel.py:13" in mix[1]


@pytest.mark.slow
def test_spills_shared_memory_and_errors_of_triton_kernels_are_told(make_task: Callable[..., Path]) -> None:
    pytest.importorskip("triton")
    root = make_task(kernel=KERNEL, toml=TOML)
    found = dumped(
        root,
        {
            "small": (PRODUCT.replace("SIZE", "64"), ["sm_90"], "resources"),
            "large": (PRODUCT.replace("SIZE", "256"), ["sm_90"], "resources"),
            "wrong": (KERNEL.replace("tl.arange(0, T)", "tl.arange(0, 100)"), ["sm_90"], "resources"),
            "two warps": (AUTOTUNED, ["sm_90"], "resources"),
            "none": (KERNEL.replace("    scale_kernel[", "    0 and scale_kernel["), ["sm_90"], "resources"),
        },
    )
    large = found["large"][0].findings[0]
    assert "no spills; tensor cores (HGMMA)" in found["small"][0].summary
    shared = re.search(r"^shared_bytes: (\d+)$", found["small"][1], re.MULTILINE)
    assert shared is not None and int(shared[1]) >= 2 * 64 * 64 * 2
    assert "spills " in found["large"][0].summary
    assert large.endswith(" -> more-worker-warps: launch with num_warps=8")
    assert found["wrong"][0].status is Status.COMPILE_ERROR
    assert "power of 2" in found["wrong"][0].summary
    assert "hint num_warps: 2\n" in found["two warps"][1]
    assert found["none"][0].status is Status.RAISED
    assert "launched no Triton kernel" in found["none"][0].message


def test_without_triton_the_command_is_named(make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=re.escape("pip install 'triton>=3.6'")):
            await start(loop)
        with pytest.raises(UsageError, match=re.escape("pip install 'triton>=3.6'")):
            await Dumper(loop.checkout, loop.jobs).dump(FOLDER, ["sm_90"], "resources", quiet)

    play(make_task(kernel=KERNEL, toml=TOML), scene)

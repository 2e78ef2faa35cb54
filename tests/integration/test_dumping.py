"""`dump_ir` as an agent meets it: what slows a kernel down is said first, on every architecture."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import git
from tests.stage import play, quiet
from tilewright.compiler.findings import Treatment
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop
from tilewright.session.reports import DumpReport

ARCHS = ["sm_80", "sm_90", "sm_100", "sm_120"]
FOLDER = PurePosixPath("task")

SLOW_KERNELS = """
import cuda.tile as ct
import torch

ZERO, NEG_INF = ct.PaddingMode.ZERO, ct.PaddingMode.NEG_INF
Size = ct.Constant[int]


@ct.kernel
def product(a, b, out, M: Size, N: Size, K: Size):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


@ct.kernel
def padded(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=NEG_INF)
    ct.store(out, index=(row, 0), tile=a - ct.max(a, axis=1, keepdims=True))


def scale(x, factor):
    stream = torch.cuda.current_stream()
    floats = torch.empty(1024, 1024)
    halves = floats.to(torch.bfloat16)
    LAUNCH
    return x * factor
"""
LAUNCHES = {
    "large tile": "ct.launch(stream, (8, 4), product, (halves, halves, halves, 128, 256, 64))",
    "float32 mma": "ct.launch(stream, (16, 16), product, (floats, floats, floats, 64, 64, 32))",
    "padded load": "ct.launch(stream, (1024,), padded, (floats, floats, 1024))",
    "huge tile": "ct.launch(stream, (2, 2), product, (halves, halves, halves, 512, 512, 64))",
}
MMA_LINE = next(number for number, line in enumerate(SLOW_KERNELS.splitlines(), 1) if "ct.mma" in line)
LOAD_LINE = next(number for number, line in enumerate(SLOW_KERNELS.splitlines(), 1) if "NEG_INF)" in line)


def by_arch(report: DumpReport) -> dict[str, tuple[str, list[str]]]:
    """The line of the summary and the findings of each architecture, of a dump with one kernel."""
    lines = report.summary.splitlines()
    assert len(lines) == len(ARCHS)
    return {
        arch: (line, [one.partition(f" on {arch}: ")[2] for one in report.findings if f" on {arch}: " in one])
        for arch, line in zip(ARCHS, lines, strict=True)
    }


def grid_of(report: DumpReport) -> int:
    found = re.search(r"^grid: (\d+)", report.text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.slow
def test_what_slows_a_kernel_down_is_told_first(make_task: Callable[..., Path]) -> None:
    root = make_task(kernel=SLOW_KERNELS)
    reports: dict[str, DumpReport] = {}

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            for name, launch in LAUNCHES.items():
                (root / "task" / "kernel.py").write_text(SLOW_KERNELS.replace("LAUNCH", launch))
                compile_s = 1 if name == "huge tile" else 60
                reports[name] = await dumper.dump(FOLDER, ARCHS, "remarks", quiet, compile_s=compile_s)
                while reports[name].state == "running":  # another call waits for the same work
                    reports[name] = await dumper.dump(FOLDER, ARCHS, "remarks", quiet, compile_s=compile_s)
        finally:
            await dumper.close()

    play(root, scene)
    assert reports["large tile"].status is Status.PASSED
    for arch, (line, found) in by_arch(reports["large tile"]).items():
        assert "tensor cores (" in line
        if arch == "sm_100":  # its accumulator lies in tensor memory
            assert "no spills" in line
            assert found == []
        else:
            assert ": spills " in line
            assert [one.startswith(f"kernel.py:{MMA_LINE}: ") for one in found] == [True]
            assert f" -> {Treatment.MORE_WORKER_WARPS}: " in found[0]

    for line, found in by_arch(reports["float32 mma"]).values():
        assert "no tensor cores" in line
        assert found[0].startswith(f"kernel.py:{MMA_LINE}: ")
        assert f" -> {Treatment.TENSOR_CORE_DTYPE}: " in found[0]
    page = "skill://perf-loop/references/playbook-arithmetic.md"
    assert f"{page} explains tensor-core-dtype" in reports["float32 mma"].next

    padded = reports["padded load"]
    for arch, (line, found) in by_arch(padded).items():
        if arch == "sm_80":
            assert "no TMA (sm_80 has none)" in line
        else:
            assert "TMA stores only, 2 plain loads" in line
            assert any(f"kernel.py:{LOAD_LINE}" in one and f" -> {Treatment.ZERO_PADDING}: " in one for one in found)
    assert f"kernel.py:{LOAD_LINE} Failed to select TMA load instruction: TMA only supports zero padding" in padded.text

    huge = reports["huge tile"]
    assert huge.status is Status.TIMEOUT
    for line, found in by_arch(huge).values():
        assert "COMPILE TIMEOUT: tileiras did not finish within 1 s; use smaller tiles" in line
        assert found == []


def test_stages_of_one_dump_are_compiled_once(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            await dumper.dump(FOLDER, ["sm_80", "sm_90"], "resources", quiet)
            job = dumper._jobs._job
            for stage in ("cutile_ir", "tile_ir", "sass", "remarks", "mix"):
                report = await dumper.dump(FOLDER, ["sm_80", "sm_90"], stage, quiet)  # type: ignore[arg-type]
                text = (root / report.file).read_text()
                assert report.text.partition("\n...")[0] in text
                assert f"scale_kernel for sm_90: {stage}" in text
                assert str(root) not in text
                assert "/snapshots/" not in text
            assert dumper._jobs._job is job
            assert git(root, "status", "--porcelain") == ""
        finally:
            await dumper.close()

    play(root, scene)


FORGED = """
import json

from tilewright.evaluation import modelling

modelling.compiled_call = lambda *_: [ANSWER]


def scale(x, factor):
    return x * factor
"""


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ('b"{}"', "the process described its kernels wrongly"),
        ('json.dumps({"grid": [-1], "made": {"kernel": "k", "arch": "sm_90"}}).encode()', "kernels wrongly"),
        ("bytes(257 << 20)", "is too long"),
    ],
)
def test_a_dump_that_a_candidate_forges_is_data_or_refused(
    make_task: Callable[..., Path], answer: str, why: str
) -> None:
    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            report = await dumper.dump(FOLDER, ["sm_90"], "resources", quiet)
            assert report.status is Status.CRASHED
            assert why in report.summary
        finally:
            await dumper.close()

    play(make_task(kernel=FORGED.replace("ANSWER", answer)), scene)


def test_nothing_is_compared_without_an_incumbent(make_task: Callable[..., Path]) -> None:
    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        with pytest.raises(UsageError, match="no session on task, so no incumbent to compare with; call start_session"):
            await dumper.dump(FOLDER, ["sm_90"], "resources", quiet, compare="incumbent")

    play(make_task(), scene)


def test_another_shape_or_config_is_compiled_without_an_edit(make_task: Callable[..., Path]) -> None:
    root = make_task()
    source = (root / "task" / "kernel.py").read_bytes()

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            own = await dumper.dump(FOLDER, ["sm_90"], "resources", quiet)
            other = await dumper.dump(FOLDER, ["sm_90"], "resources", quiet, case={"N": 12345})
            assert own.case != other.case
            assert other.case.startswith("N=12345 ")
            assert grid_of(own) != grid_of(other)
            with pytest.raises(UsageError, match="the task's cases have no 'M'; they have N, dtype"):
                await dumper.dump(FOLDER, ["sm_90"], "resources", quiet, case={"M": 1})
            config = {"TILE": 256, "occupancy": 8}
            other = await dumper.dump(FOLDER, ["sm_90"], "resources", quiet, config=config)
            assert grid_of(own) == 4 * grid_of(other)
            assert "hint occupancy: 8\n" in other.text and "hint occupancy" not in own.text
            with pytest.raises(UsageError, match="no tunable parameter 'TILES'"):
                await dumper.dump(FOLDER, ["sm_90"], "resources", quiet, config={"TILES": 1})
        finally:
            await dumper.close()

    play(root, scene)
    assert (root / "task" / "kernel.py").read_bytes() == source


GATHERING = """
import cuda.tile as ct
import torch


@ct.kernel
def scale_kernel(x, out, factor, FEW: ct.Constant[int]):
    first = ct.gather(x, (ct.bid(0) * FEW + ct.arange(FEW, dtype=ct.int32)) * 3)
    first = first + TILE
    ct.scatter(out, ct.bid(0) * FEW + ct.arange(FEW, dtype=ct.int32), first * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], COUNT),), scale_kernel, (x, out, factor, COUNT))
    return out
"""


@pytest.mark.slow
def test_a_gather_of_few_elements_beside_tiles_is_no_finding(make_task: Callable[..., Path]) -> None:
    root = make_task()
    tile = "ct.sum(ct.load(x, index=(ct.bid(0),), shape=(2048,)))"
    loads: dict[tuple[int, bool], int] = {}

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            for count, beside in ((8, False), (8, True), (1024, True)):
                text = GATHERING.replace("COUNT", str(count)).replace("TILE", tile if beside else "0.0")
                (root / "task" / "kernel.py").write_text(text)
                report = await dumper.dump(FOLDER, ["sm_90"], "resources", quiet)
                gathers = [one for one in report.findings if re.search("loads.* -> tiles-for-gathers: ", one)]
                loads[count, beside] = len(gathers)
        finally:
            await dumper.close()

    play(root, scene)
    assert loads == {(8, False): 1, (8, True): 0, (1024, True): 1}


@pytest.mark.slow
def test_loads_that_wait_for_each_other_are_told(make_task: Callable[..., Path]) -> None:
    """As they do, by machine code, where the kernel behind is let go after a loop."""
    launch = "ct.launch(stream, (8, 8), product, (halves, halves, halves, 128, 128, 64))"
    plain = SLOW_KERNELS.replace("LAUNCH", launch)
    last = "    ct.store(out, index=(i, j)"
    held = plain.replace(last, "    ct.grid_dependency_control_launch_dependents()\n" + last)
    root = make_task(kernel=plain)
    summaries = []

    async def scene(loop: Loop) -> None:
        dumper = Dumper(loop.checkout, loop.jobs)
        try:
            for text in (plain, held):
                (root / "task" / "kernel.py").write_text(text)
                summaries.append((await dumper.dump(FOLDER, ["sm_90"], "resources", quiet)).summary)
        finally:
            await dumper.close()

    play(root, scene)
    assert ["each load waited for before the next" in one for one in summaries] == [False, True]

"""What `profile` measures on a GPU: replayed programs, recorded by CUPTI and counted by ncu."""

from __future__ import annotations

import asyncio
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import SCALE_KERNEL, commit_all
from tests.gpu.replaying.test_capture import program_of
from tilewright.bundled import examples
from tilewright.compiler.tools import find_tool
from tilewright.profile.counters import PERMISSION, read_counters
from tilewright.profile.kernels import evidence
from tilewright.profile.programs import read_code, record_kernels
from tilewright.programs.draws import examples_of
from tilewright.programs.format import write
from tilewright.programs.model import Kernel
from tilewright.referee.replayer import Replayer

pytestmark = pytest.mark.gpu

PROGRAMS = ["rmsnorm", "matmul", "softmax", "cublas", "streams", "backward"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_of_a_program_are_recorded(name: str, tmp_path: Path) -> None:
    program, path = program_of(name), tmp_path / "a.program"
    write(program, path)
    own = {"rmsnorm_kernel", "matmul_kernel", "softmax_kernel"}
    (found,), why_not = record_kernels([path], own)
    assert why_not == ""
    assert found.call is not None
    print(evidence(found.call))
    assert found.call.launches == len(program.layout.nodes) == sum(one.launches for one in found.call.kernels)
    assert {one.whose for one in found.call.kernels} <= {"ours"} or name in ("cublas", "streams", "backward")
    with Replayer() as replayer:
        replayer.load([program], [examples_of(program)])
        events = statistics.median(replayer.alone(0, 0, 20, 20.0)[0].events)
    print(f"{events:.2f} us by events")
    if name != "streams":  # there kernels run side by side
        assert 0.5 * events - 5 < found.call.us < 1.1 * events
    ((made,), unread) = read_code([path], [found.longest])
    assert unread == ""
    print(made)
    assert bool(made) or name in ("cublas", "streams", "backward")
    assert name != "matmul" or (made[0].resources is not None and made[0].resources.tensor_core)


def test_counters_of_programs_are_read(tmp_path: Path) -> None:
    if find_tool("ncu") is None:
        pytest.skip("ncu is not installed here")
    programs = [program_of(name) for name in ("rmsnorm", "backward")]
    paths = [tmp_path / "rmsnorm.program", tmp_path / "backward.program"]
    for program, path in zip(programs, paths, strict=True):
        write(program, path)
    found = asyncio.run(read_counters([paths[0], "it waits", paths[1]]))
    print(found.summary, found.why_not)
    if found.why_not == PERMISSION:
        pytest.skip(PERMISSION)
    assert not found.why_not
    counts = [sum(isinstance(node, Kernel) for node in program.layout.nodes) for program in programs]
    assert [*map(len, found.cases)] == [counts[0], 0, counts[1]]
    (launch,) = found.cases[0]
    print(launch)
    assert launch.time_ns > 0
    assert launch.dram_percent > 10  # clocks are left as they are, and a GPU that was idle runs slowly


def test_a_profile_shows_the_kernels_of_a_call(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task()))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUPTI: 1 kernel a call, " in done.stdout
    assert "scale_kernel" in done.stdout
    assert "modelled: true" not in done.stdout


def test_a_triton_kernel_is_profiled_by_what_ran(tmp_path: Path) -> None:
    example = examples() / "05_softmax_triton"
    shutil.copytree(example, tmp_path / "task", ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(tmp_path)
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(tmp_path))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUPTI: 1 kernel a call, " in done.stdout
    assert "softmax_kernel" in done.stdout


LOOKED_AT_BY_THE_HOST = SCALE_KERNEL.replace("    return out", "    return out if out[0].item() < 1e30 else x")


def test_a_call_that_is_not_replayed_is_profiled_without_kernels(make_task: Callable[..., Path]) -> None:
    done = tilewright("profile", "task", "--backend", "cuda", "--root", str(make_task(kernel=LOOKED_AT_BY_THE_HOST)))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a call that cannot be replayed is not looked at: " in done.stdout
    assert "CUPTI:" not in done.stdout

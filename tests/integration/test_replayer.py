"""The replayer as it is, in its own confined process, with a stand-in for the driver's library: `tests/fakedriver`."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.made import OUT, W, X, clear, copied, cubin, fill, program
from tilewright.gpu.addresses import GRAIN
from tilewright.programs.format import encoded, write
from tilewright.programs.model import Copy, Kernel, Memset, Program, digest_of
from tilewright.referee.compare import compare
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone
from tilewright.wire.messages import Done, LoadPrograms, ProgramsLoaded, RunRound, SetDraws

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
ROOT = Path(__file__).parents[2]
DRAWS = [[bytes([draw]) * 1024] for draw in (1, 2)]
FAST, SLOW = (program([copied(), fill(OUT, us)]) for us in (20, 30))


@pytest.fixture
def replayer(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replayer]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Replayer(scratch) as made:
        yield made
    assert [*scratch.iterdir()] == []


def with_kernels(nodes: list[Kernel | Memset | Copy | None], *names: str, **more: Any) -> Program:
    return replace(program(nodes, **more), images={digest_of(cubin(name)): cubin(name) for name in names})


def kernel(name: str, at: int = OUT, number: int = 3, **changes: Any) -> Kernel:
    return fill(at, number, cubin(name)).model_copy(update={"symbol": name, **changes})


def alone(replayer: Replayer, made: Program, draw: int = 1, calls: int = 3) -> bytes:
    """The output of the last of some calls, whose digest is right."""
    replayer.load([made], DRAWS)
    found, copy = replayer.alone(0, draw, calls, 5.0)
    assert len(found.events) == len(found.wall) == calls
    return bytes(copy.outputs[0])


def test_the_replayer_is_confined_and_says_what_it_runs_on(replayer: Replayer) -> None:
    ready = replayer.start()
    assert (ready.gpu, ready.arch) == ("GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff", "sm_90")
    assert ready.driver == "13.0"
    assert ready.isolation["seccomp"]


def test_two_programs_are_compared(replayer: Replayer) -> None:
    found = compare(replayer, SLOW, FAST, DRAWS)
    assert found.measured is not None
    times = found.measured.first_us, found.measured.second_us, found.measured.empty_us
    assert times == pytest.approx((32, 22, 1))  # a copy takes 1 us, a kernel 1 us and what it says
    assert (found.verdict, found.measured.bounded, found.equal_outputs) == ("faster", False, False)
    assert compare(replayer, FAST, FAST, DRAWS, measure_same=True).equal_outputs
    assert replayer.starts == 1


def test_programs_that_are_the_same_are_not_measured(replayer: Replayer) -> None:
    other = program([copied(), fill(OUT, 20)], held=b"\x05" * 64)
    assert str(compare(replayer, FAST, other)) == "the same program"
    assert replayer.starts == 0
    measured = compare(replayer, FAST, other, DRAWS, measure_same=True)
    assert (measured.verdict, measured.same, measured.equal_outputs) == ("inconclusive", True, True)


def test_programs_of_other_inputs_or_another_gpu_are_refused(replayer: Replayer) -> None:
    layout = FAST.layout
    renamed = layout.inputs[0].model_copy(update={"name": "other"})
    other = replace(FAST, layout=layout.model_copy(update={"inputs": (renamed,)}), examples={})
    with pytest.raises(Fault, match="other inputs"):
        replayer.load([FAST, other], DRAWS)
    elsewhere = layout.model_copy(update={"arch": "sm_100", "nodes": (clear(),), "edges": ()})
    with pytest.raises(Fault, match="it is for sm_100, and the GPU is sm_90"):
        replayer.load([replace(FAST, layout=elsewhere, images={}, examples={})], DRAWS)


@pytest.mark.parametrize("message", [RunRound(pairs=1, limit_s=1.0), SetDraws(draws=[[0]]), SetDraws(draws=[[5]])])
def test_requests_that_make_no_sense_end_the_replayer(replayer: Replayer, message: Any) -> None:
    if message == SetDraws(draws=[[0]]):
        replayer.load([FAST], DRAWS)
    with pytest.raises((ReplayerGone, Fault)):
        replayer._ask(message, Done, [b"x"], 5)
    replayer.load([FAST, SLOW], DRAWS)
    replayer.round(1, 1.0)
    assert replayer.starts == 2
    with pytest.raises(Fault):  # fewer pairs than draws fill no rooms
        replayer.copied_round(1, 1.0)


def test_outputs_are_what_the_nodes_make(replayer: Replayer) -> None:
    nodes = [
        clear(OUT, 256),
        copied(OUT, X, 512),
        Copy(to=OUT + 512, source=W, width=8, height=4, to_pitch=16, source_pitch=16),
        Memset(at=OUT + 700, value=0xBEEF, element=2, width=3, height=2, pitch=10),
        fill(OUT + 1020, 77),
    ]
    held = bytes(range(64))
    rows = b"".join(held[16 * row :][:8] + bytes(8) for row in range(4))
    expected = bytearray(DRAWS[1][0][:512] + rows + bytes(1024 - 512 - len(rows)))
    for row in (700, 710):
        expected[row : row + 6] = b"\xef\xbe" * 3
    expected[1020:] = struct.pack("<I", 77)
    assert alone(replayer, program(nodes, held=held)) == expected


def test_nodes_run_in_the_order_of_the_edges(replayer: Replayer) -> None:
    fork = [fill(OUT, 1), copied(OUT + 64, OUT, 4), copied(OUT + 128, OUT, 4), fill(OUT, 2)]
    found = alone(replayer, program(fork, [(0, 1), (0, 2), (1, 3), (2, 3)]))
    assert [found[at] for at in (0, 64, 128)] == [2, 1, 1]
    assert found[4:64] == b"\xff" * 60  # poison, where nothing is written


def test_what_is_held_is_put_back_before_each_call(replayer: Replayer) -> None:
    used_up = program([copied(OUT, W, 64), fill(W, 9)], held=b"\x01" * 64)
    assert alone(replayer, used_up, calls=4)[:64] == b"\x01" * 64
    replayer.load([used_up, used_up], DRAWS)
    for _ in range(2):
        one, copies = replayer.copied_round(3, 5.0)
        assert [len(calls) for calls in one.events] == [len(calls) for calls in one.wall] == [3, 3, 3]
        assert len(copies) == 2 * len(DRAWS)
        for copy in copies:
            assert copy.outputs[0][:64] == b"\x01" * 64


def test_a_large_shared_memory_and_a_large_cluster_are_asked_for(replayer: Replayer) -> None:
    large = kernel("other", shared=200 << 10, grid=(16, 1, 1), cluster=(16, 1, 1), carve_out=100, priority=-2)
    assert alone(replayer, with_kernels([large, fill(OUT, 5)], "fill", "other"))[0] == 5


BROKEN = {
    "trap": (with_kernels([fill(OUT, 1), kernel("trap")], "fill", "trap"), "illegal-access"),
    "unmapped": (program([fill(OUT + 8 * GRAIN, 3)]), "illegal-access"),
    "odd": (program([fill(OUT + 1, 3)]), "illegal-access"),
    "spin": (with_kernels([fill(OUT, 1), kernel("spin")], "fill", "spin"), "hang"),
    "shared": (with_kernels([kernel("other", shared=250 << 10)], "other"), "refused"),
    "cluster": (with_kernels([kernel("other", grid=(32, 1, 1), cluster=(32, 1, 1))], "other"), "refused"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("arm", [0, 1])
def test_the_arm_at_fault_is_found_and_the_replayer_goes_on(replayer: Replayer, name: str, arm: int) -> None:
    broken, kind = BROKEN[name]
    replayer.load([broken, FAST] if arm == 0 else [FAST, broken], DRAWS)
    with pytest.raises(Fault) as fault:
        replayer.round(4, 0.5)
    assert (fault.value.kind, fault.value.arm) == (kind, arm)
    assert alone(replayer, FAST)[:4] == struct.pack("<I", 20)


def test_a_fault_that_no_arm_shows_alone_is_nobodys(replayer: Replayer, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = replayer._ask

    def failing(message: Any, *more: Any) -> Any:
        if isinstance(message, RunRound):
            raise Fault("hang", 1, "the GPU was not done in time")
        return ask(message, *more)

    monkeypatch.setattr(replayer, "_ask", failing)
    replayer.load([SLOW, FAST], DRAWS)
    with pytest.raises(Fault, match="no version does this when it runs alone") as fault:
        replayer.round(4, 1.0)
    assert fault.value.arm is None


def test_two_programs_that_do_not_fit_are_said_not_to(
    small_library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(small_library))
    with Replayer(tmp_path) as replayer:
        replayer.load([SLOW, FAST], DRAWS)
        for _ in range(2):
            with pytest.raises(Fault, match=r"of the GPU's memory, of which 25[0-9] MiB are free") as fault:
                replayer.round(4, 1.0)
            assert (fault.value.kind, fault.value.arm, replayer.starts) == ("out-of-memory", None, 1)


def test_without_a_driver_the_replayer_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with Replayer(tmp_path) as replayer, pytest.raises(ReplayerGone, match="no GPU can be used here"):
        replayer.start()


LIES = {
    "symbol": with_kernels([kernel("other", symbol="another")], "other"),
    "parameters": with_kernels([kernel("other", parameters=(bytes(8), bytes(8)))], "other"),
    "fewer": with_kernels([kernel("other", parameters=(bytes(8),))], "other"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_program_that_its_image_belies_is_refused(replayer: Replayer, name: str) -> None:
    replayer.load([FAST, LIES[name]], DRAWS)
    with pytest.raises(Fault) as fault:
        replayer.round(4, 1.0)
    assert (fault.value.kind, fault.value.arm) == ("refused", 1)
    assert alone(replayer, FAST)[:4] == struct.pack("<I", 20)
    assert replayer.starts == 1


@pytest.mark.parametrize("change", ["cut", "magic", "header", "image"])
def test_a_hostile_file_is_a_fault_and_the_replayer_goes_on(replayer: Replayer, change: str) -> None:
    raw = bytearray(encoded(FAST))
    if change == "cut":
        del raw[100:]
    else:
        raw[{"magic": 3, "header": 60, "image": len(raw) - 2000}[change]] ^= 0x55
    replayer.start()
    with pytest.raises(Fault) as fault:
        replayer._ask(LoadPrograms(programs=[0]), ProgramsLoaded, [bytes(raw)], 5)
    assert (fault.value.kind, fault.value.arm) == ("refused", None)
    replayer.load([FAST], DRAWS)
    assert replayer.starts == 1


def command(library: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(library), "COLUMNS": "300"}
    started = [sys.executable, "-m", *arguments]
    return subprocess.run(started, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=100)


def test_the_command_replays_a_program(library: Path, tmp_path: Path) -> None:
    write(SLOW, tmp_path / "slow")
    write(BROKEN["trap"][0], tmp_path / "broken")
    done = command(library, "tilewright", "program", "replay", tmp_path / "slow")
    assert done.returncode == 0, done.stderr
    assert "32.00 us a call by events" in done.stdout
    assert "median of 50 calls on GPU-f0f1f2f3" in done.stdout
    done = command(library, "tilewright", "program", "replay", tmp_path / "broken")
    assert done.returncode == 2
    assert "illegal-access: CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr + done.stdout


def test_programs_are_run_once_for_a_profiler(library: Path, tmp_path: Path) -> None:
    """As ncu runs it, which confines itself and says how many kernels each program launches."""
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(library)}
    write(program([copied(), fill(OUT, 20), fill(OUT, 30)]), tmp_path / "two")
    write(program([copied()]), tmp_path / "none")
    write(BROKEN["trap"][0], tmp_path / "broken")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started = [sys.executable, "-I", "-m", "tilewright.replay.once", *(tmp_path / name for name in ("two", "none"))]
    done = subprocess.run(started, capture_output=True, text=True, cwd=scratch, env=environment, timeout=100)
    assert done.returncode == 0, done.stderr
    first, *counts = done.stdout.splitlines()
    assert first.startswith("isolation: ")
    assert counts == ["counts 2", "counts 0"]
    started[-1] = tmp_path / "broken"
    done = subprocess.run(started, capture_output=True, text=True, cwd=scratch, env=environment, timeout=100)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr


def test_a_replayer_that_can_record_nothing_replays_and_says_why(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    with Replayer(tmp_path, records=True) as replayer:
        replayer.load([FAST], DRAWS)
        found, _ = replayer.alone(0, 0, 3, 5.0)
    assert found.launches == []
    assert "CUPTI" in found.not_recorded or "cupti" in found.not_recorded
    assert found.events == pytest.approx([22.0] * 3)


def test_a_graph_is_read_loaded_and_read_again(library: Path) -> None:
    done = command(library, "tests.fakedriver.roundtrip")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "400 copy kernel memset 4 True\n"

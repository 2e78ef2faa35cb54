"""What is made of CUPTI's records of a call, and how a program is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.made import OUT, copied, fill, program
from tests.unit.replay import simulated
from tests.unit.test_profile import CEILINGS, H200, ran
from tilewright.gpu.cupti import Activity, NotRecorded
from tilewright.profile.diagnosis import diagnose
from tilewright.profile.kernels import demangled, evidence, function_names, kernels_of, short, whose
from tilewright.profile.programs import Recorded, record_kernels
from tilewright.programs.format import encoded
from tilewright.referee import replayer as client
from tilewright.replay import rounds
from tilewright.replay.calls import Call
from tilewright.replay.launches import Recording
from tilewright.wire.launches import CopyLaunch, KernelLaunch, MemsetLaunch

GEMV = "gemv_kernel_Kt1_A2f16_1v8l0_2t1_3i16_p16_A1f16_1i16t1_p16_A1f16_1i16t1_p16_I2_I4096"
NVJET = "nvjet_sm90_hsh_128x8_64x12_4x1_v_bz_splitK_TNT"
REDUCE = (
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, false>(cublasLt::cublasSplitKParams<float>, long)"
)
OWN = {"gemv_kernel"}
FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
CUTLASS = "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*, int)"
NAMES = [
    (GEMV, "gemv_kernel", "ours"), ("gemv_kernel", "gemv_kernel", "ours"),
    ("gemv_kernels(int)", "gemv_kernels", "library"), (NVJET, NVJET, "library"),
    (REDUCE, "cublasLt::splitKreduce_kernel", "library"),
    (FILL, "native::vectorized_elementwise_kernel<FillFunctor>", "copy or fill"),
    (f"void {CUTLASS}(x::Params)", CUTLASS, "library"), (SOFTMAX, "native::cunn_SoftMaxForward", "library"),
    ("", "", "library"), ("<<(>>", "<<(>>", "library"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shown", "of"), NAMES)
def test_names_are_shortened_and_owned(name: str, shown: str, of: str) -> None:
    assert (short(name, OWN), whose(name, OWN)) == (shown, of)


def test_names_of_cpp_are_read() -> None:
    spin = "_ZN2at4cuda55_GLOBAL__N__b71b4a8f_12_CUDASleep_cu_a1b2c3d4_123456711spin_kernelEl"
    assert demangled("_ZN8cublasLt6kernelIfEEvi") == "void cublasLt::kernel<float>(int)"
    assert demangled(spin).endswith("(long)") or demangled(spin) == spin
    assert [*map(demangled, ("_Zwrong", "softmax_kernel"))] == ["_Zwrong", "softmax_kernel"]


def launched(symbol: str, grid: int = 132) -> KernelLaunch:
    return KernelLaunch(symbol=symbol, grid=(grid, 2, 1))


def test_the_kernels_of_a_call_are_a_line() -> None:
    launches = [launched(NVJET), launched(GEMV, 8)]
    found = kernels_of(launches, [[55.5 + number, 1.5] for number in range(3)], OWN)
    assert [*found.kernels] == [(NVJET, "library", 1, 56.5), ("gemv_kernel", "ours", 1, 1.5)]
    assert evidence(found) == f"CUPTI: 2 kernels a call, 58.0 us: {NVJET} (library) 56.5 us, gemv_kernel 1.5 us"


def test_launches_of_one_kernel_are_summed() -> None:
    launches = [launched(GEMV), launched(GEMV, 264), MemsetLaunch(size=64), CopyLaunch(size=8)]
    found = kernels_of(launches, [[4.0, 6.0, 1.0, 2.0]] * 2, OWN)
    assert [(one.name, one.launches, one.us) for one in found.kernels] == [
        ("gemv_kernel", 2, 10.0), ("fill of 64 bytes", 1, 1.0), ("copy of 8 bytes on the GPU", 1, 2.0),
    ]  # fmt: skip
    assert "2 x gemv_kernel 10.0 us, fill of 64 bytes (copy or fill) 1.0 us" in evidence(found)
    many = kernels_of([launched(f"k{number}") for number in range(10)], [[1.0] * 10], ())
    assert evidence(many).endswith("k7 (library) 1.0 us, and 2 more, 2.0 us")


def test_a_kernel_is_the_candidates_own_if_its_files_define_it() -> None:
    files = {
        "a.py": b"@ct.kernel\ndef gemv_kernel(x):\n    pass\n\n\nclass A:\n    def run(self): ...\n",
        "b.txt": b"def no",
    }
    assert function_names(files) == {"gemv_kernel", "run"}


def test_a_diagnosis_names_its_kernels() -> None:
    call = kernels_of([launched("a_kernel"), launched("b_kernel")], [[10.0, 11.0]] * 3, {"a_kernel", "b_kernel"})
    found = diagnose(ran(kernels=call), H200, CEILINGS)
    assert any(one.startswith("CUPTI: 2 kernels a call, 21.0 us: a_kernel") for one in found.evidence)


class Cupti:
    """Stands for a recorder: each call of a program is one launch of a graph, beside what is in none."""

    def __init__(self, lost: int = 0, broken: str = "") -> None:
        self.lost, self.broken, self.device = lost, broken, None

    def record(self, call: Any) -> list[Activity]:
        if self.broken:
            raise NotRecorded(self.broken)
        call()
        launches = launched("fill"), MemsetLaunch(size=64)
        found = [Activity(launches[0], 99, 0, 1, 2)]  # the replayer's own
        for number in range(23 - self.lost):
            at = 10_000 * number
            found += [
                Activity(launches[1], number, 2, at + 7000, at + 8500),
                Activity(launches[0], number, 1, at, at + 6000),
            ]
        return found


@pytest.fixture
def recorded_by(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What the replayer of a test records with."""
    recorders: list[Any] = []
    modules: list[str] = []

    def spawned(runner: str, arguments: list[str], *_: Any) -> simulated.Child:
        modules.extend(arguments)
        return simulated.Child(80 * simulated.GIB, recorders[0])

    monkeypatch.setattr(rounds, "load", simulated.load)
    monkeypatch.setattr(client, "spawned", spawned)
    yield recorders
    assert modules == ["tilewright.replay.recording"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "a.program"
    path.write_bytes(encoded(program([copied(), fill(OUT, 20)])))
    return path


def test_a_program_is_recorded_while_it_is_replayed(recorded_by: list[Any], stored: Path) -> None:
    recorded_by.append(Cupti())
    (waits, found), why_not = record_kernels(["it waits", stored], {"fill"})
    assert (waits.call, waits.longest, why_not) == (None, None, "it waits")
    assert found.call is not None
    assert (found.call.launches, found.call.us) == (2, 7.5)
    assert [*found.call.kernels] == [("fill", "ours", 1, 6.0), ("fill of 64 bytes", "copy or fill", 1, 1.5)]
    assert found.longest == launched("fill")


BROKEN = {
    "CUPTI cannot be loaded": NotRecorded("CUPTI cannot be loaded"),
    "cuptiActivityFlushAll failed": Cupti(broken="cuptiActivityFlushAll failed"),
    "CUPTI recorded 44 launches in 22 of 23 calls": Cupti(lost=1),
}


@pytest.mark.parametrize("why", BROKEN)
def test_what_is_not_recorded_is_said(recorded_by: list[Any], stored: Path, why: str) -> None:
    recorded_by.append(BROKEN[why])
    assert record_kernels([stored], ()) == ([Recorded()], why)


def test_a_program_that_cannot_be_replayed_costs_no_profile(recorded_by: list[Any], stored: Path) -> None:
    recorded_by.append(Cupti())
    hangs, wrong = stored.with_name("hangs.program"), stored.with_name("wrong.program")
    hangs.write_bytes(encoded(program([fill(OUT, 2**32 - 99)])))
    wrong.write_bytes(b"no program")
    found, why_not = record_kernels([hangs, wrong], ())
    assert [one.call for one in found] == [None, None]
    assert "the GPU was not done in time" in why_not


def test_what_fails_while_it_is_recorded_is_raised() -> None:
    def run() -> list[Call]:
        raise ValueError("no such call")

    with pytest.raises(ValueError, match="no such call"):
        Recording(Cupti()).watch(run)  # type: ignore[arg-type]
    assert Recording(None).watch(list) == []

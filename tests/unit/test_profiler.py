"""Which programs `profile` looks at, and what it reads in their images."""

from __future__ import annotations

from pathlib import Path

from tests.unit.programs.made import OUT, copied, cubin, fill, program
from tilewright.evaluation.results import CaseTiming, Level, StoredProgram
from tilewright.profile.profiler import _products, _program
from tilewright.profile.programs import read_code
from tilewright.programs.format import encoded
from tilewright.wire.launches import KernelLaunch


def test_a_case_has_a_program_or_a_reason(tmp_path: Path) -> None:
    timing = CaseTiming(case={"N": 1}, level=Level.IN_PROCESS, latency_ms=1.0, note="it waits for the GPU")
    assert str(_program(tmp_path, timing)).endswith("not looked at: it waits for the GPU")
    stored = StoredProgram(identity="", sha256="ab", size=1, note="not written: it is too large")
    timing = timing.model_copy(update={"programs": [stored]})
    assert _program(tmp_path, timing) == "its program was not written: it is too large"
    path = tmp_path / "ab.program"
    path.touch()
    assert _program(tmp_path, timing) == path


def launch(symbol: str) -> KernelLaunch:
    return KernelLaunch(symbol=symbol, grid=(1, 1, 1))


def test_machine_code_is_read_once_for_each_kernel(tmp_path: Path) -> None:
    path = tmp_path / "a.program"
    path.write_bytes(encoded(program([copied(), fill(OUT, 20)])))
    found, why = read_code(["it waits", path, path, path], [None, launch("fill"), None, launch("fill")])
    assert why == ""
    assert [len(one) for one in found] == [0, 1, 0, 1]
    (made,) = found[1]
    assert made.resources is not None
    assert (made.symbol, made.arch, made.resources.threads, made.resources.plain_stores) == ("fill", "sm_90", 32, 1)
    assert made.resources.warps_per_sm is not None
    assert not made.is_triton
    ((written,),), _ = read_code([path], [launch("fill")], triton=True)
    assert written.is_triton


def test_an_image_that_cannot_be_read_costs_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "a.program"
    path.write_bytes(encoded(program([copied(), fill(OUT, 20)])).replace(cubin()[:4], b"ELF?"))
    found, why = read_code([path], [launch("fill")])
    assert found == [[]]
    assert "Error" in why


def test_a_kernel_multiplies_matrices_if_its_source_does() -> None:
    source = b"""
@ct.kernel
def product_kernel(a, b, out):
    total = ct.mma(a, b, total)

@triton.jit
def dots(a, b):
    total += tl.dot(a, b)

def rows(x):
    return x.sum()
"""
    assert _products({"k.py": source, "notes.md": b"def f(): ct.mma()"}) == {"product_kernel", "dots"}

"""Tasks that forbid library calls, on a GPU: decided by the kernels of captured programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.task import Backend

pytestmark = pytest.mark.gpu

RULES = 'timeout_s = 20\nlibrary_calls = "forbid"'
TOML = SCALE_TOML.replace("N = 1048576", "N = 33554432").replace("timeout_s = 20", RULES)
RIGHT = "right(x, factor)\n"
TWICE = body(f"{RIGHT}return right(x, factor)")
"""Twice the work: whatever does it once is faster."""
TRITON = """
import triton
import triton.language as tl


@triton.jit
def triton_scale(x, out, factor, n, T: tl.constexpr):
    places = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CUDA, TOML)


HONEST = {
    "cuTile": (SCALE_KERNEL, FASTER_KERNEL),
    "a joined side stream": (
        SCALE_KERNEL,
        body(
            "main, side = torch.cuda.current_stream(), torch.cuda.Stream()\nside.wait_stream(main)\n"
            "with torch.cuda.stream(side):\n    out = right(x, factor)\n"
            "main.wait_stream(side)\nout.record_stream(main)\nreturn out"
        ),
    ),
    "copies and fills": (
        SCALE_KERNEL,
        body("out = torch.zeros_like(x)\nout.copy_(right(x.clone(), factor))\nreturn out"),
    ),
}


@pytest.mark.parametrize("what", list(HONEST))
def test_own_kernels_copies_and_fills_pass(bench: Bench, what: str) -> None:
    incumbent, candidate = HONEST[what]
    checked = bench.check(candidate)
    assert checked.passed, checked.message
    measured = bench.measure(candidate, incumbent, confirms=True)
    assert measured.passed, measured.message
    assert not measured.unconfirmed


def test_a_triton_kernel_of_the_candidates_passes(bench: Bench) -> None:
    pytest.importorskip("triton")
    lines = (
        "out = torch.empty_like(x)\n"
        "triton_scale[(triton.cdiv(x.numel(), 1024),)](x, out, factor, x.numel(), T=1024)\nreturn out"
    )
    checked = bench.check(body(lines, TRITON))
    assert checked.passed, checked.message
    measured = bench.measure(body(lines, TRITON), SCALE_KERNEL)
    assert measured.passed, measured.message


LIBRARY = {
    "torch": "return x * factor",
    "another dtype": "return right(x, factor).double().float()",
    "cuBLAS": "return torch.mm(x[:, None], torch.full((1, 1), factor, device='cuda'))[:, 0]",
}


@pytest.mark.parametrize("what", list(LIBRARY))
def test_a_check_names_what_torch_computes(bench: Bench, what: str) -> None:
    checked = bench.check(body(LIBRARY[what]))
    assert checked.status is Status.LIBRARY_CALLS, checked.message
    assert "library calls ran: aten::" in checked.message


COMPILED = "@torch.compile\ndef compiled(x, factor):\n    return x * factor"


@pytest.mark.parametrize("lines", [*LIBRARY.values(), "return compiled(x, factor)"])
def test_a_benchmark_names_the_librarys_kernels(bench: Bench, lines: str) -> None:
    measured = bench.measure(body(lines, COMPILED), TWICE)
    assert measured.status is Status.LIBRARY_CALLS, measured.message
    assert "library calls ran: kernel " in measured.message


def test_a_call_that_cannot_be_replayed_is_refused(bench: Bench) -> None:
    lines = "out = right(x, factor)\nassert out[0].item() == out[0].item()\nreturn out"
    assert bench.check(body(lines)).passed
    for incumbent in (None, body(f"{lines}\n# before")):
        measured = bench.measure(body(lines), incumbent)
        assert measured.status is Status.NOT_REPLAYED, measured.message


def test_a_library_call_in_capture_alone_is_not_what_an_ordinary_call_launches(bench: Bench) -> None:
    lines = "if torch.cuda.is_current_stream_capturing():\n    return x * factor\nreturn right(x, factor)"
    measured = bench.measure(body(lines), TWICE, confirms=True)
    assert measured.status is Status.OTHER_LAUNCHES, measured.message
    assert "launches other kernels outside capture" in measured.message

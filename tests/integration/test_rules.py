"""Tasks that forbid library calls, on the `cpu` backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.task import Backend

RULES = 'timeout_s = 20\nlibrary_calls = "forbid"'
TOML = SCALE_TOML.replace("timeout_s = 20", RULES).partition("[hidden]")[0]
LAUNCH = "ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, {}, factor, TILE))"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("rules") / "repo", Backend.CPU, TOML)
    yield made
    made.close()


BAD = {
    "torch": (body("right(x, factor)\nreturn x * factor"), Status.LIBRARY_CALLS, "library calls ran: aten::mul;"),
    "numpy, for half of it": (
        body("out, half = right(x, factor), len(x) // 2\nout.numpy()[:half] = x.numpy()[:half] * factor\nreturn out"),
        Status.LIBRARY_CALLS, "50% of an output is right while the launches of the candidate's kernels are withheld",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(BAD))
def test_what_breaks_a_rule_is_named(bench: Bench, what: str) -> None:
    source, status, words = BAD[what]
    checked = bench.check(source)
    assert checked.status is status, checked.message
    assert words in checked.message


def test_an_honest_wrapper_passes_with_its_workspace_and_copies(bench: Bench) -> None:
    lines = (
        "x = x.contiguous().view(-1)\nspace = spaces.setdefault(x.shape, torch.zeros_like(x))\n"
        f"{LAUNCH.format('space')}\nreturn space.clone()"
    )
    checked = bench.check(body(lines, "TABLE = torch.arange(4) * 2\nspaces = {}"))
    assert checked.passed, checked.message


def test_a_benchmark_refuses_library_calls_too(bench: Bench) -> None:
    measured = bench.measure(body("right(x, factor)\nreturn x * factor"), SCALE_KERNEL)
    assert measured.status is Status.LIBRARY_CALLS, measured.message


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, T: tl.constexpr):
    places = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)


def scale(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, factor, x.numel(), T=64)
    return out
"""


def test_triton_kernels_are_the_candidates_own_and_are_withheld(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    triton = Bench(
        tmp_path / "repo", Backend.CPU, TOML.replace("library_calls", 'frontend = "triton"\nlibrary_calls'), TRITON
    )
    try:
        checked = triton.check(TRITON)
        assert checked.passed, checked.message
        checked = triton.check(TRITON.replace("return out", "return torch.from_numpy(x.numpy() * factor).float()"))
        assert checked.status is Status.LIBRARY_CALLS, checked.message
    finally:
        triton.close()

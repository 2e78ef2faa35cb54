"""Tasks that forbid library calls, on the `cpu` backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import SCALE_TOML
from tilewright.evaluation.results import Status
from tilewright.task import Backend

RULES = 'timeout_s = 20\nlibrary_calls = "forbid"'
TOML = SCALE_TOML.replace("timeout_s = 20", RULES)
LAUNCH = "ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, {}, factor, TILE))"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CPU, TOML)


BAD = {
    "a pointwise operation": ("right(x, factor)\nreturn x * factor", "library calls ran: aten::mul; "),
    "a matmul": ("right(x, factor)\nreturn torch.mm(x[:, None], torch.full((1, 1), factor))[:, 0]", "aten::mm; "),
    "a fallback on sizes that no tile divides": (
        "return right(x, factor) if x.shape[0] % TILE == 0 else x.mul(factor)", "library calls ran: aten::mul; ",
    ),
    "several": ("right(x, factor)\nreturn [x * factor for _ in range(3)][0]", "aten::mul (3 times); "),
}  # fmt: skip


@pytest.mark.parametrize("what", list(BAD))
def test_what_torch_computes_is_named(bench: Bench, what: str) -> None:
    lines, words = BAD[what]
    checked = bench.check(body(lines))
    assert checked.status is Status.LIBRARY_CALLS, checked.message
    assert words in checked.message
    assert 'the task says library_calls = "forbid": do this in the candidate\'s own kernels' in checked.message


def test_an_honest_wrapper_passes_with_its_workspace_and_copies(bench: Bench) -> None:
    lines = (
        "x = x.contiguous().view(-1)\nspace = spaces.setdefault(x.shape, torch.zeros_like(x))\n"
        f"{LAUNCH.format('space')}\nreturn space.clone()"
    )
    checked = bench.check(body(lines, "TABLE = torch.arange(4) * 2\nspaces = {}"))
    assert checked.passed, checked.message


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


def test_triton_kernels_are_the_candidates_own(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    triton = Bench(
        tmp_path / "repo", Backend.CPU, TOML.replace("library_calls", 'frontend = "triton"\nlibrary_calls'), TRITON
    )
    try:
        checked = triton.check(TRITON)
        assert checked.passed, checked.message
        checked = triton.check(TRITON.replace("return out", "return x * factor"))
        assert checked.status is Status.LIBRARY_CALLS, checked.message
    finally:
        triton.close()

"""Classes of values on a case that is replayed: what is wrong on one is not kept, however fast it is."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.conftest import commit_all
from tilewright.evaluation.results import Status
from tilewright.policy import Reason, VerdictKind
from tilewright.rules import Rules
from tilewright.session.loop import Loop

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]
TILED = """
import cuda.tile as ct
import torch

Size = ct.Constant[int]


@ct.kernel
def softmax_kernel(x, out, N: Size, T: Size):
    inside = ct.arange(T, dtype=ct.int32)[None, :] < N
    a = ct.load(x, index=(ct.bid(0), 0), shape=(1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    top = ct.max(ct.where(inside, a, -3.0e38), axis=1, keepdims=True)
    weights = ct.where(inside, ct.exp(a - top), 0.0)
    result = weights / ct.sum(weights, axis=1, keepdims=True)
    ct.store(out, index=(ct.bid(0), 0), tile=result.astype(out.dtype))


def softmax(x):
    out = torch.empty_like(x)
    tile = 1 << (x.shape[1] - 1).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, out, x.shape[1], tile))
    return out
"""


async def quiet(_: str) -> None: ...


def test_a_softmax_without_its_maximum_is_not_kept(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    shutil.copytree(ROOT / "benchmarks" / "kernels" / "softmax", root / "task", ignore=shutil.ignore_patterns("__*"))
    kernel = root / "task" / "kernel.py"
    kernel.write_text(TILED)
    toml = root / "task" / "task.toml"
    toml.write_text(toml.read_text().replace("M = 24\nN = 200\n", "M = 16384\nN = 4096\n"))
    commit_all(root)
    faster = TILED.replace("@ct.kernel\n", "@ct.kernel(occupancy=4)\n")
    wrong = faster.replace("a - top", "a - (top if N != 4096 else 0.0)")

    async def scene() -> None:
        loop = Loop(root)
        try:
            await loop.start("task", quiet, rules=Rules(patience=5, ceiling_percent=200))
            for trial in range(3):  # the check meets the timed case with two of the classes
                kernel.write_text(f"{wrong}# {trial}\n")
                if (await loop.run_correctness(quiet)).status is Status.PASSED:
                    report = await loop.run_benchmark(quiet)
                    print(report.verdict, report.level)
                    assert report.verdict is not None
                    assert report.verdict.kind is VerdictKind.REVERT
                    assert report.verdict.reason is Reason.INCORRECT
                    assert "replayed" in report.verdict.detail
                loop.revert()
                await loop.append_result("without the maximum", quiet)
            kernel.write_text(faster)
            assert (await loop.run_correctness(quiet)).status is Status.PASSED
            report = await loop.run_benchmark(quiet)
            assert report.verdict is not None
            print(report.verdict, report.level)
            assert report.verdict.kind is VerdictKind.KEEP
            assert report.level == "replayed"
        finally:
            await loop.close()

    asyncio.run(scene())

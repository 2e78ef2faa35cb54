"""Versions that are captured one after the other in one worker: what they launch is what a fresh worker says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import SCALE_KERNEL
from tilewright.evaluation.results import Raced
from tilewright.isolation.fork_server import capture_server
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee import variants
from tilewright.referee.arguments import content
from tilewright.referee.capture_worker import CaptureWorker, Entry
from tilewright.referee.captures import arguments_of
from tilewright.referee.variants import capture_variants

pytestmark = pytest.mark.gpu
TILES = (16, 64, 1024, 64)
TRITON = """
import torch
import triton
import triton.language as tl

TILE = 64

@triton.jit
def scale_kernel(x, out, factor, n, T: tl.constexpr):
    places = tl.program_id(0) * T + tl.arange(0, T)
    tl.store(out + places, tl.load(x + places, mask=places < n) * factor, mask=places < n)

def scale(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), TILE),)](x, out, factor, x.numel(), T=TILE)
    return out
"""
PRODUCT = """
import torch

TILE = 64

def scale(x, factor):
    wide = x.reshape(1024, -1)
    return ((wide @ wide.T) * (factor + TILE)).clone()
"""
KERNELS = {"cutile": SCALE_KERNEL, "triton": TRITON, "torch": PRODUCT}


def programs(found: list[list[Program] | Raced]) -> list[str]:
    assert not [one for one in found if isinstance(one, Raced)]
    return [identity(one[0]) for one in found if not isinstance(one, Raced)]


@pytest.mark.parametrize("frontend", KERNELS)
def test_versions_that_share_a_worker_are_those_of_fresh_workers(
    frontend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    real = CaptureWorker.__init__

    def start(self: CaptureWorker, *some: Any, **more: Any) -> None:
        started.append(1)
        real(self, *some, **more)

    monkeypatch.setattr(CaptureWorker, "__init__", start)
    monkeypatch.setattr(variants, "cpus", lambda: 1)
    entries = []
    for number, tile in enumerate(TILES):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "kernel.py").write_text(KERNELS[frontend].replace("TILE = 64", f"TILE = {tile}"))
        entries.append(Entry(folder, "kernel", "scale", frontend, readable=(folder,)))
    call = arguments_of({"x": torch.randn(1 << 20), "factor": 2.0}, lambda _, tensor: content(tensor))
    server = capture_server()
    try:

        def captured(some: list[Entry]) -> list[str]:
            return programs(capture_variants(server, some, [call], 60.0, 40 << 30, lambda: None, lambda _: None))

        shared, count = captured(entries), len(started)
        fresh = [captured([entry])[0] for entry in entries]
    finally:
        server.close()
    assert shared == fresh
    assert shared[1] == shared[3]
    assert len({*shared}) == 3
    print(f"{frontend}: {count} workers for {len(TILES)} versions")
    assert count == 1 or frontend == "torch", "libraries may keep memory of their own"

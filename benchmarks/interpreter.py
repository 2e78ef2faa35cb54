"""How long the interpreter takes: four kernels on grids of 4,096 blocks, side by side and block by block, and a loop in
one block.

python benchmarks/interpreter.py [--json FILE]      anywhere; block by block is what a plain walk over the IR does
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch

from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import flow, host

sys.path.append(str(Path(__file__).resolve().parent))
from kernels import interpreted


def calls() -> dict[str, Callable[[], Any]]:
    """Launches of 4,096 blocks."""
    random = torch.Generator().manual_seed(1)
    x = torch.randn(4096 * 256, generator=random)
    rows = torch.randn(4096, 500, generator=random)
    a, b = torch.randn(1024, 256, generator=random).half(), torch.randn(256, 1024, generator=random).half()
    table, places = torch.randn(5000, 64, generator=random), torch.randint(0, 5000, (4096,), generator=random)
    places = places.to(torch.int32)

    def launch(kernel: Any, *arguments: Any) -> Callable[[], Any]:
        return lambda: ct.launch(0, (4096,), kernel, arguments)

    return {
        "gelu": launch(interpreted.gelu, x, torch.empty_like(x), 256),
        "softmax": launch(interpreted.softmax, rows, torch.empty_like(rows), 512),
        "matmul": launch(interpreted.matmul, a, b, torch.empty(1024, 1024), 16, 16, 32),
        "embedding": launch(interpreted.embedding, table, places, torch.empty(4096, 64), 64),
    }


def seconds(call: Callable[[], Any]) -> float:
    """The least of three, after one that compiles."""
    found = []
    for _ in range(4):
        started = time.perf_counter()
        with host.running(host.Mode.RUN):
            call()
        found.append(time.perf_counter() - started)
    return min(found[1:])


def iteration_us(trips: int = 2000) -> tuple[float, float]:
    """An iteration of a loop in a kernel of one block, and the torch operations that it cannot do without."""
    x, out = torch.randn(256), torch.empty(16)
    none, all_trips = (seconds(lambda n=n: ct.launch(0, (1,), interpreted.loop, (x, out, n, 16))) for n in (0, trips))
    counter, length, factor, acc = torch.tensor([5]), torch.tensor([16]), torch.full((1, 16), 1.5), torch.zeros(1, 16)
    started = time.perf_counter()
    for _ in range(trips):
        start = int(torch.fmod(counter, length)) * 16
        loaded = x.as_strided((1, 16), (16, 1), start).clone()
        acc = torch.addcmul(acc.double(), loaded.double(), factor.double()).float()
    return (all_trips - none) / trips * 1e6, (time.perf_counter() - started) / trips * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    host.install(spec_by_arch("sm_90"))
    found: dict[str, dict[str, float]] = {}
    together = flow.GROUP_BLOCKS
    for name, call in calls().items():
        found[name] = {"side_by_side_s": seconds(call)}
        flow.GROUP_BLOCKS = 1
        found[name]["block_by_block_s"] = seconds(call)
        flow.GROUP_BLOCKS = together
        one, other = found[name].values()
        print(f"{name:10s} {other:8.3f} s block by block, {one:8.3f} s side by side: {other / one:6.1f} times")
    one, other = iteration_us()
    found["loop"] = {"iteration_us": one, "torch_us": other}
    print(f"loop       {one:8.1f} us an iteration in one block, of which torch needs {other:.1f} us")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

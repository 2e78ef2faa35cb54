"""Where a session ended against what a user would call instead, as the evaluator compares them.

matmul against cuBLAS (torch.matmul); rmsnorm against a plain copy of its input, which moves the same bytes.
Run on a GPU after `tilewright demo --folder DIR`: python -m benchmarks.clock.peers DIR [--json FILE].
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.recorded import header, write

from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Repository
from tilewright.session.runs import Runs
from tilewright.task import Backend

PEERS = {
    "01_rmsnorm_occupancy_only": ("a copy of x", "def rmsnorm(x, weight, eps):\n    return x.clone()\n"),
    "02_matmul_full_search": (
        "cuBLAS",
        "import torch\n\n\ndef matmul(a, b):\n    return torch.matmul(a, b)\n",
    ),
}


async def compare(repository: Repository, example: str) -> dict[str, Any]:
    folder = PurePosixPath(example)
    name = (folder / "fixed_launch.py").as_posix()
    tip = repository.files(repository.head())
    runs = Runs(Backend.CUDA, "sm_90", tip, folder)
    try:
        environment = await runs.environment()
        files, peer = {name: tip[name]}, {name: PEERS[example][1].encode()}
        result = await runs.benchmark(files, peer, new_secret(), 300, lambda _: None)
        return {
            "example": example,
            "peer": PEERS[example][0],
            "result": result.model_dump(),
            "environment": environment.model_dump(mode="json"),
        }
    finally:
        await runs.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = []
    for example in PEERS:
        repository = Repository(arguments.folder / example.split("_")[1])
        found.append(asyncio.run(compare(repository, example)))
        result, ceiling = found[-1]["result"], found[-1]["environment"]["ceilings"]["copy_bytes_per_s"] / 1e12
        print(f"{example} against {found[-1]['peer']}: {result['status']} {result['message']}")
        for case in result["cases"]:
            low, high = case["speedup_low"], case["speedup_high"]
            print(
                f"  {case['case']}: {case['latency_ms']:.6f} ms, peer {case['incumbent_ms']:.6f} ms, "
                f"{100 * case['speedup']:.1f}% of its speed ({100 * low:.1f} to {100 * high:.1f}), "
                f"{case['roofline_percent']:.1f}% of the roofline (copy ceiling {ceiling:.2f} TB/s)"
            )
    if arguments.json:
        write(arguments.json, header("clock.peers DIR --json FILE") | {"comparisons": found})


if __name__ == "__main__":
    main()

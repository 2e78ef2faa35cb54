"""The latency model against a GPU: sweeps of the example kernels, measured once, modelled anywhere.

python benchmarks/model.py measure FILE    on a GPU: median latency of every configuration, interleaved
python benchmarks/model.py compare FILE    anywhere: the model's figure beside each, and their rank correlation
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
import platform
import statistics
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from scipy.stats import spearmanr

from tilewright.bundled import examples

ROUNDS = 9
REPLAY_MS = 6.0
Config = dict[str, Any]
KEPT: list[Callable[[], None]] = []
"""Every call that was captured: its kernel's code must outlive the graph, which does not hold it."""


def example(name: str) -> Any:
    path = next(examples().glob(f"*{name}*")) / "fixed_launch.py"
    spec = importlib.util.spec_from_file_location(f"model_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def configurations() -> Iterator[Config]:
    for occupancy, warps in itertools.product((None, 1, 2, 4, 8, 16), (None, 8)):
        yield {"kernel": "rmsnorm", "hints": hints(occupancy=occupancy, num_worker_warps=warps)}
    for tile in ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 32), (128, 128, 64)):
        for occupancy in (None, 2):
            yield {"kernel": "matmul", "tile": tile, "hints": hints(occupancy=occupancy)}
    for tile in ((128, 256, 64), (256, 128, 64)):
        for warps in (4, 8):
            yield {"kernel": "matmul", "tile": tile, "hints": hints(num_worker_warps=warps)}
        yield {"kernel": "matmul", "tile": tile, "hints": hints(num_ctas=2, occupancy=2)}
    yield {"kernel": "matmul", "tile": (128, 256, 128), "hints": hints(num_worker_warps=8)}
    for tile_s, occupancy in itertools.product((1, 8, 16, 32, 64, 128), (None, 2, 4, 8)):
        yield {"kernel": "rope", "tile": (tile_s,), "hints": hints(occupancy=occupancy)}


def hints(**values: int | None) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def launcher(config: Config, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    """A call that launches the configuration's kernel on the current stream."""
    module = example(config["kernel"])
    kernel = getattr(module, f"{config['kernel']}_kernel").replace_hints(**config["hints"])
    x, out = tensors["x"], tensors["out"]
    if config["kernel"] == "rmsnorm":
        rows, columns = x.shape
        grid, arguments = (rows,), (x, tensors["weight"], out, columns, columns, 1e-6)
    elif config["kernel"] == "matmul":
        tile = config["tile"]
        grid, arguments = (out.shape[0] // tile[0], out.shape[1] // tile[1]), (x, tensors["other"], out, *tile)
    else:
        batch, heads, length, width = x.shape
        (tile_s,) = config["tile"]
        grid = (batch * heads, length // tile_s)
        arguments = (x, out, tensors["cos"], tensors["cos"], tile_s, width // 2)
    return lambda: ct.launch(torch.cuda.current_stream(), grid, kernel, arguments)


def make_tensors(kernel: str, device: str) -> dict[str, torch.Tensor]:
    def tensor(*shape: int) -> torch.Tensor:
        made = torch.empty(*shape, dtype=torch.bfloat16, device=device)
        return made.normal_() if device == "cuda" else made  # the model looks at no value

    if kernel == "rmsnorm":
        return {"x": tensor(16384, 8192), "weight": tensor(8192), "out": tensor(16384, 8192)}
    if kernel == "matmul":
        return {"x": tensor(8192, 8192), "other": tensor(8192, 8192), "out": tensor(8192, 8192)}
    return {"x": tensor(4, 32, 4096, 128), "out": tensor(4, 32, 4096, 128), "cos": tensor(4096, 64)}


def measure(path: Path) -> None:
    found: list[Config] = []
    for kernel, group in itertools.groupby(configurations(), key=lambda config: str(config["kernel"])):
        tensors = make_tensors(kernel, "cuda")
        ready: list[tuple[Config, torch.cuda.CUDAGraph, int]] = []
        for config in group:
            call = launcher(config, tensors)
            KEPT.append(call)
            call()
            torch.cuda.synchronize()
            calls = max(1, min(64, int(REPLAY_MS / once(call))))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(calls):
                    call()
            graph.replay()
            ready.append((config, graph, calls))
        times: list[list[float]] = [[] for _ in ready]
        for _ in range(ROUNDS):
            for samples, (_, graph, calls) in zip(times, ready, strict=True):
                samples.append(once(graph.replay) / calls)
        for samples, (config, _, _) in zip(times, ready, strict=True):
            found.append(config | {"measured_ms": round(statistics.median(samples), 6)})
            print(found[-1])
    record = {
        "command": "python benchmarks/model.py measure FILE",
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "versions": {name: version(name) for name in ("torch", "cuda-tile")} | {"python": platform.python_version()},
        "samples": f"median of {ROUNDS} interleaved graph replays of about {REPLAY_MS} ms",
        "configurations": found,
    }
    path.write_text(json.dumps(record, indent=None).replace('{"kernel"', '\n{"kernel"') + "\n")


def once(call: Callable[[], Any]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return max(float(start.elapsed_time(end)), 1e-3)


def modelled(configs: list[Config]) -> list[float]:
    """The model's latency of each configuration in ms."""
    from tilewright.evaluation.modelling import profile_launch
    from tilewright.gpu.specs import spec_by_arch
    from tilewright.interpreter import host
    from tilewright.roofline.model import estimate_launch

    device = spec_by_arch("sm_90")
    host.install(device)
    tensors = {kernel: make_tensors(kernel, "cpu") for kernel in {config["kernel"] for config in configs}}
    found = []
    for config in configs:
        with host.running(host.Mode.SAMPLE) as launches:
            launcher(config, tensors[config["kernel"]])()
        found.append(estimate_launch(profile_launch(launches[0], "sm_90"), device).ms)
    return found


def compare(path: Path, every: int) -> None:
    raw = path.read_bytes()
    record = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    configs = record["configurations"][::every]
    figures = modelled(configs)
    for kernel, group in itertools.groupby(zip(configs, figures, strict=True), key=lambda pair: pair[0]["kernel"]):
        pairs = [(config, config["measured_ms"], figure) for config, figure in group]
        for config, measured, figure in sorted(pairs, key=lambda pair: pair[1]):
            shown = {name: value for name, value in config.items() if name not in ("kernel", "measured_ms")}
            print(f"{kernel:8} {shown!s:64} measured {measured:9.4f} ms, modelled ~{figure:9.4f} ms")
        rank = spearmanr([pair[1] for pair in pairs], [pair[2] for pair in pairs]).statistic
        print(f"{kernel}: {len(pairs)} configurations, Spearman rank correlation {rank:.2f}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=1, help="compare: only every so many configurations")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.file)
    else:
        compare(arguments.file, arguments.every)


if __name__ == "__main__":
    main()

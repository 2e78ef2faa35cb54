"""The latency model against a GPU: sweeps of five kernels, measured once, modelled anywhere.

python -m benchmarks.advice.model measure FILE    on a GPU: median latency of every configuration, interleaved
python -m benchmarks.advice.model compare FILE    anywhere: the model's figure beside each, and their rank correlation

`compare` exits with 1 if the model ranks a kernel badly, or does not tell its hopeless configurations from its best.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.recorded import header, read, write
from scipy.stats import spearmanr

from tilewright.bundled import examples
from tilewright.gpu.specs import spec_by_arch
from tilewright.roofline.model import LaunchProfile, estimate_launch

ROUNDS = 9
REPLAY_MS = 6.0
WANTED_RANK = 0.8
HOPELESS = 2.5
"""Times the best modelled latency from which a configuration counts as hopeless."""
SLOW = 3.0
"""Times the best measured latency above which a configuration has to be flagged as hopeless."""
BEST = 3
"""So many of the fastest must not be flagged."""
Config = dict[str, Any]
KEPT: list[Callable[[], None]] = []
"""Every call that was captured: its kernel's code must outlive the graph, which does not hold it."""


def example(name: str) -> Any:
    """The module of an example, or of one of `benchmarks/kernels`."""
    found = [*examples().glob(f"*{name}*/fixed_launch.py"), Path(__file__).parents[1] / "kernels" / name / "kernel.py"]
    path = found[-1] if name == "softmax" else found[0]
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
    tile: tuple[int, ...]
    for tile in ((64, 64, 64), (64, 128, 64), (128, 64, 64), (128, 128, 32), (128, 128, 64)):
        for occupancy, warps in itertools.product((None, 2), (None, 8)):
            yield {"kernel": "matmul", "tile": tile, "hints": hints(occupancy=occupancy, num_worker_warps=warps)}
    for tile in ((128, 256, 64), (256, 128, 64)):
        for warps in (4, 8):
            yield {"kernel": "matmul", "tile": tile, "hints": hints(num_worker_warps=warps)}
        yield {"kernel": "matmul", "tile": tile, "hints": hints(num_ctas=2, occupancy=2)}
    for tile in ((32, 64, 64), (64, 256, 64), (256, 64, 64), (128, 128, 128), (128, 256, 128)):
        yield {"kernel": "matmul", "tile": tile, "hints": hints(num_worker_warps=8)}
    for tile_s, occupancy in itertools.product((1, 8, 16, 32, 64, 128), (None, 2, 4, 8)):
        yield {"kernel": "rope", "tile": (tile_s,), "hints": hints(occupancy=occupancy)}
    for tile in itertools.product((64, 128), (32, 64, 128)):
        for occupancy, warps in itertools.product((None, 2), (None, 8)):
            yield {"kernel": "attention", "tile": tile, "hints": hints(occupancy=occupancy, num_worker_warps=warps)}
    for width, occupancy, warps in itertools.product((256, 1024, 4096, 8192), (None, 2, 4, 8), (None, 8)):
        yield {"kernel": "softmax", "tile": (width,), "hints": hints(occupancy=occupancy, num_worker_warps=warps)}


def hints(**values: int | None) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


def launcher(config: Config, tensors: dict[str, torch.Tensor]) -> Callable[[], None]:
    """A call that launches the configuration's kernel on the current stream."""
    module = example(config["kernel"])
    kernel = getattr(module, f"{config['kernel']}_kernel").replace_hints(**config["hints"])
    x, out = tensors["x"], tensors["out"]
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    if config["kernel"] == "rmsnorm":
        rows, columns = x.shape
        grid, arguments = (rows,), (x, tensors["weight"], out, columns, columns, 1e-6)
    elif config["kernel"] == "matmul":
        tile = config["tile"]
        grid, arguments = (out.shape[0] // tile[0], out.shape[1] // tile[1]), (x, tensors["other"], out, *tile)
    elif config["kernel"] == "attention":
        heads, length, width = x.shape
        grid = (heads, length // config["tile"][0])
        arguments = (x, tensors["k"], tensors["v"], out, width**-0.5, length, *config["tile"], width)
    elif config["kernel"] == "softmax":
        grid, arguments = (x.shape[0],), (x, out, *config["tile"])
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
    if kernel == "attention":
        return {name: tensor(128, 4096, 128) for name in ("x", "k", "v", "out")}
    if kernel == "softmax":
        return {"x": tensor(8192, 8192).float(), "out": tensor(8192, 8192).float()}
    return {"x": tensor(4, 32, 4096, 128), "out": tensor(4, 32, 4096, 128), "cos": tensor(4096, 64)}


def compile_ahead(config: Config) -> str:
    """Launch it once, in a process of its own, so that its code is in cuTile's cache on disk. Gives what failed."""
    try:
        launcher(config, make_tensors(config["kernel"], "cuda"))()
        torch.cuda.synchronize()
    except Exception as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def measure(path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(min(os.cpu_count() or 1, 12), maxtasksperchild=4) as pool:
        failed = pool.map(compile_ahead, [*configurations()], chunksize=1)
    running: list[Config] = []
    for config, message in zip(configurations(), failed, strict=True):
        running += [] if message else [config]
        if message:
            print(f"{config} fails: {message}")
    found: list[Config] = []
    for kernel, group in itertools.groupby(running, key=lambda config: str(config["kernel"])):
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
            print(found[-1], flush=True)
        del ready[:], tensors
    record = header("advice.model measure FILE") | {
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


def profiled(configs: list[Config]) -> Iterator[LaunchProfile]:
    """What the model is fed with for each configuration: compiled, and sampled in the interpreter."""
    from tilewright.evaluation.modelling import profile_launch
    from tilewright.interpreter import host

    host.install(spec_by_arch("sm_90"))
    tensors = {kernel: make_tensors(kernel, "cpu") for kernel in {config["kernel"] for config in configs}}
    counted: dict[str, Any] = {}  # hints change nothing of what blocks do
    for config in configs:
        key = str((config["kernel"], config.get("tile")))
        with host.running(host.Mode.CAPTURE if key in counted else host.Mode.SAMPLE) as launches:
            launcher(config, tensors[config["kernel"]])()
        launches[0].counts = counted.setdefault(key, launches[0].counts)
        yield profile_launch(launches[0], "sm_90")


def modelled(configs: list[Config], kept: Path | None) -> list[float]:
    """The model's latency of each configuration in ms, from the profiles in `kept`, which is made where it is not."""
    asked = [config_text(config) for config in configs]
    if kept is not None and kept.exists():
        stored = read(kept)["profiles"]
        profiles = {text: LaunchProfile.model_validate(one) for text, one in stored.items()}
    else:
        profiles = dict(zip(asked, profiled(configs), strict=True))
    if kept is not None and not kept.exists():
        made = {config: one.model_dump(mode="json") for config, one in profiles.items()}
        write(kept, header("advice.model compare SWEEPS --profiles FILE") | {"profiles": made})
    return [estimate_launch(profiles[text], spec_by_arch("sm_90")).ms for text in asked]


def config_text(config: Config) -> str:
    return str({name: value for name, value in config.items() if name != "measured_ms"})


def compare(path: Path, every: int, kept: Path | None, told: Path | None) -> bool:
    """Whether every kernel's sweep is ranked well, its hopeless configurations flagged, and none of its best."""
    record = read(path)
    configs = record["configurations"][::every]
    figures = modelled(configs, kept)
    sweeps: dict[str, list[tuple[float, float]]] = {}
    found: dict[str, dict[str, float]] = {}
    well = True
    for kernel, group in itertools.groupby(zip(configs, figures, strict=True), key=lambda pair: pair[0]["kernel"]):
        pairs = sorted(((config, config["measured_ms"], figure) for config, figure in group), key=lambda pair: pair[1])
        bar = HOPELESS * min(figure for _, _, figure in pairs)
        for config, measured, figure in pairs:
            shown = {name: value for name, value in config.items() if name not in ("kernel", "measured_ms")}
            flag = ", flagged" if figure > bar else ""
            print(f"{kernel:9} {shown!s:66} measured {measured:9.4f} ms, modelled ~{figure:9.4f} ms{flag}")
        sweeps[kernel] = [(measured, figure) for _, measured, figure in pairs]
        rank = spearmanr(*zip(*sweeps[kernel], strict=True)).statistic
        slow = [figure > bar for measured, figure in sweeps[kernel] if measured > SLOW * pairs[0][1]]
        ratios = [figure / measured for measured, figure in sweeps[kernel]]
        extremes = {"least": min(ratios), "most": max(ratios)}
        found[kernel] = {"rank": float(rank), "configurations": len(pairs), **extremes}
        lost = sum(figure > bar for _, figure in sweeps[kernel][:BEST])
        print(f"{kernel}: {len(pairs)} configurations, Spearman rank correlation {rank:.2f}")
        print(f"{kernel}: {sum(slow)} of {len(slow)} slower than {SLOW:g} times the best flagged", end="")
        print(f", {lost} of the best {BEST} flagged\n")
        well = well and rank >= WANTED_RANK and all(slow) and not lost
    if told is not None:
        write(told, header("advice.model compare SWEEPS --json FILE") | {"kernels": found})
    return well


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--every", type=int, default=1, help="compare: only every so many configurations")
    parser.add_argument(
        "--profiles", type=Path, metavar="FILE.gz", help="compare: what was compiled and sampled; made where it is not"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="compare: rank and modelled over measured, by kernel")
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(arguments.file)
    elif not compare(arguments.file, arguments.every, arguments.profiles, arguments.json):
        sys.exit(1)


if __name__ == "__main__":
    main()

"""The steps of `benchmarks/advice/searches.py`: either search, compiling a space ahead, and measuring all of it."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.kernels.searched.spaces import Bed, Config, Part, configs_of

COMPILE_S = 20
"""Limit of one compile where all configs of a space are measured."""
REPLAY_MS = 3.0
ALL_ROUNDS = 10
FINAL_ROUNDS = 150
SLOW = 1.5
"""Times the best from which on a config is measured in the first two rounds only."""
Record = dict[str, Any]
KEPT: list[Any] = []
"""Calls that were captured, and the graphs: a kernel's code must outlive the graph, which does not hold it."""


def ours(part: Part, repository: Path, backend: str = "cuda") -> Record:
    """Tilewright's search, and when it said what."""
    import tilewright.autotune.tuner as tuner
    from tilewright.autotune import search

    started = time.perf_counter()
    phases: list[tuple[float, str]] = []

    def noted(search_of: Any) -> Any:
        async def run(wanted: Any, backend: Any, runs: Any, tell: Any) -> Any:
            def tell_too(text: str) -> None:
                if not phases or re.sub(r"\d+ of", "", phases[-1][1]) != re.sub(r"\d+ of", "", text):
                    phases.append((round(time.perf_counter() - started, 2), text))
                    print(f"    {phases[-1][0]:6.1f} s {text}", flush=True)
                tell(text)

            return await search_of(wanted, backend, runs, tell_too)

        return run

    tuner.search = noted(tuner.search)
    report = search("task", part.space, root=repository, backend=backend)
    seconds = time.perf_counter() - started
    found: Record = {"seconds": round(seconds, 2), "summary": report.summary, "phases": phases}
    result = json.loads(Path(report.files["result"]).read_text())
    if result["status"] != "passed":
        return found | {"error": f"{result['status']}: {result['message']}"[:500]}
    kept = ("config", "place", "why", "speedup")
    tried = [{name: one[name] for name in kept if one[name] is not None} for one in result["tried"]]
    return found | {"best": result["best"], "confirmed": result["confirmed"], "tried": tried}


def theirs(part: Part, repository: Path) -> Record:
    """cuTile's exhaustive search; the process's start and the inputs are not in its seconds."""
    import torch
    from cuda.tile.tune import exhaustive_search

    bed = Bed(part, repository)
    torch.cuda.synchronize()
    kernel = bed.launch({})[1]
    launches = {_key(config): bed.launch(config) for config in bed.configs}
    started = time.perf_counter()
    result = exhaustive_search(
        bed.configs, torch.cuda.current_stream(), lambda one: launches[_key(one)][0], kernel,
        lambda one: launches[_key(one)][2], lambda one: launches[_key(one)][3], quiet=True,
    )  # fmt: skip
    seconds = time.perf_counter() - started
    successes = [[one.config, round(one.mean_us / 1e3, 6), one.num_samples] for one in result.successes]
    failures = [[config, f"{kind.__name__}: {text}"[:200]] for config, kind, text in result.failures]
    found: Record = {"seconds": round(seconds, 2), "best": result.best.config}
    return found | {"successes": successes, "failures": failures}


def _key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def warm(part: Part, repository: Path, numbers: list[int]) -> None:
    """Compile and launch these configs once each, a line of JSON for each as it is done."""
    import torch

    bed = Bed(part, repository)
    for number in numbers:
        started = time.perf_counter()
        line: Record = {"number": number, "error": ""}
        try:
            bed.call(bed.configs[number])()
            torch.cuda.synchronize()
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(line | {"seconds": round(time.perf_counter() - started, 2)}), flush=True)


def full(
    part: Part, repository: Path, failed: Sequence[int], finders: dict[str, Config], few: Sequence[int] | None
) -> Record:
    """All configs but those that failed, in a few rounds; the best of them, and `finders`' finds, in many. Where `few`
    says which, no others."""
    import torch

    bed = Bed(part, repository)
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, int]] = {}
    errors: dict[int, str] = {}
    gc.collect()
    gc.freeze()  # each capture collects garbage

    def add(place: int, config: Config) -> None:
        call = bed.call(config)
        KEPT.append(call)
        call()
        torch.cuda.synchronize()
        calls = max(1, min(64, int(REPLAY_MS / _once(call))))
        graph = torch.cuda.CUDAGraph()
        KEPT.append(graph)
        with torch.cuda.graph(graph):
            for _ in range(calls):
                call()
        graph.replay()
        graphs[place] = graph, calls

    found = {bed.configs.index(config) for config in finders.values()} | {0}
    wanted = found.union(range(len(bed.configs)) if few is None else few).difference(failed)
    for number, config in enumerate(bed.configs):
        if number not in wanted:
            continue
        try:
            add(number, config)
        except Exception as error:
            errors[number] = f"{type(error).__name__}: {error}"[:200]
    print(f"    {len(graphs)} of {len(bed.configs)} configs ready", flush=True)

    def timed(places: list[int], count: int, limit_s: float) -> dict[int, list[float]]:
        return rounds(places, count, limit_s, lambda place: (graphs[place][0].replay, graphs[place][1]))

    ms = timed([*graphs], 2, math.inf)
    best = min(float(np.median(samples)) for samples in ms.values())
    close = [place for place, samples in ms.items() if np.median(samples) < SLOW * best]
    ms |= timed(close, ALL_ROUNDS, 30)
    ranked = sorted(close, key=lambda place: float(np.median(ms[place])))
    finals = found & graphs.keys()
    twin = len(bed.configs)  # the original again, to see what no difference looks like
    add(twin, {})
    longer = part.wide and part.full
    finals |= {*ranked[: 12 if longer else 7], twin}
    print(f"    {len(finals)} in the final rounds; best {best:.4f} ms", flush=True)
    samples = timed(sorted(finals), FINAL_ROUNDS, 15 if longer else 8)
    return {
        "configs": bed.configs,
        "ms": {place: round(float(np.median(one)), 6) for place, one in ms.items()},
        "errors": errors,
        "twin": twin,
        "finals": {place: [round(one, 6) for one in found] for place, found in samples.items()},
        "torch_gpu": torch.cuda.get_device_name(),
    }


def rounds(
    places: list[int], count: int, limit_s: float, replay: Callable[[int], tuple[Callable[[], Any], int]]
) -> dict[int, list[float]]:
    """Milliseconds of one call of each, once in each round, in random order."""
    import torch

    found: dict[int, list[float]] = {place: [] for place in places}
    deadline, order = time.perf_counter() + limit_s, random.Random(1)
    for _ in range(count):
        events = []
        for place in order.sample(places, len(places)):
            run, calls = replay(place)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            run()
            end.record()
            events.append((place, start, end, calls))
        torch.cuda.synchronize()
        for place, start, end, calls in events:
            found[place].append(float(start.elapsed_time(end)) / calls)
        if time.perf_counter() > deadline:
            break
    return found


def _once(call: Callable[[], Any]) -> float:
    """The best of three calls in ms, since the first after a compile is slow."""
    return max(min(rounds([0], 3, math.inf, lambda _: (call, 1))[0]), 1e-3)


def precompile(part: Part, repository: Path, folder: Path, cache: Path, limit_s: float) -> Record:
    """Compile the whole space on all processors into `cache`; which configs failed, and why.

    Each process has a cache of its own, since many writers at once may lose one; they are merged in the end.
    """
    numbers, deadline = [*range(len(configs_of(part, repository)))], time.monotonic() + limit_s
    started, count = time.monotonic(), min(len(os.sched_getaffinity(0)), 16)
    shares = [numbers[first::count] for first in range(count)]
    running: list[subprocess.Popen[bytes] | None] = []
    done: dict[int, Record] = {}
    for index, share in enumerate(shares):
        running.append(_warmer(part, repository, folder, index, share))
    while any(one is not None for one in running):
        time.sleep(0.1)
        for index, process in enumerate(running):
            if process is None or (process.poll() is None and time.monotonic() < deadline):
                continue
            kill(process)
            for line in (folder / f"warm-{index}.log").read_text().splitlines():
                with contextlib.suppress(ValueError):
                    one = json.loads(line)
                    done[one["number"]] = one
            left = [number for number in shares[index] if number not in done]
            running[index] = None
            if left:  # the first of them ended its process, or took all the time
                why = "not compiled in time" if time.monotonic() > deadline else f"ended with {process.returncode}"
                for number in left if time.monotonic() > deadline else left[:1]:
                    done[number] = {"number": number, "error": why}
                if left := [number for number in left if number not in done]:
                    shares[index], running[index] = left, _warmer(part, repository, folder, index, left)
    _merge(sorted(folder.glob("cache-*/cache.db")), cache)
    failed = {number: one["error"] for number, one in done.items() if one["error"]}
    return {"seconds": round(time.monotonic() - started, 2), "processes": count, "failed": failed}


def _warmer(part: Part, repository: Path, folder: Path, index: int, numbers: list[int]) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.advice.searches",
        "step",
        "warm",
        part.name,
        str(repository),
        json.dumps(numbers),
    ]
    environment = os.environ | compiling(folder / f"cache-{index}")
    with (folder / f"warm-{index}.log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def compiling(cache: Path) -> dict[str, str]:
    return {"CUDA_TILE_CACHE_DIR": str(cache), "CUDA_TILE_COMPILER_TIMEOUT_SEC": str(COMPILE_S)}


def _merge(caches: list[Path], into: Path) -> None:
    into.mkdir(exist_ok=True)
    for path in caches:
        if not (into / path.name).exists():
            shutil.copy(path, into / path.name)
            continue
        with contextlib.closing(sqlite3.connect(into / path.name)) as target:
            target.execute("ATTACH ? AS other", (str(path),))
            columns = "key, blob, blob_size, atime, metadata"
            target.execute(f"INSERT OR IGNORE INTO cache ({columns}) SELECT {columns} FROM other.cache")
            target.commit()


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process that this one started, with all of its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

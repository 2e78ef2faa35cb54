"""`autotune` beside cuTile's own `exhaustive_search`, over the spaces of `benchmarks/kernels/searched`, on a GPU.

python -m benchmarks.advice.searches measure FILE [--only NAME ...] [--limit SECONDS] [--without-theirs]
python -m benchmarks.advice.searches show FILE    anywhere

Each space is searched once by each, in processes of their own. A search of autotune's is a race, then a check and a
second comparison of the best; the seconds of both are apart. `over_best` sets the recorded time of its best config
beside the fastest of that space, by `searches.json.gz`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.advice.replayed import RECORDED, key, times_of
from benchmarks.kernels.searched.spaces import BY_NAME, PARTS, Part, configs_of, make_repository
from benchmarks.recorded import header, read, write

from tilewright.autotune.report import SearchResult
from tilewright.autotune.searching import Wanted, search
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.runs import Runs, backend_here
from tilewright.task import load_task

HINTS = ("num_worker_warps", "occupancy", "opt_level", "num_ctas")
CONFIRMING = "confirming the best config"
Record = dict[str, Any]


def ours(part: Part, repository: Path) -> Record:
    """A search by autotune: its seconds, those until the best was confirmed, and what it found."""
    wanted = Wanted(working_candidate(Checkout(repository), PurePosixPath("task")), part.space, None)
    began, race_s = time.monotonic(), math.nan

    def tell(text: str) -> None:
        nonlocal race_s
        if text.startswith(CONFIRMING) and math.isnan(race_s):
            race_s = time.monotonic() - began

    async def searched() -> SearchResult:
        backend, found = backend_here(), wanted.found
        runs = Runs(backend, "sm_90", found.committed, found.folder, rules=found.task.file.rules)
        try:
            return await search(wanted, backend, runs, tell)
        finally:
            await runs.close()

    result = asyncio.run(searched())
    return {
        "status": result.status,
        "message": result.message,
        "best": result.best,
        "confirmed": str(result.confirmed),
        "confirmation": result.confirmation,
        "race_s": round(race_s, 2),
        "seconds": round(time.monotonic() - began, 2),
    }


def theirs(part: Part, repository: Path) -> Record:
    """cuTile's search of the same configs, in this process: the launches are noted, and given to it."""
    import cuda.tile as ct
    import torch
    from cuda.tile.tune import exhaustive_search

    task, launched, launch = load_task(repository / "task"), [], ct.launch
    sys.path.insert(0, str(repository / "task"))
    case = task.file.cases[0].case
    inputs = importlib.import_module("task").make_inputs(case, torch.Generator("cuda").manual_seed(1))
    module = importlib.import_module(task.module)
    configs = configs_of(part, repository)
    began = time.monotonic()
    ct.launch = lambda stream, grid, kernel, args: launched.append((grid, kernel, args))
    for config in configs:
        for name, value in config.items():
            if name not in HINTS:
                setattr(module, name, value)
        getattr(module, task.function)(**inputs)
    ct.launch = launch
    assert len(launched) == len(configs), "each call has to launch once"
    found = exhaustive_search(
        range(len(configs)), torch.cuda.current_stream(), lambda n: launched[n][0], launched[0][1],
        lambda n: launched[n][2], lambda n: {name: configs[n][name] for name in HINTS if name in configs[n]},
        quiet=True,
    )  # fmt: skip
    return {"seconds": round(time.monotonic() - began, 2), "best": configs[found.best.config]}


def measure(file: Path, names: list[str], limit_s: float, without_theirs: bool) -> None:
    began, recorded = time.monotonic(), read(RECORDED)["parts"]
    record: Record = header("advice.searches measure FILE") | {"parts": {}}
    for part in PARTS:
        if (names and part.name not in names) or time.monotonic() - began > limit_s:
            continue
        one: Record = {}
        for who in ("ours",) if without_theirs else ("ours", "theirs"):
            command = [sys.executable, "-m", "benchmarks.advice.searches", who, part.name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            one[who] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": True}
        times = times_of(recorded[part.name])
        if "best" in one["ours"]:
            one["over_best"] = round(times[key(one["ours"]["best"])] / min(times.values()) - 1, 4)
        one["configs"] = len(times)
        record["parts"][part.name] = one
        write(file, record)
        print(described(part.name, one), flush=True)


def described(name: str, one: Record) -> str:
    cells = [name, one["configs"], one["ours"].get("race_s"), one["ours"].get("seconds")]
    cells += [one.get("theirs", {}).get("seconds"), one.get("over_best")]
    return f"| {' | '.join(map(str, cells))} | {one['ours'].get('confirmed')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show", "ours", "theirs"])
    parser.add_argument("file", type=Path, help="with `ours` and `theirs`, which `measure` calls: the space's name")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(BY_NAME), metavar="NAME")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS")
    parser.add_argument("--without-theirs", action="store_true")
    asked = parser.parse_args()
    if asked.what == "measure":
        measure(asked.file, asked.only, asked.limit, asked.without_theirs)
    elif asked.what == "show":
        print("| space | configs | race, s | all, s | cuTile's, s | over the best |")
        for name, one in read(asked.file)["parts"].items():
            print(described(name, one))
    else:
        part = BY_NAME[str(asked.file)]
        with tempfile.TemporaryDirectory(prefix="searches-") as parent:
            found = {"ours": ours, "theirs": theirs}[asked.what](part, make_repository(Path(parent), part))
        print(json.dumps(found))


if __name__ == "__main__":
    main()

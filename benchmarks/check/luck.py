"""Whether a kernel that is wrong on a quarter of its sizes is kept by trying often: sessions of nothing but such tries.

python -m benchmarks.check.luck [--backend cpu|cuda] [--sessions N] [--tries N] [--at-once N] [--seconds] [--json FILE]

Each session is on a copy of assets/examples/01_rmsnorm_occupancy_only. Each try makes the kernel faster, and wrong on
another quarter of its hidden sizes: on those that a hash picks, or on an interval of the rows. A session ends after
`--tries`, or where the task has no room for more wrong results. With `--seconds`, what the check on many hidden sizes
takes on each example.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.recorded import header, write

from tilewright.bundled import examples
from tilewright.errors import UsageError
from tilewright.evaluation.seeds import new_secret
from tilewright.rules import Rules
from tilewright.session.loop import Loop
from tilewright.session.runs import Runs
from tilewright.task import Backend, Frontend, case_label, load_task

EXAMPLE = "01_rmsnorm_occupancy_only"
ROWS = {Backend.CPU: 48, Backend.CUDA: 8192}
"""The most rows that the task draws."""
FASTER = {Backend.CPU: "@ct.kernel(occupancy=8)\n", Backend.CUDA: "@ct.kernel(occupancy=4)\n"}


def wrong_on(backend: Backend, source: random.Random) -> tuple[str, str]:
    """A quarter of the sizes: what it is, and as an expression of the host code."""
    if source.random() < 0.5:
        salt = source.randrange(2**16)
        return "by a hash", f"((rows * 40503 + columns * 30011 + {salt}) * 2654435761 >> 13) % 4 == 0"
    width = ROWS[backend] // 4
    low = source.randrange(1, ROWS[backend] - width + 2)
    return "an interval", f"{low} <= rows < {low + width}"


async def session(backend: Backend, tries: int, source: random.Random, place: Path) -> list[dict[str, Any]]:
    """Play one session; how each try ended."""
    folder = place / "task"
    shutil.copytree(examples() / EXAMPLE, folder)
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "task"]):
        subprocess.run(["git", *command], cwd=place, check=True)
    loop = Loop(place)
    found: list[dict[str, Any]] = []

    async def quiet(_: str) -> None:
        return None

    rules = Rules(max_iterations=200, patience=200, iteration_minutes=10.0, stop_on_minor_gain=False)
    try:
        await loop.start("task", quiet, backend, rules=rules, wait_s=1e9)
        file = folder / "fixed_launch.py"
        right = file.read_text()
        for number in range(tries):
            kind, condition = wrong_on(backend, source)
            text = re.sub(r"@ct.kernel\n", FASTER[backend], right)
            wrong = f"    if {condition} and rows not in (64, 16384):\n        eps += 0.5\n"
            text = text.replace("    ct.launch(", f"{wrong}    ct.launch(") + f"\n# {number}\n"
            file.write_text(text)
            started = time.monotonic()
            try:
                checked = await loop.run_correctness(quiet, wait_s=1e9)
            except UsageError as refused:
                found.append({"kind": kind, "ended": "refused", "why": str(refused)})
                break
            one: dict[str, Any] = {"kind": kind, "condition": condition, "check": checked.status}
            if checked.status == "passed":
                measured = await loop.run_benchmark(quiet, wait_s=1e9)
                one |= {"sizes": measured.status, "speedup": measured.speedup}
                one["ended"] = measured.verdict.kind if measured.verdict else "void"
            else:
                one["ended"] = "revert"
            found.append(one | {"seconds": round(time.monotonic() - started, 2)})
            if one["ended"] == "keep":
                loop.checkpoint()
                right = file.read_text()
            else:
                loop.revert()
            await loop.append_result("a try", quiet)
        found.append({"status": loop.status().budget})
    finally:
        await loop.close()
    return found


async def seconds_of(backend: Backend) -> dict[str, dict[str, float]]:
    """Seconds of the check on a few sizes and on many, on each example; each was made once before."""
    found: dict[str, dict[str, float]] = {}
    for folder in sorted(path.parent for path in examples().glob("*/task.toml")):
        task = load_task(folder)
        if backend is Backend.CPU and task.file.frontend is Frontend.TRITON and not find_spec("triton"):
            continue
        names = [path for path in folder.iterdir() if path.is_file()]
        files = {f"task/{path.name}": path.read_bytes() for path in names}
        candidate = {f"task/{name}": files[f"task/{name}"] for name in task.file.editable}
        runs = Runs(backend, "sm_90", files, PurePosixPath("task"))
        try:
            await runs.environment()
            for _ in range(2):
                few = await runs.correctness(candidate, new_secret(), 600.0, lambda _: None)
                many = await runs.widely(candidate, new_secret(), 600.0, lambda _: None)
            sizes = len({case_label(check.case) for check in many.cases if check.hidden})
            found[task.name] = {"few": few.seconds, "many": many.seconds, "sizes": sizes}
            more = f"{sizes} more sizes {many.seconds:.2f} s ({many.status})"
            print(f"{task.name}: {few.seconds:.2f} s ({few.status}), {more}", flush=True)
        finally:
            await runs.close()
    return found


def one_session(backend: Backend, tries: int, seed: int) -> list[dict[str, Any]]:
    """Play a session in a folder, and with a state folder, of its own."""
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        (place := Path(scratch) / "repository").mkdir()
        found = asyncio.run(session(backend, tries, random.Random(seed), place))
    tried = [one for one in found if "check" in one]
    early = sum(one["check"] != "passed" for one in tried)
    kept = sum(one["ended"] == "keep" for one in tried)
    print(
        f"session {seed}: {len(tried)} tries, {early} stopped by the check, {len(tried) - early - kept} by the hidden "
        f"sizes before a keep, {kept} kept",
        flush=True,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", type=Backend, default=Backend.CPU)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--tries", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        playing = [pool.submit(one_session, given.backend, given.tries, seed) for seed in range(1, given.sessions + 1)]
        sessions = [one.result() for one in playing]
    seconds = asyncio.run(seconds_of(given.backend)) if given.seconds else {}
    if given.json:
        command = f"check.luck --backend {given.backend} --sessions {given.sessions} --tries {given.tries} --seconds"
        write(given.json, {**header(command), "backend": given.backend, "sessions": sessions, "seconds": seconds})


if __name__ == "__main__":
    main()

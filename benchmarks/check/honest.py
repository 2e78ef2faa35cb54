"""Whether honest candidates are refused, or counted as wrong: sessions on right kernels, and edits that change nothing.

python -m benchmarks.check.honest [--backend cpu|cuda] [--starts N] [--edits N] [--at-once N] [--seed S] [--limit S]
    [--json FILE]

The kernels are in cuTile, Triton and torch, with inputs and outputs of nine dtypes (`KERNELS`). The starts are spread
over them, and the edits over the starts. Each start is a session of its own on a new secret, whose baseline is checked
and measured. Each edit is checked, and every fourth is measured. Without a GPU there is no session on a Triton kernel:
it is checked as `tilewright check` does, which counts wrong results as well. After `--limit` seconds none begins.
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
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.check.edits import TEXT, TREE, edited
from benchmarks.recorded import header, write

from tilewright.bundled import examples
from tilewright.errors import UsageError
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.checks import check_task
from tilewright.session.loop import Loop
from tilewright.session.wrong import wrong_results
from tilewright.task import Backend, Frontend, load_task

MEASURED = 4
"""Of so many edits, one is measured."""
RULES = Rules(max_iterations=200, patience=200, iteration_minutes=10.0, stop_on_minor_gain=False, ceiling_percent=200)
"""No session ends by itself."""
UNMEASURED = "the baseline could not be measured"
"""How a start is answered that is to be made again."""
OWN = Path(__file__).parents[1] / "kernels"
KERNELS: list[tuple[str, str, str]] = [
    ("01_rmsnorm_occupancy_only", "", ""),
    ("02_matmul_full_search", "", ""),
    ("03_rope_inplace_splitbuffer", "", ""),
    ("04_layernorm_torch", "", ""),
    ("05_softmax_triton", "", ""),
    ("affine", "", ""),
    ("attention", "", ""),
    ("rowsum", "", ""),
    ("above", "torch", "float16"),
    ("above", "triton", "float32"),
    ("argmax", "cutile", "float32"),
    ("attention", "torch", "float32"),
    ("attention", "triton", "bfloat16"),
    ("bytesum", "cutile", "int8"),
    ("histogram", "cutile", "int32"),
    ("histogram", "triton", "int32"),
    ("layernorm_backward", "cutile", "float32"),
    ("layernorm_backward", "torch", "bfloat16"),
    ("layernorm_backward", "triton", "float32"),
    ("product", "cutile", "float8_e4m3fn"),
    ("product", "torch", "float64"),
    ("product", "triton", "float16"),
    ("quantize", "cutile", "float32"),
    ("quantize", "torch", "bfloat16"),
    ("rope", "torch", "float16"),
    ("rope", "triton", "bfloat16"),
    ("silu", "cutile", "float64"),
    ("silu", "torch", "float8_e5m2"),
    ("silu", "triton", "float8_e4m3fn"),
    ("xent", "triton", "float32"),
]
"""Of a kernel in benchmarks/kernels/honest the language and the inputs' dtype; other folders say them themselves."""


def prepared(folder: str, language: str, dtype: str, place: Path) -> Path:
    """The kernel's task, committed to a repository at `place`: the file that is edited."""
    parent = OWN / "honest" if language else OWN if (OWN / folder).is_dir() else examples()
    shutil.copytree(parent / folder, place / "task", ignore=shutil.ignore_patterns("__pycache__"))
    if language:
        file = place / "task" / "task.toml"
        text = re.sub(r'"in_\w+', f'"in_{language}', file.read_text())
        text = re.sub(r"(?m)^frontend = .*", f'frontend = "{language}"', text)
        file.write_text(re.sub(r"(?m)^dtype = .*", f'dtype = "{dtype}"', text))
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "task"]):
        subprocess.run(["git", *command], cwd=place, check=True)
    task = load_task(place / "task")
    return task.folder / task.file.editable[0]


async def quiet(_: str) -> None:
    return None


class Bed:
    """A task with a right kernel, and what becomes of its start and of edits."""

    def __init__(self, backend: Backend, file: Path, place: Path) -> None:
        self._backend, self._file, self._place = backend, file, place
        self._right = file.read_text()
        task = load_task(file.parent)
        self._entry = task.file.entry
        sessionless = backend is Backend.CPU and task.file.frontend is Frontend.TRITON
        self.loop = None if sessionless else Loop(place)

    @property
    def charged(self) -> int:
        """Wrong results that were counted."""
        return wrong_results(Checkout(self._place).repository, self._entry, self._backend).count

    async def started(self) -> dict[str, Any]:
        """How the start ended."""
        if self.loop is None:
            return await self._checked()
        status = await self.loop.start("task", quiet, self._backend, rules=RULES, wait_s=1e9)
        ended = status.summary if status.phase == "ended" else ""
        return {"status": "refused" if ended else "passed", "message": ended}

    async def tried(self, text: str, measured: bool) -> dict[str, Any]:
        """How the check of an edit ended, and the benchmark where it is `measured`."""
        self._file.write_text(text)
        try:
            found = await self._checked()
            if self.loop is None or found["status"] != "passed" or not measured:
                return found
            report = await self.loop.run_benchmark(quiet, wait_s=1e9)
            said = report.verdict.detail if report.verdict else report.summary
            return found | {"status": report.status, "verdict": said, "message": "" if report.verdict else said}
        finally:
            if self.loop is None:
                self._file.write_text(self._right)
            else:
                self.loop.revert()
                await self.loop.append_result("the same", quiet)

    async def _checked(self) -> dict[str, Any]:
        if self.loop is not None:
            report = await self.loop.run_correctness(quiet, wait_s=1e9)
            return {"status": report.status, "message": "" if report.status == "passed" else report.summary}
        result = await check_task(self._place, Path("task"), quiet)
        return {"status": result.status, "message": result.message}


async def session(
    backend: Backend, number: int, edits: int, source: random.Random, place: Path
) -> list[dict[str, Any]]:
    """The start of number `number`, and `edits` edits."""
    kernel = KERNELS[number % len(KERNELS)]
    file = prepared(*kernel, place)
    bed = Bed(backend, file, place)
    before = file.read_text()
    chosen = edited(before, TEXT, edits // 2, source) + edited(before, TREE, edits - edits // 2, source)
    found: list[dict[str, Any]] = []

    async def noted(kind: str, trial: Any) -> None:
        charged, began = bed.charged, time.monotonic()
        try:
            ended = await trial
        except UsageError as refused:
            ended = {"status": "void" if UNMEASURED in str(refused) else "refused", "message": str(refused)}
        seconds = round(time.monotonic() - began, 2)
        named = {"kernel": " ".join(filter(None, kernel)), "kind": kind}
        found.append(named | ended | {"charged": bed.charged - charged, "seconds": seconds})

    try:
        await noted("start", bed.started())
        if found[0]["status"] == "passed":
            for turn, (kind, text) in enumerate(chosen):
                await noted(kind, bed.tried(text, (number + turn) % MEASURED == 0))
    finally:
        if bed.loop is not None:
            await bed.loop.close()
    return found


def one_session(backend: Backend, number: int, edits: int, seed: int, until: float) -> list[dict[str, Any]]:
    """Play a session in a folder, and with a state folder, of its own; none after the time `until`."""
    if time.time() > until:
        return []
    with tempfile.TemporaryDirectory(prefix="tilewright-") as scratch:
        (place := Path(scratch) / "repository").mkdir()
        found = asyncio.run(session(backend, number, edits, random.Random(f"{seed} {number}"), place))
    for one in found:
        print(f"{one['kernel']}, {one['kind']}: {one['status']} in {one['seconds']} s {one['message']}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", type=Backend, default=Backend.CPU)
    parser.add_argument("--starts", type=int, default=60)
    parser.add_argument("--edits", type=int, default=120)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e6)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.time()
    with ProcessPoolExecutor(given.at_once, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        shares = [len(range(number, given.edits, given.starts)) for number in range(given.starts)]
        playing = [
            pool.submit(one_session, given.backend, *one, given.seed, began + given.limit) for one in enumerate(shares)
        ]
        trials = [trial for one in playing for trial in one.result()]
    seconds = round(time.time() - began)
    for kind in ("starts", "edits"):
        some = [one for one in trials if (one["kind"] == "start") == (kind == "starts")]
        ended, charged = Counter(str(one["status"]) for one in some), sum(one["charged"] for one in some)
        print(f"{len(some)} {kind}: {dict(ended)}, {charged} charged; {dict(Counter(one['kind'] for one in some))}")
    print(f"{seconds} s")
    if given.json:
        command = f"check.honest --backend {given.backend} --starts {given.starts} --edits {given.edits}"
        more = f" --at-once {given.at_once} --seed {given.seed} --json FILE"
        write(given.json, {**header(command + more), "backend": given.backend, "seconds": seconds, "trials": trials})


if __name__ == "__main__":
    main()

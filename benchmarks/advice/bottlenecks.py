"""`profile` on kernels with a planted bottleneck each: is it named? Ten were written
along with the rules (`kernels/bottlenecks`), ten by someone who knew none of these (`kernels/unseen`, whose README.md
argues for each label).

python -m benchmarks.advice.bottlenecks measure FILE [--seconds N] [--only NAME]    on a GPU: whole reports
python -m benchmarks.advice.bottlenecks show FILE    anywhere: the table of what was measured
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks import recorded

from tilewright.profile.profiler import Profiler
from tilewright.session.checkout import Checkout
from tilewright.task import Backend

KERNELS = Path(__file__).parents[1] / "kernels"
UNSEEN = "unseen"
PROFILE_S = 240.0
IDENTITY = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]


@dataclass(frozen=True)
class Planted:
    """An entry point of the task in `folder`, its case, and the bound that a right diagnosis names. Without an entry
    point the folder's own task.toml says both."""

    name: str
    folder: str
    entry: str
    case: dict[str, int]
    bound: str

    @property
    def source(self) -> Path:
        return KERNELS / ("bottlenecks" if self.entry else UNSEEN) / self.folder


PLANTED = (
    Planted("uncoalesced gather", "gather", "uncoalesced", {"M": 16384, "N": 4096}, "uncoalesced access"),
    Planted("spills", "products", "spilling", {"M": 4096, "N": 4096, "K": 2048}, "spilled registers"),
    Planted("one CTA per SM", "rows", "one_block_a_sm", {"M": 16384, "N": 8192}, "bytes in flight"),
    Planted("tail wave", "products", "tail_wave", {"M": 1536, "N": 3072, "K": 4096}, "tail wave"),
    Planted("bank conflicts", "columns", "bank_conflicts", {"M": 8192, "N": 8192}, "bank conflicts"),
    Planted("tiny launch", "rows", "four_blocks_a_sm", {"M": 264, "N": 256}, "launch overhead"),
    Planted(
        "missing tensor cores", "products", "without_tensor_cores", {"M": 2048, "N": 4096, "K": 1024},
        "missing tensor cores",
    ),
    Planted("L2-resident input", "table", "from_the_cache", {"R": 2048, "N": 1024, "B": 1056}, "L2 bandwidth"),
    Planted("DRAM at the ceiling", "rows", "four_blocks_a_sm", {"M": 16384, "N": 8192}, "DRAM bandwidth"),
    Planted(
        "tensor cores at the ceiling", "products", "at_the_ceiling", {"M": 8192, "N": 8192, "K": 8192}, "tensor cores"
    ),
    *(
        Planted(f"{UNSEEN}: {folder}", folder, "", {}, bound)
        for folder, bound in {
            "bip_to_bsq": "uncoalesced access",
            "sparsemax": "spilled registers",
            "score_until_end": "bytes in flight",
            "conv1d_taps": "tail wave",
            "frame_pooling": "bank conflicts",
            "jacobi_small": "launch overhead",
            "clip_logits": "missing tensor cores",
            "embedding_bag": "L2 bandwidth",
            "layerscale_gelu": "bytes in flight",  # its author said "DRAM bandwidth": see README.md
            "mlp_sqrelu": "tensor cores",
        }.items()
    ),
)  # fmt: skip


def write(one: Planted, folder: Path) -> None:
    """The task as a folder: its code, and a task.toml for this entry point and case."""
    shutil.copytree(one.source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if not one.entry:
        return
    case = "".join(f"{name} = {value}\n" for name, value in one.case.items())
    head = f'name = "{one.entry.replace("_", "-")}"\nentry = "kernel:{one.entry}"\neditable = ["kernel.py"]\n'
    (folder / "task.toml").write_text(f"{head}\n[[cases]]\n{case}")


def scratch(one: Planted, parent: Path) -> Path:
    """A git repository with the task in `task/`, committed."""
    repository = parent / one.folder / one.entry / "-".join(map(str, one.case.values()))
    write(one, repository / "task")
    for command in (["init", "-q"], ["add", "-A"], [*IDENTITY, "commit", "-qm", one.name]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    return repository


async def profiled(one: Planted, parent: Path) -> dict[str, Any]:
    """The planted kernel's whole report, and the counters behind it."""

    async def quiet(_: str) -> None: ...

    planted = Profiler(Checkout(scratch(one, parent)))
    began = time.monotonic()
    try:
        async with asyncio.timeout(PROFILE_S):
            report = await planted.profile(PurePosixPath("task"), quiet, Backend.CUDA)
    finally:
        await planted.close()
    found = {"report": report.model_dump(mode="json"), "counters": planted.counters.model_dump(mode="json")}
    if report.cases:
        found |= {"bound": report.cases[0].bound}
    return found | {"seconds": round(time.monotonic() - began, 1)}


def tried(one: Planted) -> dict[str, Any]:
    """The same as a row of the record; an error is one, too."""
    row = {"planted": one.name, "entry": one.entry, "case": one.case, "expected": one.bound}
    with tempfile.TemporaryDirectory(prefix="tilewright-bottlenecks-") as parent:
        try:
            row |= asyncio.run(profiled(one, Path(parent)))
        except Exception as error:
            row |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc(limit=-4)}
    return row


def line(row: dict[str, Any]) -> str:
    """A row in words."""
    if "bound" not in row:
        report = row.get("report", {})
        return f"{row['planted']:28} FAILED {row.get('error') or report.get('summary', '')}"
    case = row["report"]["cases"][0]
    mark = "right" if row["bound"] == row["expected"] else "WRONG"
    return (
        f"{row['planted']:28} expected {row['expected']:21} named {row['bound']:21} {mark}; {case['latency_ms']:.4f} "
        f"ms, {case['roofline_percent'] or 0:.0f}% of the roofline ({row['seconds']} s)"
    )


def total(rows: list[dict[str, Any]]) -> str:
    named = sum(row.get("bound") == row["expected"] for row in rows)
    counted = sum(bool(row.get("counters", {}).get("cases")) for row in rows)
    return f"{named} of {len(rows)} named rightly (counters for {counted} of them)"


def show(path: Path) -> None:
    record = recorded.read(path)
    for row in record["kernels"]:
        print(line(row))
        for evidence in row.get("report", {}).get("cases", [{}])[:1]:
            print("".join(f"    {text}\n" for text in evidence.get("evidence", [])), end="")
    print(total(record["kernels"]))


def measure(path: Path, seconds: float, only: str) -> None:
    began = time.monotonic()
    record: dict[str, Any] = recorded.header("advice.bottlenecks measure FILE") | {"kernels": []}
    for one in PLANTED:
        if only not in one.name:
            continue
        if time.monotonic() - began > seconds:
            print(f"{one.name}: left out, {seconds:.0f} s are over", flush=True)
            continue
        row = tried(one)
        record["kernels"].append(row)
        recorded.write(path, record)
        print(line(row), flush=True)
        for evidence in row.get("report", {}).get("cases", [{}])[:1]:
            print("".join(f"    {text}\n" for text in evidence.get("evidence", [])), end="", flush=True)
        print(f"    counters: {row.get('report', {}).get('counters', 'none')}", flush=True)
    print(total(record["kernels"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=450, help="measure: after these nothing new begins")
    parser.add_argument("--only", default="", help="those alone whose name holds this: `unseen` for the second ten")
    arguments = parser.parse_args()
    if arguments.what == "show":
        return show(arguments.file)
    return measure(arguments.file, arguments.seconds, arguments.only)


if __name__ == "__main__":
    sys.exit(main())

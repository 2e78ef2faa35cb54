"""Edit to verdict, in real sessions: twenty edits of the five examples, how each ended, and where its seconds went.

python -m benchmarks.clock.turnaround [--json FILE] [--limit SECONDS] [--only NAME] [--backend cpu|cuda] [--pause S]
python -m benchmarks.clock.turnaround --identical ...    edits that change nothing: none may be kept

Each example has a session of its own, and is warm: its baseline was measured, and before each edit `--pause` seconds
go by, in which its workers start: an agent takes longer to write one. The record is written after each edit.
At the limit, which counts from the start of this process, the edit under way is given up. With `--identical`, each
session renames a variable, adds a comment and reorders two independent statements; it ends with 1 if an edit ends
otherwise than as the same program or inconclusive. `--sessions` says how many are played on each example.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
from benchmarks.recorded import header, write

from tilewright.bundled import examples
from tilewright.demo import edits_of
from tilewright.ledger import Journal
from tilewright.policy import Reason, VerdictKind
from tilewright.rules import Rules
from tilewright.session.loop import Loop
from tilewright.session.records import ENTRY, Checked, Measured, Row
from tilewright.session.runs import backend_here
from tilewright.task import Backend

CLOSING_S = 10.0
"""Kept of the limit for ending a session."""
PAUSE_S = 3.0
"""Before each edit. An agent's turn takes longer."""
ENDLESS = Rules(max_iterations=200, patience=200, stop_on_minor_gain=False, ceiling_percent=1000.0)
"""No edit ends a session."""
SESSIONS = 4
"""Of identical edits, on each example: twenty in all."""
PARTS = ("check", "capture", "inputs", "replay", "judge", "classes", "ordinary call", "sizes", "recording")
"""What the seconds of an edit are split into, beside phases of what is not replayed. `inputs`: to draw them and hand
them to the replayer; `judge`: to compare outputs with the reference; `sizes`: the check on 36 sizes;
`recording`: what the server does around the runs."""
Change = Callable[[str], str]
Edit = tuple[str, Change]


def swap(*pairs: tuple[str, str]) -> Change:
    """Replaces each text by the other."""

    def change(text: str) -> str:
        for old, new in pairs:
            text = text.replace(old, new)
        return text

    return change


def swap_lines(first: str, second: str) -> Change:
    """Swaps the first lines that hold these texts."""

    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        places = [next(number for number, line in enumerate(lines) if one in line) for one in (first, second)]
        lines[places[0]], lines[places[1]] = lines[places[1]], lines[places[0]]
        return "".join(lines)

    return change


def of_demo(example: str, *names: str) -> list[Edit]:
    return [(edit.name, edit.change) for name in names for edit in edits_of(example) if edit.name == name]


RMSNORM, MATMUL, ROPE, LAYERNORM, SOFTMAX = EXAMPLES = (
    "01_rmsnorm_occupancy_only",
    "02_matmul_full_search",
    "03_rope_inplace_splitbuffer",
    "04_layernorm_torch",
    "05_softmax_triton",
)
CHANGES: dict[str, list[Edit]] = {
    RMSNORM: [
        *of_demo(RMSNORM, "two passes in steps of 256"),
        ("occupancy 2", swap(("@ct.kernel\n", "@ct.kernel(occupancy=2)\n"))),
        *of_demo(RMSNORM, "occupancy 4", "8 worker warps at occupancy 4"),
    ],
    MATMUL: of_demo(
        MATMUL,
        "tile 128x256x64, 4 worker warps",
        "tile 128x128x64",
        "tiles in bands of 8 rows",
        "tile 128x256x128, 8 worker warps",
    ),
    ROPE: of_demo(
        ROPE,
        "tile of 128 positions",
        "occupancy 4",
        "tile of 16 positions",
        "four heads a block share their angles",
    ),
    LAYERNORM: [
        *of_demo(LAYERNORM, "double precision, to be safe"),
        ("a copy of the result", swap((".to(x.dtype)\n", ".to(x.dtype).clone()\n"))),
        *of_demo(LAYERNORM, "mean and variance in one operation", "torch's own layer_norm"),
    ],
    SOFTMAX: [
        ("2 warps", swap(("next_power_of_2(columns))", "next_power_of_2(columns), num_warps=2)"))),
        *of_demo(SOFTMAX, "8 warps", "one reciprocal a row", "16 warps"),
    ],
}
"""Edits that change the program, some for the better."""
SAME: dict[str, tuple[Change, Change, Change]] = {
    RMSNORM: (
        swap(("scale", "inverse_rms")),
        swap(("    row = ct.bid(0)\n", "    # One block, one row.\n    row = ct.bid(0)\n")),
        swap_lines("    scale = ", "    gain = "),
    ),
    MATMUL: (
        swap(("total", "accumulator")),
        swap(("    row, column = ", "    # One block, one tile.\n    row, column = ")),
        swap_lines("    row, column = ", "    total = "),
    ),
    ROPE: (
        swap(("second", "latter")),
        swap(("    head, step = ", "    # One block, one head.\n    head, step = ")),
        swap_lines("    c = ", "    s = "),
    ),
    LAYERNORM: (
        swap(("centred", "around_zero")),
        swap(("    values = ", "    # In float32.\n    values = ")),
        swap_lines("    gain = ", "    offset = "),
    ),
    SOFTMAX: (
        swap(("powers", "numerators")),
        swap(("    row = ", "    # One program, one row.\n    row = ")),
        swap_lines("    columns = tl", "    inside = "),
    ),
}
"""A renamed variable, a comment, and two independent statements reordered, which may compile to another program. That
may be a faster one: matmul's two loads the other way round gain 0.9% on an H100, and lose it when they are put back."""
NAMES = ("rename a variable", "add a comment", "reorder two statements")
BASES: dict[str, Change] = {
    LAYERNORM: swap(
        ("    return (centred * scale * weight.float() + bias.float())",
         "    gain = weight.float()\n    offset = bias.float()\n    return (centred * scale * gain + offset)"),
    ),
    SOFTMAX: swap(("    columns = tl.arange(0, TILE)\n    inside = columns < N\n",
                   "    inside = tl.arange(0, TILE) < N\n    columns = tl.arange(0, TILE)\n")),
}  # fmt: skip
"""What a session of identical edits begins with where the example has no two statements that are independent."""


def scratch(parent: Path, example: str, base: Change) -> Path:
    """A committed repository with an example's task in `task`."""
    shutil.copytree(examples() / example, parent / "task", ignore=shutil.ignore_patterns("__pycache__"))
    file = parent / "task" / "fixed_launch.py"
    file.write_text(base(file.read_text()))
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgSign=false"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "example"]):
        subprocess.run(["git", *command], cwd=parent, check=True)
    return file


async def quiet(_: str) -> None:
    """Nobody is told."""


async def tried(loop: Loop, journal: Path, name: str) -> dict[str, Any]:
    """Judge what is in the working tree; the seconds by part, and how it ended."""
    before = len(Journal(journal, ENTRY).entries)
    started = time.monotonic()
    check = await loop.run_correctness(quiet, wait_s=1e9)
    bench = await loop.run_benchmark(quiet, wait_s=1e9) if check.status == "passed" else None
    total_s = time.monotonic() - started
    kept = bench is not None and bench.verdict is not None and bench.verdict.kind is VerdictKind.KEEP
    if kept:
        loop.checkpoint()
    else:
        loop.revert()
    await loop.append_result(name, quiet, wait_s=1e9)
    closing_s = time.monotonic() - started - total_s
    entries = Journal(journal, ENTRY).entries[before:]
    row = next(entry for entry in entries if isinstance(entry, Row))
    seconds = dict.fromkeys(PARTS, 0.0)
    for entry in entries:
        match entry:
            case Checked():
                seconds["check"] += entry.result.seconds
            case Measured():
                seconds["sizes"] += entry.sizes.seconds if entry.sizes is not None else 0.0
                for run in filter(None, (entry.first, entry.again)):
                    for phase, took in run.phases.items():
                        seconds[phase] = seconds.get(phase, 0.0) + took
                    rest = run.seconds - sum(run.phases.values())
                    seconds["rest of the referee"] = seconds.get("rest of the referee", 0.0) + rest
    seconds["recording"] = total_s - sum(seconds.values())
    return {
        "edit": name,
        "verdict": row.verdict.model_dump(mode="json"),
        "trust": row.trust,
        "level": bench.level if bench is not None else "",
        "latency_ms": row.latency_ms,
        "speedup": bench.speedup if bench is not None else None,
        "interval": bench.interval if bench is not None else None,
        "total_s": round(total_s, 3),
        "seconds": {part: round(took, 3) for part, took in seconds.items()},
        "closing_s": round(closing_s, 3),
    }


async def play(
    session: dict[str, Any], edits: Sequence[Edit], base: Change, backend: Backend, pause_s: float, save: Any
) -> None:
    """One session on an example, edit after edit; what is recorded of it is added to `session`."""
    with tempfile.TemporaryDirectory(prefix="tilewright-turnaround-", ignore_cleanup_errors=True) as folder:
        (place := Path(folder) / "repository").mkdir()
        file = scratch(place, session["example"], base)
        loop = Loop(place)
        try:
            started = time.monotonic()
            status = await loop.start("task", quiet, backend, rules=ENDLESS, wait_s=1e9)
            session |= {"device": status.device, "start_s": round(time.monotonic() - started, 3)}
            if status.phase != "ready":
                session["failed"] = status.summary
                return
            journal = place / status.files["journal"]
            for name, change in edits:
                text = file.read_text()
                file.write_text(change(text))
                if file.read_text() == text:
                    session["edits"].append({"edit": name, "unchanged": True})
                    continue
                await asyncio.sleep(pause_s)
                session["edits"].append(await tried(loop, journal, name))
                print(said(session["edits"][-1]), flush=True)
                save()
        finally:
            await loop.close()


def said(one: dict[str, Any]) -> str:
    """One line of an edit."""
    parts = ", ".join(f"{part} {took:.2f}" for part, took in one["seconds"].items() if took >= 0.005)
    verdict = one["verdict"]
    return f"  {one['edit']}: {verdict['kind']} ({verdict['reason']}) [{one['level']}] {one['total_s']:.2f} s: {parts}"


def summary(sessions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the edits that were kept, of those that were timed and not kept, and of the others."""
    edits = [edit for session in sessions for edit in session["edits"] if "verdict" in edit]
    timed = (Reason.INCONCLUSIVE, Reason.REGRESSION)
    groups = {
        "kept": [edit for edit in edits if edit["verdict"]["kind"] == VerdictKind.KEEP],
        "timed": [edit for edit in edits if edit["verdict"]["reason"] in timed],
        "same_program": [edit for edit in edits if edit["verdict"]["reason"] == Reason.SAME_PROGRAM],
    }
    known = [id(edit) for group in groups.values() for edit in group]
    groups["other"] = [edit for edit in edits if id(edit) not in known]
    found = {}
    for name, group in groups.items():
        found[name] = {"edits": len(group)}
        if group:
            totals = [edit["total_s"] for edit in group]
            parts = dict.fromkeys(part for edit in group for part in edit["seconds"])
            found[name] |= {
                "median_s": statistics.median(totals),
                "worst_s": max(totals),
                "median_parts": {
                    part: round(statistics.median(edit["seconds"].get(part, 0.0) for edit in group), 3)
                    for part in parts
                },
            }
    return found


def unexpected(sessions: Sequence[dict[str, Any]]) -> list[str]:
    """Of identical edits, those that ended otherwise than they should."""
    allowed = (Reason.SAME_PROGRAM, Reason.INCONCLUSIVE)
    return [
        f"{session['example']}: {edit['edit']}: {edit.get('verdict', 'the edit changed nothing')}"
        for session in sessions
        for edit in session["edits"]
        if edit.get("verdict", {}).get("reason") not in allowed
    ]


async def run_all(given: argparse.Namespace, record: dict[str, Any], deadline: float) -> None:
    """Session after session, until all are played or the time is over."""

    def save() -> None:
        record["summary"] = summary(record["sessions"])
        if given.identical:
            record["unexpected"] = unexpected(record["sessions"])
        if given.json:
            write(given.json, record)

    async def every() -> None:
        for _ in range(given.sessions if given.identical else 1):
            for example in EXAMPLES:
                if given.only not in example:
                    continue
                session: dict[str, Any] = {"example": example, "edits": []}
                record["sessions"].append(session)
                edits = [*zip(NAMES, SAME[example], strict=True)] if given.identical else CHANGES[example]
                base = BASES.get(example, str) if given.identical else str
                print(example, flush=True)
                try:
                    await play(session, edits, base, given.backend, given.pause, save)
                except Exception as error:  # the other examples are measured all the same
                    session["failed"] = f"{type(error).__name__}: {error}"[:1000]
                if "failed" in session:
                    print(f"  {session['failed']}", flush=True)
                save()

    left_s = deadline - CLOSING_S - time.time()
    try:
        await asyncio.wait_for(every(), left_s if left_s < 1e9 else None)
        record["complete"] = True
    except TimeoutError:
        print("the time is over", flush=True)
    save()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS")
    parser.add_argument("--only", default="", help="examples whose name contains this")
    parser.add_argument("--backend", type=Backend, choices=[*Backend])
    parser.add_argument("--identical", action="store_true")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="with --identical: on each example")
    parser.add_argument("--pause", type=float, default=PAUSE_S, metavar="SECONDS", help="before each edit")
    given = parser.parse_args()
    given.backend = given.backend or backend_here()
    deadline = psutil.Process().create_time() + given.limit
    if given.limit < threading.TIMEOUT_MAX:
        last = threading.Timer(max(deadline - time.time(), 0.0), lambda: os._exit(124))
        last.daemon = True
        last.start()
    mode = " --identical" if given.identical else ""
    record = header(f"clock.turnaround{mode} --json FILE") | {"backend": given.backend, "pause_s": given.pause}
    record |= {"complete": False, "sessions": []}
    asyncio.run(run_all(given, record, deadline))
    for name, group in record["summary"].items():
        if group["edits"]:
            print(f"{name}: {group['edits']} edits, median {group['median_s']:.2f} s, worst {group['worst_s']:.2f} s")
            print(f"  medians: {group['median_parts']}")
    for text in record.get("unexpected", []):
        print(f"unexpected: {text}")
    return int(not record["complete"] or bool(record.get("unexpected")))


if __name__ == "__main__":
    sys.exit(main())

"""What agents reached: with the skills and the tools, with the tools alone, with neither; compared by the evaluator.

`benchmarks/agents/TASK/` holds each task with the kernel that all began with (`kernel.py`) and the one that each ended
with (`CONDITION-RUN.py`), and some of these with one thing changed by hand, to see what it was worth
(`CONDITION-RUN-CHANGE.py`); `runs.json` has what they tried, by the table that a session left or in number alone. All
worked without a GPU, ten experiments at most.
python benchmarks/agents.py measure FILE [--backend cpu] [--only TASK ...] [--ends END ...]
                                        check and time ends against the beginning; FILE keeps its rows of other ends
python benchmarks/agents.py show FILE   the table
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from git import Repo
from recorded import header, read, write

from tilewright.evaluation.seeds import new_secret
from tilewright.repository import Repository
from tilewright.session.runs import Runs
from tilewright.task import Backend

HERE = Path(__file__).parent / "agents"
LIMIT_S = 120.0


async def measure_task(folder: Path, ends: list[Path], backend: Backend, parent: Path) -> list[dict[str, Any]]:
    """These ends of a task: their check, and their speed relative to the beginning."""
    root = parent / folder.name
    (root / folder.name).mkdir(parents=True)
    for name in ("task.toml", "task.py", "kernel.py"):
        shutil.copy(folder / name, root / folder.name / name)
    with Repo.init(root) as made:
        made.git.add(all=True)
        made.git.execute(["git", "-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-qm", "task"])
    repository = Repository(root)
    name = f"{folder.name}/kernel.py"
    tip = repository.files(repository.head())
    runs = Runs(backend, "sm_90", tip, PurePosixPath(folder.name))
    found = []
    try:
        device = (await runs.environment()).device
        for path in ends:
            candidate, before = {name: path.read_bytes()}, {name: tip[name]}
            checked = await runs.correctness(candidate, new_secret(), LIMIT_S, lambda _: None)
            row: dict[str, Any] = {"task": folder.name, "end": path.stem, "device": device, "status": checked.status}
            if checked.passed:
                timed = await runs.benchmark(candidate, before, new_secret(), LIMIT_S, lambda _: None)
                row |= {"status": timed.status, "message": timed.message[:300], "speedup": timed.speedup}
                row |= {"interval": [timed.speedup_low, timed.speedup_high], "latency_ms": timed.latency_ms}
                row |= {"roofline_percent": [case.roofline_percent for case in timed.cases]}
                row |= {"samples": [case.samples for case in timed.cases]}
            else:
                row["message"] = checked.message[:600]
            print(json.dumps({name: value for name, value in row.items() if name != "samples"}), flush=True)
            found.append(row)
    finally:
        await runs.close()
    return found


def measure(path: Path, backend: Backend, only: list[str], ends: list[str]) -> None:
    """Measure these ends of the tasks `only`, or all; what `path` holds of others stays."""
    known = read(path)["rows"] if path.exists() else []
    chosen: dict[Path, list[Path]] = {}
    for end in sorted(HERE.glob("*/*-*.py")):
        task = end.parent
        if (not only or task.name in only) and (not ends or end.stem in ends):
            chosen.setdefault(task, []).append(end)
    if not chosen:
        raise SystemExit(f"no end of {only or 'any task'} is named {ends}")
    anew = {(task.name, stem) for task, paths in chosen.items() for stem in ("", *(end.stem for end in paths))}
    rows: list[dict[str, Any]] = [row for row in known if (row["task"], row["end"]) not in anew]
    now = header("agents.py measure FILE")
    with tempfile.TemporaryDirectory() as parent:
        for folder, paths in chosen.items():
            try:
                found = asyncio.run(measure_task(folder, paths, backend, Path(parent)))
                rows += [row | {"commit": now["commit"], "date": now["date"]} for row in found]
            except Exception as error:  # one task's trouble is not the others'
                rows.append({"task": folder.name, "end": "", "status": "error", "message": repr(error)[:600]})
            rows.sort(key=lambda row: (row["task"], row["end"]))
            write(path, now | {"commit": "that of each row", "rows": rows})


def show(path: Path) -> Iterator[str]:
    """The table's lines, with what `runs.json` tells of how each end was reached."""
    told = {(run["task"], run["end"]): run for run in json.loads((HERE / "runs.json").read_text())}
    yield "| task | with | speedup (95%) | ms | experiments | mistakes |"
    yield "|---|---|---|---:|---:|---|"
    for row in read(path)["rows"]:
        run = told.get((row["task"], row["end"]), {"experiments": "", "mistakes": ""})
        if row.get("speedup"):
            low, high = row["interval"]
            figures = f"{row['speedup']:.2f}x ({low:.2f} to {high:.2f}) | {row['latency_ms']:.4f}"
        else:
            figures = f"{row['status'].replace('_', ' ')} at {row['message'].partition(':')[0]} | "
        mistakes = "not kept" if run["mistakes"] is None else run["mistakes"] or "none"
        yield f"| {row['task']} | {row['end']} | {figures} | {run['experiments']} | {mistakes} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--only", nargs="*", default=[], metavar="TASK")
    parser.add_argument("--ends", nargs="*", default=[], metavar="END")
    given = parser.parse_args()
    if given.what == "measure":
        measure(given.file, Backend(given.backend), given.only, given.ends)
    else:
        print("\n".join(show(given.file)))


if __name__ == "__main__":
    main()

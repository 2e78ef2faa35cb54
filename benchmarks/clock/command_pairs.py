"""Record how much identical arms of a command task differ: runs of its benchmark command, in pairs, nothing edited.

    python -m benchmarks.clock.command_pairs --pairs 64 --json benchmarks/evidence/command_pairs.json

Runs the repository of tests/repositories that is named, on checkouts as a session makes them, in random order. The
tests resample what is recorded: how often the decision calls identical arms different, and whether it finds a gain.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tilewright.commandtask import CommandTask, load
from tilewright.harness.checkouts import fresh_copy
from tilewright.harness.commands import Place, environment_of, read_result, run
from tilewright.harness.figures import read_figures
from tilewright.harness.outcomes import properties_of

ROOT = Path(__file__).parents[2]


def figures(task: CommandTask, snapshot: Path, root: Path, scratch: Path) -> tuple[dict[str, float], float]:
    """One run of the benchmark command: ms by case, and the seconds that it took."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    fresh_copy(snapshot, root)
    benchmark = task.file.benchmark
    words = [word.replace("{junit}", str(scratch / "junit.xml")) for word in benchmark.command]
    roots = [root / name for name in task.import_roots()]
    place = Place(root, root, scratch)
    ran = run(words, place, environment_of(scratch, roots, task.file.environment), benchmark.timeout_s)
    assert ran.status == 0, ran.last_words
    report = read_result(scratch / "junit.xml", scratch, 2**24)
    assert report is not None
    found = read_figures(properties_of(report, benchmark.property), benchmark)
    return {figure.label: figure.milliseconds for figure in found}, ran.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--repository", default="minigym")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    pairs, order = [], random.SystemRandom()
    with tempfile.TemporaryDirectory() as folder:
        snapshot, root = ROOT / "tests/repositories" / options.repository, Path(folder) / "checkout"
        task = load(snapshot)
        assert isinstance(task, CommandTask)
        for _ in range(options.pairs):
            turns = [0, 1]
            order.shuffle(turns)
            pair = {turn: figures(task, snapshot, root, Path(folder) / "scratch") for turn in turns}
            pairs.append([[[*pair[turn][0].values()], round(pair[turn][1], 3)] for turn in (0, 1)])
    arguments = f"--pairs {options.pairs} --repository {options.repository}"
    recorded = {
        "command": f"python -m benchmarks.clock.command_pairs {arguments}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, no GPU",
        "what": "for each pair and arm: ms by case, and the seconds that the command took; the arms are identical",
        "pairs": pairs,
    }
    options.json.write_text(json.dumps(recorded) + "\n")


if __name__ == "__main__":
    main()

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
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tilewright.commandtask import CommandTask, load
from tilewright.harness.commands import fresh_place, read_result, run
from tilewright.harness.figures import read_figures
from tilewright.harness.outcomes import properties_of

ROOT = Path(__file__).parents[2]


def timed(task: CommandTask, snapshot: Path, folder: Path) -> tuple[list[float], float]:
    """One run of the benchmark command: ms of each case, and the seconds that it took."""
    place, benchmark = fresh_place(snapshot, folder), task.file.benchmark
    ran = run(benchmark.command, place, benchmark.timeout_s, task.import_roots(), task.file.environment)
    assert ran.status == 0, ran.last_words
    report = read_result(place.junit)
    assert report is not None
    found = read_figures(properties_of(report, benchmark.property), benchmark)
    return [figure.ms for figure in found.values()], round(ran.seconds, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--repository", default="minigym")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    pairs, order = [], random.SystemRandom()
    with tempfile.TemporaryDirectory() as folder:
        snapshot = ROOT / "tests/repositories" / options.repository
        task = load(snapshot)
        assert isinstance(task, CommandTask)
        for _ in range(options.pairs):
            turns = [0, 1]
            order.shuffle(turns)
            pair = {turn: timed(task, snapshot, Path(folder)) for turn in turns}
            pairs.append([pair[0], pair[1]])
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

"""Capture and replay on a GPU: what is captured, and how well two programs are told apart.

python -m benchmarks.clock.programs table --json FILE    each entry point: captured, bit-equal, compared with itself
python -m benchmarks.clock.programs same --json FILE    programs against themselves, again and again, every round
python -m benchmarks.clock.programs beside --json FILE    versions of a matmul, each beside another one and itself
python -m benchmarks.clock.programs marked --json FILE    a copy that marks its input in the L2, beside a plain one
python -m benchmarks.clock.programs record FOLDER    programs for the tests, which are read where no GPU is
python -m benchmarks.clock.programs analyse FILE    what the decision makes of those rounds, resampled
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.recorded import header, read, write
from tests.gpu.replaying import hostile
from tests.gpu.replaying.conftest import CONSTANT, EXAMPLES, differing, function, inputs, module_at

from tilewright.api import capture
from tilewright.bundled import examples
from tilewright.demo import edits_of
from tilewright.evaluation.statistics import LOOKS, Comparison, Figures, figures, pairs_for, pause_for
from tilewright.programs.draws import draws_of
from tilewright.programs.format import encoded
from tilewright.programs.identity import identity
from tilewright.programs.model import Program
from tilewright.referee.capture_worker import EntryFailed, InProcess
from tilewright.referee.compare import CALL_LIMIT_S, SCOUT, compare
from tilewright.referee.replayer import Fault, Replayer, ReplayerGone

ENTRIES = (
    ("rmsnorm", 0), ("rmsnorm", 4096), ("rmsnorm", 256), ("matmul", 0), ("cublas", 0), ("softmax", 0),
    ("attention", 0), ("backward", 0), ("packed", 0), ("compiled", 0), ("streams", 0), ("own_graph", 0),
    ("tuned", 0), ("many_nodes", 0),
)  # fmt: skip
SAME = (
    ("rmsnorm", 16, 40), ("softmax", 2048, 10), ("packed", 0, 10), ("backward", 0, 10), ("cublas", 2432, 40),
    ("softmax", 11264, 40), ("cublas", 0, 10), ("matmul", 0, 10), ("matmul", 8192, 10),
)  # fmt: skip
"""Entry point, size, comparisons. Chosen for about 4, 11, 17, 30, 45, 45, 175, 365 and 4,100 us on an H200; on an H100
they took 4, 12, 17, 33, 43, 59, 174, 440 and 5,981 us."""
TRIALS = 10_000


def program(name: str, rows: int) -> Program:
    """The program of an entry point, with the examples of constant inputs alone: a replay needs no others, and they are
    hundreds of megabytes to send."""
    entry = function(name)
    one = capture(entry, *inputs(name, rows), constant=CONSTANT.get(name, ()))
    examples = {argument: one.examples[argument] for argument in one.constant}
    return Program(one.layout, one.images, one.held, examples, one.constant, one.label)


def table(replayer: Replayer, found: list[dict[str, Any]], save: Any) -> None:
    """One line an entry point."""
    for name, rows in ENTRIES:
        line: dict[str, Any] = {"name": name, "rows": rows}
        began = time.monotonic()
        try:
            one = program(name, rows)
            line["capture_s"] = round(time.monotonic() - began, 2)
            line["nodes"] = Counter(node.kind for node in one.layout.nodes)
            line["held_bytes"] = sum(map(len, one.held.values()))
            line["identity"] = identity(one)[:12]
            line["differing"] = differing(replayer, one, name, rows)
            line["comparison"] = compare(replayer, one, one, measure_same=True).model_dump()
        except (InProcess, EntryFailed, Fault, ReplayerGone, RuntimeError) as error:
            line["error"] = f"{type(error).__name__}: {error}"[:1000]
        print(line, flush=True)
        found.append(line)
        save()


def same(replayer: Replayer, found: list[dict[str, Any]], save: Any) -> None:
    """Every round of programs that are compared with themselves, always to the last look."""
    for name, rows, count in SAME:
        try:
            one = program(name, rows)
            line = {"name": name, "rows": rows, "comparisons": [], "seconds": []}
            found.append(line)
            replayer.load([one, one], draws_of(one, 2))
            scouted = figures(replayer.round(SCOUT, CALL_LIMIT_S))
            pairs, pause_s = pairs_for(scouted), pause_for(max(scouted.events[:-1]))
            for _ in range(count):
                began = time.monotonic()
                rounds = [figures(replayer.round(pairs, CALL_LIMIT_S, pause_s)) for _ in range(LOOKS[1])]
                line["comparisons"].append(rounds)
                line["seconds"].append(round(time.monotonic() - began, 3))
        except (InProcess, EntryFailed, Fault, ReplayerGone, RuntimeError) as error:
            print(name, rows, f"{type(error).__name__}: {error}"[:1000], flush=True)
            continue
        print(said(line), flush=True)
        save()


PAIRS = 40
VERSIONS = ("tile 128x128x64", "tiles in bands of 8 rows", "tile 128x256x128, 8 worker warps")
"""Of the matmul example, those that its demo keeps after the baseline."""
BESIDE = ((0, 3), (3, 3), (2, 3), (0, 1), (1, 2))


def beside(replayer: Replayer, found: list[dict[str, Any]], save: Any) -> None:
    """What a program takes beside another one, and what the product of three comparisons says beside a direct one."""
    example = EXAMPLES["matmul"]
    text = (examples() / example / "fixed_launch.py").read_text()
    texts = [text]
    for name in VERSIONS:
        (edit,) = (edit for edit in edits_of(example) if edit.name == name)
        texts.append(edit.change(texts[-1]))
    programs = []
    with tempfile.TemporaryDirectory() as folder:
        for number, version in enumerate(texts):
            file = Path(folder) / f"version_{number}.py"
            file.write_text(version)
            programs.append(capture(module_at(file).matmul, *inputs("matmul", 8192)))
    names = ["baseline", *VERSIONS]
    for one, other in BESIDE:
        measured = compare(replayer, programs[one], programs[other], measure_same=True).model_dump()
        found.append({"first": names[one], "second": names[other], "comparison": measured})
        print(names[one], "|", names[other], "|", measured["measured"], flush=True)
        save()


MARKED_MIB, MARKED_ROUNDS = (4, 8, 16, 24), 6


def marked(replayer: Replayer, found: list[dict[str, Any]], save: Any) -> None:
    """Whether lines that a kernel marks in the L2 are there in the next call: microseconds of a copy that marks its
    input and of one that does not, by round, in turns."""
    arch = replayer.start().arch
    for mib in MARKED_MIB:
        copies = {name: hostile.program(name, arch, mib << 18, (0, 4)) for name in ("honest", "marks")}
        line: dict[str, Any] = {"mib": mib, **{name: [] for name in copies}}
        for _ in range(MARKED_ROUNDS):
            for name, one in copies.items():
                replayer.load([one, one], draws_of(one, 2))
                events = figures(replayer.round(PAIRS, CALL_LIMIT_S)).events
                line[name].append(statistics.mean(events[:2]))
        found.append(line)
        print(mib, "MiB", {name: round(statistics.mean(line[name]), 3) for name in copies}, flush=True)
        save()


RECORDED = (("rmsnorm", 256), ("softmax", 64), ("matmul", 256))


def record(folder: Path) -> None:
    """Write small programs without examples, compressed."""
    for name, rows in RECORDED:
        (folder / f"{name}.program.gz").write_bytes(gzip.compress(encoded(program(name, rows)), 9, mtime=0))


def said(line: dict[str, Any]) -> str:
    """How often an interval excludes zero, the bias that is left, half widths and seconds."""
    made = [Comparison([Figures(*map(tuple, one)) for one in rounds]) for rounds in line["comparisons"]]
    level = statistics.median(one.mean_us(0) for one in made)
    bias = statistics.mean(one.mean_us(1) - one.mean_us(0) for one in made)
    excluded = sum(not one.speedup.low <= 0 <= one.speedup.high for one in made)
    half = statistics.median(one.speedup.half_width for one in made)
    wall = statistics.median(one.wall_gain.half_width for one in made)
    return (
        f"{line['name']} {line['rows']}: {len(made)} comparisons at {level:.2f} us; {excluded} intervals exclude zero; "
        f"bias {bias:+.4f} us; half width {100 * half:.3f}%, by the wall clock {wall:.3f} us; "
        f"{statistics.mean(line['seconds']):.2f} s each"
    )


def analyse(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions over resampled rounds: false gains where two comparisons have to agree, and power."""
    source, lines = random.Random(1), []
    for line in found:
        rounds = [Figures(*map(tuple, one)) for rounds in line["comparisons"] for one in rounds]
        level = statistics.median(one.events[0] for one in rounds)
        false = sum(_found(source, rounds, 0.0) for _ in range(TRIALS))
        power = {
            f"{gain}": sum(_found(source, rounds, gain) for _ in range(1000)) / 1000 for gain in (0.005, 0.01, 0.03)
        }
        print(f"{line['name']} {line['rows']} at {level:.2f} us: {false} false gains of {TRIALS}; power {power}")
        made = [Comparison([Figures(*map(tuple, one)) for one in taken]) for taken in line["comparisons"]]
        lines.append(
            {
                "name": line["name"],
                "rows": line["rows"],
                "us": level,
                "comparisons": len(made),
                "excluding_zero": sum(not one.speedup.low <= 0 <= one.speedup.high for one in made),
                "seconds": statistics.mean(line["seconds"]),
                "false_gains": false,
                "trials": TRIALS,
                "power": power,
            }
        )
    return lines


def _found(source: random.Random, rounds: list[Figures], gain: float) -> bool:
    """Whether two comparisons agree on a gain. Which of the two equal programs is called the second is drawn once for
    both: what makes one of them slower can last as long as they are loaded."""
    if source.random() < 0.5:
        rounds = [Figures((b, a, empty), (d, c, nothing)) for (a, b, empty), (c, d, nothing), _ in rounds]
    return _gain(source, rounds, gain) and _gain(source, rounds, gain)


def _gain(source: random.Random, rounds: list[Figures], gain: float) -> bool:
    made = Comparison()
    for look in LOOKS:
        for one in source.choices(rounds, k=look - len(made.rounds)):
            saved = one.events[1] * gain / (1 + gain)
            events = (one.events[0], one.events[1] - saved, one.events[2])
            made.rounds.append(Figures(events, (one.wall[0], one.wall[1] - saved, one.wall[2])))
        if made.decided:
            break
    return made.verdict == "faster"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["table", "same", "beside", "marked", "record", "analyse"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.what == "analyse":
        taken = read(given.file)
        found = analyse(taken["found"])
        if given.json:
            write(given.json, {name: taken[name] for name in taken if name != "found"} | {"kernels": found})
        return
    if given.what == "record":
        record(given.file)
        return
    made: dict[str, Any] = header(f"clock.programs {given.what} --json FILE") | {"found": []}

    def save() -> None:
        if given.json:
            write(given.json, made)

    with Replayer() as replayer:
        {"table": table, "same": same, "beside": beside, "marked": marked}[given.what](replayer, made["found"], save)


if __name__ == "__main__":
    main()

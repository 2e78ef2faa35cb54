"""Every entry of the playbook on a GPU: before and after, where it should help and where it should not.

python -m benchmarks.advice.playbook measure FILE [--only ENTRY] [--seconds N]    on a GPU: paired, interleaved times
python -m benchmarks.advice.playbook show FILE    anywhere: the table
python -m benchmarks.advice.playbook check [--only ENTRY]    anywhere: both sides right in the interpreter, and compiled

A process for each entry compiles its kernels, all at once; then the pairs are measured one after the other.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.advice.playbook_kernels import PAGE, Side, Tensors
from benchmarks.advice.playbook_pairs import PAIRS as FIRST
from benchmarks.advice.playbook_pairs import Pair
from benchmarks.advice.playbook_wholes import WHOLES
from benchmarks.recorded import header, read
from scipy.stats import t as student

ROUNDS = 20
REPLAY_MS = 5.0
WARM = 3
L2_BYTES = 60 * 2**20
MOST_SETS = 24
TOLERANCE = 1e-2
PAIRS = (*FIRST, *WHOLES)
FLOOR = 0.005
"""How far identical code read from no gain; what is as small is no difference."""
PREPARE_S = 100.0
PAIR_S = 45.0
KEPT: list[Any] = []
"""Every graph and what it captured: a kernel's code must outlive the graph, which does not hold it."""


def run(side: Side) -> None:
    for kernel, grid, arguments in side.launches:
        ct.launch(torch.cuda.current_stream(), grid, kernel, arguments)


def distance(result: torch.Tensor, reference: torch.Tensor) -> float:
    """The norm of the difference over that of the reference; infinite where the result has a NaN."""
    found = float(torch.linalg.vector_norm(result.float() - reference) / torch.linalg.vector_norm(reference))
    return found if math.isfinite(found) else math.inf


def checked(before: Side, after: Side, reference: Callable[[], torch.Tensor]) -> dict[str, Any]:
    """Both results against the reference in float32. The outputs hold NaN until they are written."""
    wanted = reference()
    errors = []
    for side in (before, after):
        run(side)
        errors.append(distance(side.out, wanted))
    return {"error_before": errors[0], "error_after": errors[1], "agrees": max(errors) < TOLERANCE}


def once(call: Callable[[], Any]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return max(float(start.elapsed_time(end)), 1e-3)


def replayed(sides: list[Side], eager: bool) -> tuple[Callable[[], None], int]:
    """About REPLAY_MS of calls, over one set of tensors after the other, and their number."""

    def calls_of(count: int) -> None:
        for number in range(count):
            run(sides[number % len(sides)])

    calls_of(2)
    count = max(1, min(512, int(REPLAY_MS / (once(lambda: calls_of(4)) / 4))))
    if eager:
        return lambda: calls_of(count), count
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls_of(count)
    KEPT.append((graph, sides))
    # The first count comes from launches one by one, which a short kernel waits for.
    graph.replay()
    better = max(1, min(512, int(count * REPLAY_MS / once(graph.replay))))
    if better > 1.5 * count:
        count, graph = better, torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls_of(count)
        KEPT.append((graph, sides))
    return graph.replay, count


def measured(pair: Pair) -> dict[str, Any]:
    """The paired times of both sides, with what the check found."""
    tensors = Tensors()
    made = [pair.make(tensors)]
    found = checked(*made[0])
    made += [pair.make(Tensors()) for _ in range(min(MOST_SETS, math.ceil(3 * L2_BYTES / tensors.bytes)) - 1)]
    arms = [replayed([one[0] for one in made], pair.eager), replayed([one[1] for one in made], False)]
    for _ in range(WARM):
        for replay, _ in arms:
            replay()
    torch.cuda.synchronize()
    order = [number % 2 for number in range(ROUNDS)]
    random.shuffle(order)
    times = []
    for first in order:
        pair_ms = [0.0, 0.0]
        for number in (first, 1 - first):
            replay, count = arms[number]
            pair_ms[number] = round(once(replay) / count, 7)
        times.append(pair_ms)
    found |= {"calls": [count for _, count in arms], "sets": len(made), "gpu": torch.cuda.get_device_name()}
    return found | {"times": times}


def analysed(times: list[list[float]]) -> dict[str, float]:
    """Medians of both sides; the speedup is the mean ratio of pairs in logarithms, with its 95% Student interval."""
    logs = [math.log(before / after) for before, after in times]
    mean, half = statistics.fmean(logs), 0.0
    if len(logs) > 1:
        half = float(student.ppf(0.975, len(logs) - 1)) * statistics.stdev(logs) / math.sqrt(len(logs))
    return {
        "before_ms": statistics.median(before for before, _ in times),
        "after_ms": statistics.median(after for _, after in times),
        "speedup": math.exp(mean),
        "speedup_low": math.exp(mean - half),
        "speedup_high": math.exp(mean + half),
    }


def prepare(pair: Pair) -> None:
    """Compile both sides, by launching them."""
    for side in pair.make(Tensors())[:2]:
        run(side)
        torch.cuda.synchronize()
    del side
    torch.cuda.empty_cache()


def serve(numbers: list[int], line: Any) -> None:
    """A process of its own: compiles its pairs, says so, and measures each when told to. Ends with the first error."""
    try:
        started = time.monotonic()
        for number in numbers:
            prepare(PAIRS[number])
        line.send({"ready": round(time.monotonic() - started, 1)})
        while (number := line.recv()) is not None:
            line.send(measured(PAIRS[number]))
            torch.cuda.empty_cache()
    except EOFError:
        pass
    except Exception as error:
        traceback.print_exc()
        line.send({"error": f"{type(error).__name__}: {error}"[:500]})
    line.close()
    shutil.rmtree(Path(PAGE.__file__).parent, ignore_errors=True)
    os._exit(0)  # graphs and kernels are not to be taken down in whatever order


@dataclass
class Child:
    """One process and the pairs that it prepared."""

    numbers: list[int]
    process: Any
    line: Any

    @staticmethod
    def start(numbers: list[int], worker: Any) -> Child:
        context = multiprocessing.get_context("spawn")
        line, far = context.Pipe()
        process = context.Process(target=worker, args=(numbers, far), daemon=True)
        process.start()
        far.close()
        return Child(numbers, process, line)

    def hear(self, seconds: float) -> dict[str, Any]:
        """The next message, or an error in its place."""
        try:
            if self.line.poll(max(seconds, 0.1)):
                return dict(self.line.recv())
            said = f"nothing came within {seconds:.0f} s"
        except (EOFError, OSError):
            self.process.join(5)
            said = f"the process ended with status {self.process.exitcode}"
        return {"error": said}

    def end(self) -> None:
        try:
            self.line.send(None)
        except OSError:
            pass
        self.process.join(2)
        if self.process.is_alive():
            self.process.kill()


def rows(numbers: list[int], seconds: float, worker: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each pair's number and what came of it. Pairs that shared a process with one that failed get their own."""
    started = time.monotonic()
    groups = [list(group) for _, group in itertools.groupby(numbers, key=lambda number: PAIRS[number].entry)]
    waiting: list[Any] = [Child.start(group, worker) for group in groups]
    ready: dict[int, dict[str, Any]] = {}
    for child in list(waiting):  # nothing is measured while anything compiles
        ready[id(child)] = child.hear(PREPARE_S - (time.monotonic() - started))
    print(f"compiled after {time.monotonic() - started:.1f} s", flush=True)
    while waiting:
        child = waiting.pop(0)
        if isinstance(child, list):
            if time.monotonic() - started > seconds:
                continue
            child = Child.start(child, worker)
            ready[id(child)] = child.hear(PREPARE_S / 2)
        found, left = ready[id(child)], list(child.numbers)
        if "error" in found and len(left) == 1:
            yield left.pop(), found
        while left and "error" not in found and time.monotonic() - started < seconds:
            try:
                child.line.send(left[0])
            except OSError:
                pass  # it is gone, which is heard next
            found = child.hear(PAIR_S)
            yield left.pop(0), found
        if "error" in found:
            waiting += [[number] for number in left]
        child.end()


def measure(path: Path, only: str, seconds: float, worker: Any = serve) -> None:
    started = time.monotonic()
    os.environ["CUDA_TILE_CACHE_DIR"] = "0"  # which the processes would share
    chosen = [number for number, pair in enumerate(PAIRS) if only in pair.entry]
    record: dict[str, Any] = header("advice.playbook measure FILE") | {
        "samples": f"{ROUNDS} pairs of graph replays of about {REPLAY_MS} ms each, in random order; inputs rotated "
        f"where three times the L2 holds several sets; errors are norms relative to float32, at most {TOLERANCE}",
    }
    found: dict[int, dict[str, Any]] = {}
    for number, row in rows(chosen, seconds, worker):
        pair = PAIRS[number]
        known = {"entry": pair.entry, "kernel": pair.kernel, "helps": pair.helps}
        record["gpu"] = row.pop("gpu", record["gpu"])
        found[number] = known | (analysed(row["times"]) if "times" in row else {}) | row
        print(f"{time.monotonic() - started:6.1f} s", described(found[number]), flush=True)
        lines = ",\n".join(json.dumps(one) for _, one in sorted(found.items()))
        path.write_text(json.dumps(record)[:-1] + ',\n"rows": [\n' + lines + "\n]}\n")
    print(f"{len(found)} of {len(chosen)} pairs in {time.monotonic() - started:.0f} s", flush=True)


def gain(row: dict[str, Any]) -> str:
    figures = [row["speedup"], row["speedup_low"], row["speedup_high"]]
    if figures[0] >= 2:
        return "{:.2f}x ({:.2f} to {:.2f})".format(*figures)
    return "{:+.1f}% ({:+.1f} to {:+.1f})".format(*(100 * (one - 1) for one in figures))


def described(row: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [row["entry"], row["kernel"]]
    if "error" in row:
        return "| {} | {} | | | failed: {} | | |".format(*cells, row["error"].splitlines()[0][:120])
    low, high = row["speedup_low"], row["speedup_high"]
    said = "helps" if low > 1 + FLOOR else "hurts" if high < 1 - FLOOR else "no difference"
    said += "" if row["agrees"] else ", WRONG"
    cells += [f"{row['before_ms']:.4f}", f"{row['after_ms']:.4f}", gain(row), "yes" if row["helps"] else "no", said]
    return f"| {' | '.join(cells)} |"


def load(path: Path) -> dict[str, Any]:
    record = read(path)
    record["rows"] = [row | (analysed(row["times"]) if "times" in row else {}) for row in record["rows"]]
    return dict(record)


def show(path: Path) -> None:
    record = load(path)
    print(f"{record['gpu']}, {record['date']}, {record['versions']}\n{record['samples']}\n")
    print("| entry | kernel | before (ms) | after (ms) | gain (95% interval) | should help | it |\n|" + "---|" * 7)
    for row in record["rows"]:
        print(described(row))


def check(only: str) -> bool:
    """Whether both sides of every pair are right on small tensors; prints what they compile to for sm_90."""
    from tilewright.compiler.assembling import assemble
    from tilewright.compiler.cutile import lower
    from tilewright.compiler.signature import signature_of
    from tilewright.gpu.specs import spec_by_arch
    from tilewright.interpreter import host

    host.install(spec_by_arch("sm_90"))
    right = True
    for pair in PAIRS:
        if only not in pair.entry:
            continue
        with host.running(host.Mode.RUN):
            found = checked(*pair.make(Tensors("cpu", small=True)))
        errors = f"{found['error_before']:.1e} {found['error_after']:.1e}"
        right = right and found["agrees"]
        print(f"{pair.entry}: {pair.kernel}\n  {'right' if found['agrees'] else 'WRONG'}, errors {errors}", flush=True)
        for side in pair.make(Tensors("meta"))[:2]:
            for kernel, _, arguments in side.launches[:1] + side.launches[-1:] * (len(side.launches) == 2):
                made = assemble(lower(kernel, signature_of(kernel, arguments), "sm_90"), 60.0)
                right = right and not made.error
                count = made.resources.instructions if made.resources else 0
                print(f"  {made.error[:200] or made.headline}, {count} instructions", flush=True)
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show", "check"])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--only", default="", help="measure, check: entries with this in their name")
    parser.add_argument("--seconds", type=float, default=150.0, help="measure: after these nothing new is begun")
    asked = parser.parse_args()
    if asked.what == "check":
        sys.exit(not check(asked.only))
    if asked.file is None:
        parser.error(f"{asked.what} wants a file")
    if asked.what == "measure":
        measure(asked.file, asked.only, asked.seconds)
    else:
        show(asked.file)


if __name__ == "__main__":
    main()

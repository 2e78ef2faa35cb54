"""The launch code that `autotune` writes, for a kernel of each template (T1 to T9): what the first process and the
second do with it, and what a call costs over the plain one.

python -m benchmarks.advice.launches measure FILE [--only T3] [--without same several]    on a GPU
python -m benchmarks.advice.launches show FILE    anywhere: the table

The kernels are those of tests/corpus. The table that comes with the launch code lacks the case: the first process
searches it and writes it down. In the second a search is an error; calls through the launch code and calls of the very
entry point that these end in take turns, in batches that the GPU's queue holds, timed on the host until the last is
queued. So in three processes: `same`, where all cases have one config; `several`, where another case, which differs in
the first tensor, has another; and `searching` with AUTOTUNE_ON_MISS=1, under which a call is asked for all of its
arguments. The last two also time the looking up alone, with a function that does nothing in the entry point's place.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.recorded import header, read, write
from scipy.stats import t
from tests.gpu.test_corpus import on
from tests.unit.test_corpus import compare, exact, inputs_of
from tests.unit.test_launchcode import KINDS, generated, loaded

from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host

BATCHES = 60
CALLS = 100
STEP_S = 100.0
HINTS = {"occupancy": 2}
LATER = ("same", "several", "searching")
"""The second process, with what its table and its environment leave to be looked up."""
Row = dict[str, Any]


def prepare(kind: str, folder: Path) -> Row:
    """The launch code for this kind's kernel, with a space of two configs and a table without a case."""
    example = KINDS[kind]
    host.install(spec_by_arch(example.arch))
    tuned, table = generated(example, folder, HINTS, several=True)
    table.write_text(json.dumps(json.loads(table.read_text()) | {"cases": {}}))
    return {"code": str(tuned.__file__)}


def checked(kind: str, entry: Callable[..., Any], given: dict[str, Any]) -> float:
    """Seconds of a first call, whose output has to be the reference's."""
    example = KINDS[kind]
    expected = example.reference(**{name: exact(value) for name, value in inputs_of(example, 0).items()})
    started = time.monotonic()
    output = entry(**given)
    torch.cuda.synchronize()
    seconds = time.monotonic() - started
    compare(example, on("cpu", output), expected)
    return seconds


def first(kind: str, file: Path) -> Row:
    """In a process of its own: a call of a case that the table lacks."""
    os.environ["AUTOTUNE_ON_MISS"] = "1"
    example, tuned = KINDS[kind], loaded(file)
    seconds = checked(kind, getattr(tuned, example.run.__name__), inputs_on_gpu(kind))
    table = json.loads(file.with_suffix(".json").read_text())
    remembers = list(table["cases"].values())
    table["best"] = remembers[0]  # as after `autotune` on this case
    file.with_suffix(".json").write_text(json.dumps(table))
    return {"seconds": seconds, "remembers": remembers}


def later(kind: str, file: Path, how: str) -> Row:
    """In a process of its own: calls of the same case, none of which may search."""
    os.environ["AUTOTUNE_ON_MISS"] = "1" if how == "searching" else "0"
    example, tuned = KINDS[kind], loaded(file)
    if how == "several":
        ((case, number),) = tuned._table["cases"].items()
        (telling,) = tuned.TELLING
        tuned._table["cases"][re.sub(rf"\b{telling}=\w+\[[\d, ]*\]", f"{telling}=int8[1]", case)] = 1 - number

    def refuse(*_: Any, **__: Any) -> Any:
        raise SystemExit("the second process searches")

    tuned.exhaustive_search = refuse
    entry, given = getattr(tuned, example.run.__name__), inputs_on_gpu(kind)
    seconds = checked(kind, entry, given)
    (plan,) = tuned._plans.values()
    positional = inspect.signature(example.run).bind(**given).args
    samples = [[per_call(side, positional) for side in (entry, plan)] for _ in turns(lambda: entry(*positional))]
    found: Row = {"seconds": seconds, "entry_us": [one for one, _ in samples], "plain_us": [two for _, two in samples]}
    if (how == "same") != (tuned._only is not None) or (how == "several") != bool(tuned._told):
        raise SystemExit(f"{how}: calls are not looked up as they should be")
    if how != "same":  # the way to what is called alone, which a kernel's own time cannot hide

        def nothing(*_: Any) -> None: ...

        for known in (tuned._plans, tuned._told):
            known |= dict.fromkeys(known, nothing)
        alone = [[per_call(side, positional) for side in (entry, nothing)] for _ in turns(lambda: entry(*positional))]
        found["alone_us"] = [one - other for one, other in alone]
    return found


def inputs_on_gpu(kind: str) -> dict[str, Any]:
    return {name: on("cuda", value) for name, value in inputs_of(KINDS[kind], 0).items()}


def turns(warm_up: Callable[[], Any]) -> Iterator[int]:
    for _ in range(CALLS):
        warm_up()
    torch.cuda.synchronize()
    yield from range(BATCHES)


def per_call(side: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    """Microseconds of the host's time for a call."""
    started = time.perf_counter()
    for _ in range(CALLS):
        side(*arguments)
    ended = time.perf_counter()
    torch.cuda.synchronize()
    return (ended - started) / CALLS * 1e6


def step(what: str, kind: str, file: Path) -> Row:
    """`prepare`, `first` or one of LATER in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.advice.launches", what, str(file), "--only", kind],
        capture_output=True,
        text=True,
        timeout=STEP_S,
    )
    if done.returncode:
        return {"error": f"{done.stdout[-300:]}{done.stderr[-700:]}"}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def measure(file: Path, only: str, without: Sequence[str]) -> None:
    rows: list[Row] = []
    kinds = [kind for kind in sorted(KINDS) if only in ("", kind)]
    with tempfile.TemporaryDirectory(prefix="launches-") as parent, ThreadPoolExecutor(4) as threads:

        def searched(kind: str) -> Row:
            """The first process, after one that makes the launch code and takes the place of cuTile's launch for it."""
            folder = Path(parent) / kind
            folder.mkdir()
            row = {"kind": kind, "kernel": KINDS[kind].name} | step("prepare", kind, folder)
            return row | ({"first": step("first", kind, Path(row["code"]))} if "code" in row else {})

        for row in threads.map(searched, kinds):
            rows.append(row)
        for row in rows:  # one at a time, since they are timed
            if "code" in row:
                code = Path(row.pop("code"))
                row |= {what: step(what, row["kind"], code) for what in LATER if what not in without}
            print(described(row), flush=True)
    write(file, header("advice.launches measure FILE") | {"calls": CALLS, "rows": rows})


def described(row: Row) -> str:
    """A row of the table: seconds of the first call in either process, microseconds of a call, and the differences."""
    steps = {what: row.get(what, {}) for what in ("first", *LATER)}
    if failed := [one["error"] for one in (row, *steps.values()) if "error" in one]:
        return f"| {row['kind']} | {row['kernel']} | {failed[0]} |"
    known = next(steps[what] for what in LATER if steps[what])
    columns = [
        f"{steps['first']['seconds']:.2f}",
        f"{known['seconds']:.2f}",
        f"{statistics.median(known['plain_us']):.2f}",
    ]
    for what in LATER:
        columns.append(difference(steps[what]))
        if what != "same":
            alone = steps[what].get("alone_us")
            columns.append(f"{statistics.median(alone):.2f}" if alone else "-")
    return f"| {row['kind']} | {row['kernel']} | {' | '.join(columns)} |"


def difference(row: Row) -> str:
    """Microseconds that a call costs over a plain one, with their 95% interval (Student's t over the batches); a dash
    where that was not measured."""
    if not row:
        return "-"
    gaps = np.subtract(row["entry_us"], row["plain_us"])
    half = float(t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5)
    return f"{gaps.mean():.2f} ({gaps.mean() - half:.2f} to {gaps.mean() + half:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show", "prepare", "first", *LATER])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="measure: this kind alone")
    parser.add_argument("--without", nargs="*", default=[], choices=LATER, help="measure: not these processes")
    asked = parser.parse_args()
    if {*asked.without} == {*LATER}:
        parser.error("--without leaves nothing to measure")
    if asked.what == "measure":
        measure(asked.file, asked.only, asked.without)
    elif asked.what == "show":
        record = read(asked.file)
        print(f"{record['gpu']}, {record['date']}, {record['versions']}\n")
        print(
            "| | kernel | first process (s) | second (s) | plain (us) | over it, one config (us) | several (us) | "
            "looking up alone (us) | searching (us) | looking up alone (us) |\n" + "|---" * 10 + "|"
        )
        for row in record["rows"]:
            print(described(row))
    else:
        steps = {"prepare": prepare, "first": first} | {how: partial(later, how=how) for how in LATER}
        print(json.dumps(steps[asked.what](asked.only, asked.file)))


if __name__ == "__main__":
    main()

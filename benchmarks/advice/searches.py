"""Tilewright's search beside cuTile's own over the same space: what each takes, and how good what each finds is.

python -m benchmarks.advice.searches measure FILE [--only NAME ...] [--seconds N] [--without STEP ...]    on a GPU
python -m benchmarks.advice.searches show FILE ...    anywhere: tables from such records
python -m benchmarks.advice.searches check [--only NAME ...]    anywhere: a few configs of each task, on the cpu backend

Each kernel and space is a part. A part runs both searches, each in a process of its own with nothing compiled before,
then measures all configs of the space, and the best ones once more in many rounds with what each search found and with
the original. Of some wide spaces it measures no more than what each search found, the first of cuTile's ranking, and
the original. FILE is written after every step, and parts that it holds are not run again; `show` takes each step of a
part from the last of its files that has it, so that two GPUs can share a part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.kernels.searched import steps
from benchmarks.kernels.searched.spaces import BY_NAME, PARTS, Config, Part, configs_of, make_repository
from benchmarks.recorded import header, read
from scipy.stats import t

from tilewright.autotune.searching import SAME

BATCH = 5
"""Consecutive rounds whose mean is one sample of an interval, since neighbours resemble each other."""
OURS_S, THEIRS_S, WARM_S, FULL_S = 150.0, 90.0, 120.0, 90.0
"""What a step may take; in a wide space ours and the last take twice that, and theirs six times."""
FIRST = 6
"""Configs of cuTile's ranking that are measured where not all are."""
MARGIN_S = 30.0
"""By how much the last step may exceed the whole budget."""
Record = dict[str, Any]


def measure(file: Path, names: Sequence[str], without: Sequence[str], seconds: float, spares: int | None) -> None:
    """Run the parts `names`, or all, that `file` does not hold yet, but for the steps `without`; `spares` is for our
    search."""
    deadline = time.monotonic() + seconds
    more = {"TILEWRIGHT_SPARES": str(spares)} if spares is not None else {}
    record: Record = load(file) if file.exists() else {"parts": {}}
    record |= surroundings() | {"spares": spares}
    with tempfile.TemporaryDirectory(prefix="searches-") as name:
        for part in PARTS:
            found: Record = record["parts"].setdefault(part.name, {})
            if (names and part.name not in names) or "finals" in found.get("full", {}) or time.monotonic() > deadline:
                continue

            def write() -> None:
                save(file, record)

            try:
                measure_part(part, Path(name), deadline, found, write, more, without)
            except Exception:
                found["error"] = traceback.format_exc()[-1000:]
                print(found["error"], flush=True)
            if not found:
                del record["parts"][part.name]
            write()
    show([file])


def measure_part(
    part: Part,
    parent: Path,
    deadline: float,
    found: Record,
    write: Callable[[], None],
    more: dict[str, str],
    without: Sequence[str],
) -> None:
    """The steps of one part, as long as there is time."""
    repository = make_repository(parent, part)
    folder = parent / f"{part.folder}-work-{part.name.replace(' ', '-')}"
    folder.mkdir()
    cache = folder / "cache"

    def step(what: str, limit_s: float, *more: str, **environment: str) -> bool:
        """Run a step in a process of its own; whether its result is there."""
        if what in without:
            return False
        left = deadline - time.monotonic()
        if left < 0:
            print(f"{part.name}: {what} not begun, the time is over", flush=True)
            return False
        limit_s = min(limit_s, left + MARGIN_S)
        print(f"{part.name}: {what}", flush=True)
        target, started = folder / f"{what}.json", time.monotonic()
        command = [
            sys.executable,
            "-m",
            "benchmarks.advice.searches",
            "step",
            what,
            part.name,
            str(repository),
            *more,
            "--into",
            str(target),
        ]
        process = subprocess.Popen(command, env=os.environ | environment, start_new_session=True)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            found[what] = {"error": f"stopped after {limit_s:.0f} s", "capped_s": round(limit_s, 1)}
        else:
            result = json.loads(target.read_text()) if target.exists() else {}
            found[what] = result or {"error": f"ended with {process.returncode}"}
        finally:
            steps.kill(process)
        found[what]["process_s"] = round(time.monotonic() - started, 2)
        said = {name: found[what][name] for name in ("error", "seconds", "best", "summary") if name in found[what]}
        print(f"  {found[what]['process_s']:.1f} s: {said}", flush=True)
        write()
        return "error" not in found[what]

    longer = 2 if part.wide else 1
    step("ours", OURS_S * longer, **more)
    complete = step("theirs", THEIRS_S * (6 if part.wide else 1), **steps.compiling(cache))
    configs = configs_of(part, repository)
    ranked = sorted(found.get("theirs", {}).get("successes", []), key=lambda one: float(one[1]))
    few = None if part.full else [configs.index(config) for config, *_ in ranked[:FIRST]]
    if few == []:
        return
    failed = [configs.index(config) for config, _ in found.get("theirs", {}).get("failures", [])]
    if not complete and few is None and "full" not in without and time.monotonic() < deadline:
        print(f"{part.name}: compiling {len(configs)} configs", flush=True)
        limit_s = min(WARM_S, deadline + MARGIN_S - time.monotonic())
        found["compiled"] = steps.precompile(part, repository, folder, cache, limit_s)
        failed = [*found["compiled"]["failed"]]
        print(f"  {found['compiled']['seconds']} s, {len(failed)} failed", flush=True)
        write()
    finders = {name: found[name]["best"] for name in ("ours", "theirs") if "best" in found.get(name, {})}
    step("full", FULL_S * longer, json.dumps(failed), json.dumps(finders), json.dumps(few), **steps.compiling(cache))


def surroundings() -> Record:
    return header("advice.searches measure FILE") | {"processors": len(os.sched_getaffinity(0))}


def load(file: Path) -> Record:
    return dict(read(file))


def save(file: Path, record: Record) -> None:
    raw = (json.dumps(record).replace('"ours":', '\n"ours":').replace('"full":', '\n"full":') + "\n").encode()
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(gzip.compress(raw, mtime=0) if file.suffix == ".gz" else raw)
    new.replace(file)


def interval(numerator: Sequence[float], denominator: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of paired ratios, with its 95% interval."""
    logs = np.log(np.asarray(numerator) / np.asarray(denominator))
    whole = len(logs) // BATCH * BATCH
    means = logs[:whole].reshape(-1, BATCH).mean(axis=1) if whole >= 4 * BATCH else logs
    half = float(t.ppf(0.975, len(means) - 1)) * float(means.std(ddof=1)) / math.sqrt(len(means))
    mean = float(means.mean())
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def said(ratio: tuple[float, float, float]) -> str:
    return f"{ratio[0]:.4f} [{ratio[1]:.4f}, {ratio[2]:.4f}]"


def label(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items()) or "as it is"


class Measured:
    """What the full measurement of a part says."""

    def __init__(self, full: Record) -> None:
        self.configs: list[Config] = full["configs"]
        self.ms = {int(place): ms for place, ms in full["ms"].items()}
        self.finals = {int(place): samples for place, samples in full["finals"].items()}
        self.twin = int(full["twin"])
        self.ranked = sorted(self.finals.keys() - {self.twin}, key=lambda place: interval(*self.pair(place, 0))[0])

    def pair(self, one: int, other: int) -> tuple[list[float], list[float]]:
        return self.finals[one], self.finals[other]

    def against(self, one: int, other: int) -> tuple[float, float, float]:
        """How many times faster `one` is than `other`."""
        return interval(*self.pair(other, one)) if one != other else (1.0, 1.0, 1.0)

    def rank(self, place: int) -> int:
        return self.ranked.index(place) + 1


def show(files: Sequence[Path]) -> None:
    """Tables of the parts in all of `files`."""
    parts: dict[str, Record] = {}
    for file in files:
        record = load(file)
        for name, found in record["parts"].items():
            if found:
                parts[name] = parts.get(name, {}) | found
        print(f"{file}: {record['gpu']}, {record['processors']} processors, {record['date']}, {record['versions']}")
    for part in PARTS:
        if part.name in parts:
            show_part(part, parts[part.name])
    print_summary({part.name: parts[part.name] for part in PARTS if part.name in parts})


def show_part(part: Part, found: Record) -> None:
    print(f"\n{part.name} {part.case}")
    for who in ("ours", "theirs"):
        if one := found.get(who):
            what = one["error"][:120] if "error" in one else label(one["best"])
            print(f"  {who:6} {one.get('seconds', math.nan):7.1f} s (process {one['process_s']:.1f} s): {what}")
    if phases := found.get("ours", {}).get("phases"):
        ends = [start for start, _ in phases[1:]] + [found["ours"]["seconds"]]
        spent = [f"{end - start:.1f} {text}" for (start, text), end in zip(phases, ends, strict=True)]
        print(f"         before the first message {phases[0][0]:.1f} s; then {'; '.join(spent)}")
    full = found.get("full", {})
    if "finals" not in full:
        print(f"  not measured in full: {full.get('error', found.get('error', 'no time'))[:120]}")
        return
    seen = Measured(full)
    count = len(seen.configs)
    print(f"  {len(seen.ms)} of {count} configs measured; two runs of the original: {said(seen.against(seen.twin, 0))}")
    tried = {_number(seen.configs, one["config"]): one for one in found.get("ours", {}).get("tried", [])}
    names = {
        _number(seen.configs, found[who]["best"]): who for who in ("theirs", "ours") if "best" in found.get(who, {})
    }
    for rank, place in enumerate(seen.ranked, 1):
        if rank > 5 and place not in names and place != 0:
            continue
        one = tried.get(place, {"place": "unknown"})
        fate = one["place"] + (f": {one['why']}" if one.get("why") else "")
        ratio, who = seen.against(place, seen.ranked[0]), names.get(place, "")
        ms = float(np.median(seen.finals[place]))
        print(f"  {rank:3} {label(seen.configs[place]):64} {ms:9.4f} ms  {said(ratio)} of the best  {who:6} {fate}")


def _number(configs: list[Config], config: Config) -> int:
    return configs.index(config) if config in configs else -1


def print_summary(parts: dict[str, Record]) -> None:
    """One line for each part: what the claims are about."""
    print(
        "\n| kernel | configs | ours s | exhaustive s | time | our best against theirs | our best against the original "
        "| our rank | top three pruned |\n|:---|---:|---:|---:|---:|:---|:---|---:|:---|"
    )
    for name, found in parts.items():
        mine, other = found.get("ours", {}), found.get("theirs", {})
        times = [f"{one['seconds']:.1f}" if "best" in one else one.get("error", "-")[:30] for one in (mine, other)]
        share = f"{mine['seconds'] / other['seconds']:.2f}" if "best" in mine and other.get("seconds") else "-"
        cells = [name, "-", *times, share, "-", "-", "-", "-"]
        if "finals" in found.get("full", {}):
            seen = Measured(found["full"])
            cells[1] = str(len(seen.configs))
            if "best" in mine and (place := _number(seen.configs, mine["best"])) in seen.finals:
                if "best" in other and (theirs := _number(seen.configs, other["best"])) in seen.finals:
                    cells[5] = "the same config" if theirs == place else said(seen.against(place, theirs))
                cells[6], cells[7] = said(seen.against(place, 0)), str(seen.rank(place))
                lost = {_number(seen.configs, one["config"]) for one in mine["tried"] if is_lost(one, mine["tried"])}
                cells[8] = ", ".join(str(seen.rank(one)) for one in seen.ranked[:3] if one in lost) or "none"
        print(f"| {' | '.join(cells)} |")


def is_lost(one: Record, tried: Sequence[Record]) -> bool:
    """Whether a config was left out, and with it its machine code: one that has a measured config's is not."""
    if one["place"] != "pruned":
        return False
    first = one["why"].removeprefix(SAME)
    return first == one["why"] or any(label(other["config"]) == first and is_lost(other, tried) for other in tried)


def check(names: Sequence[str]) -> None:
    """Search one part of each kernel on the `cpu` backend, with two values of a knob at most. Raises AssertionError."""
    firsts = {part.folder: part for part in reversed(PARTS)}
    chosen = [BY_NAME[name] for name in names] or list(firsts.values())
    with tempfile.TemporaryDirectory(prefix="searches-") as name:
        for part in chosen:
            last = list(part.space)[-1]
            few = {knob: values[:: max(len(values) - 1, 1)] if knob == last else values[:1]
                   for knob, values in part.space.items()}  # fmt: skip
            repository = make_repository(Path(name), part)
            found = steps.ours(Part(part.name, part.folder, part.case, few), repository, "cpu")
            print(f"{part.name}: {len(configs_of(part, repository))} configs; {found['summary']}", flush=True)
            assert "error" not in found, found


def run_step(arguments: argparse.Namespace) -> None:
    """One step, in a process of its own; its result, or what went wrong, goes to a file."""
    what, part, repository = arguments.rest[0], BY_NAME[arguments.rest[1]], Path(arguments.rest[2])
    more = [json.loads(one) for one in arguments.rest[3:]]
    if what == "warm":
        steps.warm(part, repository, *more)
        return
    try:
        result = {"ours": steps.ours, "theirs": steps.theirs, "full": steps.full}[what](part, repository, *more)
    except BaseException as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"[:500]}
    arguments.into.write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)  # graphs are not taken apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "show", "check", "step"])
    parser.add_argument("rest", nargs="*", help="measure: one file; show: files")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(BY_NAME), metavar="NAME")
    parser.add_argument("--without", nargs="+", default=[], choices=["ours", "theirs", "full"], metavar="STEP")
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which nothing new is begun")
    parser.add_argument("--spares", type=int, help="measure: workers that our search keeps ready")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.what == "measure":
        measure(Path(*arguments.rest), arguments.only, arguments.without, arguments.seconds, arguments.spares)
    elif arguments.what == "show":
        show([Path(file) for file in arguments.rest])
    elif arguments.what == "check":
        check(arguments.only)
    else:
        run_step(arguments)


if __name__ == "__main__":
    main()

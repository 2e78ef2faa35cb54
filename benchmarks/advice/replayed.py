"""Today's search over the spaces that were measured on an H200: the search itself, but what it would time is recorded.

python -m benchmarks.advice.replayed run FILE [--only NAME ...]    every space of searches.json.gz
python -m benchmarks.advice.replayed show FILE    what became of the best three of each space; exits with 1 if one was
                                                  not raced

Both run on any machine.
Who leaves the race when, and what is confirmed, is decided as by `tilewright autotune`; a config's time in a round is
what cuTile's search measured of it, the mean over configs with the same machine code, with a normal error. Parts that
FILE holds are not run again. Nothing is said of how long a search takes, nor of a GPU's whims.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

from benchmarks.kernels.searched.spaces import BY_NAME, PARTS, Config, Part, configs_of, make_repository
from benchmarks.recorded import header, read, write

from tilewright.autotune.searching import SAME, Wanted, search
from tilewright.evaluation.results import ORIGINAL, BenchmarkResult, CorrectnessResult, Environment, Raced, Status
from tilewright.evaluation.statistics import Figures
from tilewright.referee.race import FAR, Rounds, halve, pooled
from tilewright.repository import Files
from tilewright.roofline.bounds import Ceilings
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.outcomes import RaceResult
from tilewright.task import Backend

RECORDED = Path(__file__).parents[1] / "evidence" / "searches.json.gz"
ARCH = "sm_90"
ERROR = 0.01
"""Standard deviation of a round's time, as a share."""
RACED = ("measured", "best")
Record = dict[str, Any]


def key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def label(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items()) or "as it is"


def codes_of(tried: Sequence[Record]) -> dict[str, str]:
    """For each config of a search, by its key, the key of the first with the same machine code."""
    by_label = {label(one["config"]): one for one in tried}
    found = {}
    for one in tried:
        first = one
        while first["place"] == "pruned" and first["why"].startswith(SAME):
            first = by_label[first["why"].removeprefix(SAME)]
        found[key(one["config"])] = key(first["config"])
    return found


def times_of(recorded: Record) -> dict[str, float]:
    """Milliseconds of every config that cuTile's search measured, the mean over those with the same machine code."""
    codes = codes_of(recorded["ours"]["tried"])
    alike: dict[str, list[float]] = {}
    for config, ms, *_ in recorded["theirs"]["successes"]:
        alike.setdefault(codes[key(config)], []).append(ms)
    return {one: fmean(alike[code]) for one, code in codes.items() if code in alike}


def race(times: Sequence[float | None]) -> list[Raced]:
    """What a race says of configs that take so long; one that was not measured fails."""
    source = random.Random(0)
    known = {number: ms for number, ms in enumerate(times) if ms is not None}
    original = known[ORIGINAL]
    near = [number for number, ms in known.items() if number != ORIGINAL and ms <= FAR * min(known.values())]

    def run(arms: list[int], count: int) -> Rounds:
        found: Rounds = {arm: [] for arm in arms}
        for _ in range(count):
            first = original * math.exp(source.gauss(0, ERROR))
            for arm in arms:
                pair = 1e3 * first, 1e3 * known[arm] * math.exp(source.gauss(0, ERROR)), 2.0
                found[arm].append(Figures(pair, pair))
        return found

    rounds, stayed = halve(near, run)
    intervals = pooled(rounds) if rounds else {}
    said = [Raced(status=Status.RAISED, message="it was not measured") for _ in times]
    for number, ms in known.items():
        speedup, low, high = intervals[number].ratio() if number in intervals else (original / ms,) * 3
        dropped = number != ORIGINAL and number not in stayed
        count = len(rounds.get(number, []))
        said[number] = Raced(ms=ms, speedup=speedup, low=low, high=high, rounds=count, dropped=dropped)
    return said


class Measuring:
    """In the place of a referee with a GPU: every config is right, and takes the time that was recorded."""

    def __init__(self, environment: Environment, times: Mapping[str, float], configs: Sequence[Config]) -> None:
        self._environment, self._times, self._configs = environment, times, configs
        self._by_files: dict[str, float | None] = {}

    def learn(self, variants: Sequence[Files]) -> None:
        """Whose files are which config's."""
        for variant, config in zip(variants, self._configs, strict=True):
            self._by_files[repr(variant)] = self._times.get(key(config))

    async def environment(self) -> Environment:
        return self._environment

    async def race(self, variants: list[Files], *_: Any) -> RaceResult:
        raced = race([self._by_files[repr(one)] for one in variants])
        return RaceResult(status=Status.PASSED, cases=[{}], configs=[[one] for one in raced])

    async def correctness(self, *_: Any) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(self, variant: Files, incumbent: Files, *_: Any) -> BenchmarkResult:
        ms, before = self._by_files[repr(variant)], self._by_files[repr(incumbent)]
        assert ms is not None
        assert before is not None
        gain = before / ms
        return BenchmarkResult(status=Status.PASSED, speedup=gain, speedup_low=gain, speedup_high=gain)


def environment() -> Environment:
    """Where the times are said to be measured: what a search has to know of it."""
    ceilings = Ceilings(copy_bytes_per_s=1e12, flops={}, measured=False)
    known = dict.fromkeys(("torch", "cuda_tile", "compiler", "python"), "")
    return Environment(backend=Backend.CUDA, device="recorded", arch=ARCH, ceilings=ceilings, **known)


async def replayed(part: Part, repository: Path, recorded: Record) -> Record:
    """What the search makes of a space."""
    found = working_candidate(Checkout(repository), PurePosixPath("task"))
    wanted = Wanted(found, part.space, None)
    configs = configs_of(part, repository)
    measuring: Any = Measuring(environment(), times_of(recorded), configs)
    knobs = wanted.found.knobs()
    measuring.learn([wanted.found.files | knobs.variant(config) for config in configs])
    result = await search(wanted, Backend.CUDA, measuring, lambda _: None)
    if result.status is not Status.PASSED:
        raise RuntimeError(f"{part.name}: {result.status}: {result.message}")
    kept = {"config", "place", "why"}
    tried = [one.model_dump(mode="json", include=kept, exclude_none=True) for one in result.tried]
    return {"best": result.best, "tried": tried}


def run(file: Path, names: Sequence[str]) -> None:
    spaces = read(RECORDED)["parts"]
    record: Record = read(file) if file.exists() else {"parts": {}}
    record |= header("advice.replayed run FILE") | {"error": ERROR}
    with tempfile.TemporaryDirectory(prefix="replayed-") as parent:
        for part in PARTS:
            if part.name in record["parts"] or "successes" not in spaces.get(part.name, {}).get("theirs", {}):
                continue
            if not names or part.name in names:
                repository = make_repository(Path(parent), part)
                found = asyncio.run(replayed(part, repository, spaces[part.name]))
                record["parts"][part.name] = found | outcome(found, spaces[part.name])
                write(file, record)
                print(described(part.name, record["parts"][part.name]), flush=True)


def outcome(found: Record, recorded: Record) -> Record:
    """How many configs a replayed search raced beside the original; how many of the best three by their recorded times,
    each of other machine code, were not in the rounds; and the time of its best over that of the best."""
    tried, times, codes = found["tried"], times_of(recorded), codes_of(recorded["ours"]["tried"])
    in_rounds = {codes[key(one["config"])] for one in tried if one["place"] in RACED}
    of_code = {codes[one]: times[one] for one in times}
    firsts = sorted({*of_code} - {codes[key({})]}, key=lambda code: of_code[code])[:3]
    return {
        "configs": len(tried),
        "codes": len({*codes.values()}),
        "raced": sum(bool(one["config"]) and one["place"] in RACED for one in tried),
        "lost": sum(code not in in_rounds for code in firsts),
        "over_best": times[key(found["best"])] / min(times.values()) - 1,
    }


def described(name: str, one: Record) -> str:
    missed = f"{one['lost']} LOST" if one["lost"] else "all three"
    figures = [one["configs"], one["codes"], one["raced"], missed, f"{100 * one['over_best']:.1f}%"]
    return " ".join(["|", " | ".join(map(str, [name, *figures])), "|"])


def show(file: Path) -> int:
    parts = read(file)["parts"]
    print("| space | configs | machine codes | in the rounds | of the best three | its best |")
    print("|---" * 6 + "|")
    for name, one in parts.items():
        print(described(name, one))
    return int(any(one["lost"] for one in parts.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "show"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(BY_NAME), metavar="NAME")
    asked = parser.parse_args()
    if asked.what == "run":
        run(asked.file, asked.only)
    return show(asked.file)


if __name__ == "__main__":
    sys.exit(main())

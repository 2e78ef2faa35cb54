"""Today's search over the spaces that were measured on an H200: the search itself, but what it would time is recorded.

python -m benchmarks.advice.replayed run FILE [--only NAME ...]    every space of searches.json.gz
python -m benchmarks.advice.replayed show FILE    what became of the best three of each space; exits with 1 if one was
                                                  not raced

Both run on any machine that has the compiler.
Compiling, modelling, pruning, and the choice of who races in which heat are those of `tilewright autotune`; a config's
time in a round is what cuTile's search measured of it, the mean over configs with the same machine code, with a normal
error. Parts that FILE holds are not run again. Nothing is said of how long a search takes, nor of a GPU's whims.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from statistics import fmean
from typing import Any

from benchmarks.advice.searches import label
from benchmarks.kernels.searched.spaces import BY_NAME, PARTS, Config, Part, configs_of, make_repository
from benchmarks.recorded import header, read, write

from tilewright.autotune.pruning import SAME
from tilewright.autotune.searching import Wanted, search
from tilewright.evaluation import racing
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import (
    BenchmarkResult,
    CorrectnessResult,
    Environment,
    Prior,
    Status,
)
from tilewright.evaluation.seeds import Seeds
from tilewright.repository import Files
from tilewright.session.beginning import working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.runs import RaceResult, with_model
from tilewright.task import Backend

RECORDED = Path(__file__).parents[1] / "evidence" / "searches.json.gz"
ARCH, GPU_BYTES = "sm_90", 141 * 10**9
ERROR = 0.01
"""Standard deviation of a round's time, as a share."""
RACED = ("measured", "best")
Record = dict[str, Any]


def key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


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


class Track:
    """Heats in which each config takes what was recorded; one that was not measured fails."""

    at_once = racing.heat_size(GPU_BYTES)
    kept = racing.idle_at_most(GPU_BYTES)

    def __init__(self, times: Sequence[float | None]) -> None:
        self._times, self._source = times, random.Random(0)

    @contextlib.contextmanager
    def heat(self, numbers: list[int]) -> Iterator[Any]:
        track = self

        class Heat:
            seconds = "no time at all"

            def lanes(self, case: Any, seeds: Seeds, rounds: Sequence[int]) -> list[racing.Lane]:
                times = {number: ms for number in numbers if (ms := track._times[number]) is not None}
                if missing := [number for number in numbers if number not in times]:
                    raise WorkerFailure(Status.RAISED, "it was not measured", label=str(missing[0]))

                def timed(arm: int) -> float:
                    return times[numbers[arm]] * math.exp(track._source.gauss(0, ERROR))

                return racing.halve(len(numbers), timed, track._source, rounds)

        yield Heat()

    def end(self, numbers: Iterable[int]) -> None:
        """There is nobody to end."""


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

    async def ready(self, count: int) -> None: ...

    async def take_over(self, others: Any, variants: list[Files]) -> None: ...

    async def race(
        self, variants: list[Files], secret: str, limit_s: float, tell: Any, priors: Sequence[Prior]
    ) -> RaceResult:
        track = Track([self._by_files[repr(one)] for one in variants])
        raced = racing.race([{}], len(variants), track, Seeds("00" * 32), tell, priors)
        return RaceResult(status=Status.PASSED, configs=raced)

    async def correctness(self, *_: Any) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(self, variant: Files, incumbent: Files, *_: Any) -> BenchmarkResult:
        ms, before = self._by_files[repr(variant)], self._by_files[repr(incumbent)]
        assert ms is not None
        assert before is not None
        gain = before / ms
        return BenchmarkResult(status=Status.PASSED, speedup=gain, speedup_low=gain, speedup_high=gain)


async def replayed(part: Part, repository: Path, recorded: Record) -> Record:
    """What the search makes of a space, as `searches.py` records it."""
    found = working_candidate(Checkout(repository), PurePosixPath("task"))
    wanted = Wanted(found, part.space, None)
    configs = configs_of(part, repository)
    async with with_model(Backend.CPU, ARCH, found.committed, found.folder) as (modelling, _):
        measuring = Measuring(await modelling.environment(), times_of(recorded), configs)
        knobs = wanted.knobs()
        measuring.learn([wanted.files | knobs.variant(config) for config in configs])
        result = await search(wanted, Backend.CUDA, modelling, measuring, lambda _: None)  # type: ignore[arg-type]
    if result.status is not Status.PASSED:
        raise RuntimeError(f"{part.name}: {result.status}: {result.message}")
    kept = {"config", "place", "why", "modelled_ms"}
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
    """How many configs a replayed search raced beside the original; of the best three by their recorded times, whether
    they were, and where in the order of the model's figures they are; the time of its best over that of the best."""
    tried, times = found["tried"], times_of(recorded)
    codes = codes_of(tried)
    places = {key(one["config"]): one["place"] for one in tried}
    raced = [one for one in tried if one["config"] and one["place"] in RACED]
    of_code: dict[str, float] = {}
    for one in sorted(times, key=lambda one: -times[one]):
        of_code[codes[one]] = times[one]
    firsts = sorted({*of_code} - {codes[key({})]}, key=lambda one: of_code[one])
    modelled = {key(one["config"]): one["modelled_ms"] for one in tried if one.get("modelled_ms")}
    order = sorted({*modelled} & {*codes.values()}, key=lambda one: modelled[one])
    return {
        "configs": len(tried),
        "codes": len({*codes.values()}),
        "raced": len(raced),
        "places": [places[one] for one in firsts[:3]],
        "ranks": [order.index(one) + 1 if one in modelled else None for one in firsts[:3]],
        "pruned": sorted(
            {one["why"] for one in tried if key(one["config"]) in firsts[:3] and one["place"] not in RACED}
        ),
        "over_best": times[key(found["best"])] / min(times.values()) - 1,
    }


def lost(one: Record) -> int:
    """How many of the best three were not raced."""
    return sum(place not in RACED for place in one["places"])


def described(name: str, one: Record) -> str:
    ranks = ", ".join("?" if rank is None else str(rank) for rank in one["ranks"])
    missed = f"{lost(one)} LOST ({'; '.join(one['pruned'])})" if lost(one) else "all three"
    return (
        f"| {name} | {one['configs']} | {one['codes']} | {one['raced']} | {ranks} | {missed} | "
        f"{100 * one['over_best']:.1f}% |"
    )


def show(file: Path) -> int:
    parts = read(file)["parts"]
    print("| space | configs | machine codes | raced | the model's ranks of the best three | raced | its best |")
    print("|---" * 7 + "|")
    for name, one in parts.items():
        print(described(name, one))
    return int(any(map(lost, parts.values())))


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

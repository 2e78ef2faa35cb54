"""A search on a GPU, with stand-ins for its referees: what is raced, what is given up, what is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import SCALE_KERNEL
from tests.unit.test_model import profile
from tests.unit.test_wrapper import wanted_of
from tilewright.autotune.searching import _Check, _to_race, search
from tilewright.errors import UsageError
from tilewright.evaluation import pool
from tilewright.evaluation.results import (
    COMPILING,
    BenchmarkResult,
    CorrectnessResult,
    Environment,
    Raced,
    Shaped,
    Status,
    Surveyed,
)
from tilewright.roofline.bounds import Ceilings
from tilewright.roofline.model import CallProfile
from tilewright.session.outcomes import RaceResult, SurveyResult
from tilewright.task import Backend, Task, TaskFile


class Runs:
    """Stands in for both referees of a search on a GPU: the original's model takes too long, and so does config 2's."""

    def __init__(self, refuses: bool = False) -> None:
        self._surveying, self._refuses = asyncio.Event(), refuses
        self.given_up = False
        self.raced = 0
        self.ready_for = 0
        self.alike: list[int] = []
        self.taken_over = 0

    async def take_over(self, others: Any, variants: list[Any]) -> None:
        assert others.surveys
        self.taken_over = len(variants)

    async def ready(self, count: int) -> None:
        self.ready_for = count

    async def environment(self) -> Environment:
        await asyncio.wait_for(self._surveying.wait(), 10)  # the survey goes on meanwhile
        if self._refuses:
            raise UsageError("no GPU")
        ceilings = Ceilings(copy_bytes_per_s=1e12, flops={}, measured=True)
        known = dict.fromkeys(("torch", "cuda_tile", "compiler", "python"), "")
        return Environment(backend=Backend.CUDA, device="d", arch="sm_90", ceilings=ceilings, **known)

    async def survey(self, variants: list[Any], *_: Any, alike: list[int], hopeless: float) -> SurveyResult:
        self._surveying.set()
        self.alike = alike
        try:
            await asyncio.sleep(30 if self._refuses else 0.1)
        except asyncio.CancelledError:
            self.given_up = True
            raise
        slow = Surveyed(status=Status.TIMEOUT, message="no answer within 30 s in a sampled call")
        known = [
            Surveyed(profiles=[CallProfile(launches=[profile()])], ms=[ms], limits=["spills"]) for ms in (1.0, 9.0)
        ]
        return SurveyResult(
            status=Status.PASSED, cases=[{"N": 1}], calls=["x"], variants=[slow, known[0], slow, known[1]]
        )

    async def race(self, variants: list[Any], *_: Any) -> RaceResult:
        self.raced = len(variants)
        configs = [[Raced(ms=1 / up, speedup=up, low=up, high=up)] for up in (1.0, 1.5, 2.0)]
        return RaceResult(status=Status.PASSED, cases=[{"N": 1}], configs=configs)

    async def correctness(self, *_: Any) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(self, *_: Any) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, speedup=2.0, speedup_low=1.9, speedup_high=2.1)


def searched(runs: Runs, space: dict[str, list[Any]], folder: Path, tell: Any, **case: str) -> Any:
    about = {"name": "t", "entry": "k:scale", "editable": ["k.py"], "cases": [{"N": 1, **case}]}
    file = TaskFile.model_validate(about)
    found = wanted_of(Task(file, folder), SCALE_KERNEL.encode())
    other: Any = SimpleNamespace(environment=runs.environment, survey=runs.survey, surveys=True)
    wanted = type(found)(found.found, space, None)
    return asyncio.run(search(wanted, Backend.CUDA, other, runs, tell))  # type: ignore[arg-type]


def test_the_best_was_in_the_last_heat(tmp_path: Path) -> None:
    class Halved(Runs):
        async def race(self, variants: list[Any], *_: Any) -> RaceResult:
            found = await super().race(variants)
            found.configs[2] = [one.model_copy(update={"left": True}) for one in found.configs[2]]
            return found

    result = searched(Halved(), {"TILE": [16, 32, 128]}, tmp_path, lambda _: None)
    assert result.best == {"TILE": 16}
    assert result.best_by_case == {"N=1": {"TILE": 16}}
    assert [one.label for one in result.tried][:2] == ["TILE=16", "TILE=32"]


def test_a_search_races_what_it_could_not_model_the_original_too(tmp_path: Path) -> None:
    runs, said = Runs(), []  # type: ignore[var-annotated]
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path, said.append)
    assert result.status is Status.PASSED, result.message
    assert said[0].startswith("starting")
    assert (runs.ready_for, runs.taken_over, runs.raced) == (4, 3, 3)
    places = {one.label: (one.place, one.why) for one in result.tried}
    assert places["as it is"] == ("measured", "not modelled: no answer within 30 s in a sampled call")
    assert places["TILE=16"] == ("measured", "")
    assert places["TILE=32"] == ("best", "not modelled: no answer within 30 s in a sampled call")
    assert places["TILE=128"][0] == "pruned"
    assert "9.0 times the best" in places["TILE=128"][1]


def test_a_survey_is_given_up_where_nothing_can_be_measured(tmp_path: Path) -> None:
    runs = Runs(refuses=True)
    with pytest.raises(UsageError, match="no GPU"):
        searched(runs, {"TILE": [16]}, tmp_path, lambda _: None)
    assert runs.given_up


def test_a_kind_that_no_model_shows_is_asked_for(tmp_path: Path) -> None:
    from tilewright.knobs import SpaceError

    with pytest.raises(SpaceError, match="name the kernel's kind, which is unknown: not modelled: no answer"):
        searched(Runs(), {}, tmp_path, lambda _: None)


@pytest.mark.parametrize(("dtypes", "kind"), [(["float16"], "T3"), (["float16", "int32"], "T7"), ([], "T3")])
def test_a_kind_follows_from_the_inputs_dtypes_and_from_no_word_of_a_case(
    dtypes: list[str], kind: str, tmp_path: Path
) -> None:
    class Product(Runs):
        async def survey(self, variants: list[Any], *_: Any, **__: Any) -> SurveyResult:
            self._surveying.set()
            call = CallProfile(launches=[profile(matrix_flops={"float16": 1e8}, blocks=16383)])
            tensors = [Shaped(dtype=dtype, shape=[64, 64]) for dtype in dtypes]
            seen = [Surveyed(profiles=[call], ms=[1.0], limits=[""]) for _ in variants]
            return SurveyResult(status=Status.PASSED, cases=[{"N": 1}], calls=["x"], tensors=tensors, variants=seen)

        async def race(self, variants: list[Any], *_: Any) -> RaceResult:
            configs = [[Raced(ms=1, speedup=1, low=1, high=1)] for _ in variants]
            return RaceResult(status=Status.PASSED, cases=[{"N": 1}], configs=configs)

    result = searched(Product(), {}, tmp_path, lambda _: None, index="int32", kind="float8_e5m2")
    assert result.space.startswith(f"proposed for {kind} ")


def test_what_is_known_of_each_config_goes_into_the_race(tmp_path: Path) -> None:
    class Choosy(Runs):
        async def race(self, variants: list[Any], *rest: Any) -> RaceResult:
            (self.priors,) = rest[3:]
            found = await super().race(variants)
            for number in (1, 2):
                found.configs[number] = [Raced(message="expected at about 1.3 times the best", left=True)]
            return found

    runs = Choosy()
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path, lambda _: None)
    assert [(one.ms, one.settings) for one in runs.priors] == [
        (None, {"TILE": "64"}), (1.0, {"TILE": "16"}), (None, {"TILE": "32"}),
    ]  # fmt: skip
    left = {one.label: (one.place, one.why, one.speedup) for one in result.tried if one.label in ("TILE=16", "TILE=32")}
    assert left["TILE=16"] == ("pruned", "expected at about 1.3 times the best", None)
    slow = "not modelled: no answer within 30 s in a sampled call"
    assert left["TILE=32"] == ("pruned", f"{slow}; expected at about 1.3 times the best", None)
    assert result.best == {}


class Judge:
    """In the place of runs: what a check says of each variant, the first first."""

    def __init__(self, **said: list[Status]) -> None:
        self.said, self.asked = said, []  # type: ignore[var-annotated]

    async def correctness(self, variant: Any, *_: Any) -> CorrectnessResult:
        self.asked.append(variant)
        return CorrectnessResult(status=self.said[variant].pop(0))


@pytest.mark.parametrize(
    ("said", "asked", "wrong", "original"),
    [
        ({"a": [Status.PASSED]}, "a", [None], None),
        ({"a": [Status.WRONG_VALUES], "o": [Status.WRONG_VALUES]}, "ao", [Status.WRONG_VALUES], Status.WRONG_VALUES),
        ({"a": [Status.VOID, Status.PASSED]}, "aa", [None], None),
        ({"a": [Status.VOID, Status.VOID]}, "aa", [Status.VOID], None),
        ({"a": [Status.CRASHED], "o": [Status.TIMEOUT]}, "ao", [Status.CRASHED], None),
        ({"a": [Status.CRASHED], "o": [Status.VOID, Status.PASSED], "b": [Status.CRASHED]}, "aob",
         [Status.CRASHED, Status.CRASHED], None),
    ],
)  # fmt: skip
def test_the_candidate_as_it_is_is_checked_once_a_config_is_wrong(
    said: dict[str, list[Status]], asked: str, wrong: list[Status | None], original: Status | None
) -> None:
    judge = Judge(**said)
    check = _Check(["o", "a", "b"], judge, lambda _: None)  # type: ignore[list-item, arg-type]
    for number, status in enumerate(wrong, 1):
        found = asyncio.run(check.of(number))
        assert (found and found.status) == status
    assert "".join(judge.asked) == asked
    assert (check.original and check.original.status) == original


def test_a_config_whose_compile_takes_too_long_is_not_raced_but_for_the_original() -> None:
    assert pool._DOING["cubins"] == COMPILING
    slow = Surveyed(status=Status.TIMEOUT, message=f"no answer within 30 s {COMPILING}")
    raced = [[one.status for one in _to_race([first, slow, slow], Backend.CUDA)] for first in (slow, Surveyed())]
    assert raced == [[Status.PASSED, Status.TIMEOUT, Status.TIMEOUT]] * 2
    assert _to_race([slow], Backend.CPU) == [slow]

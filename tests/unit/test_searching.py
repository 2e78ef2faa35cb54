"""A search on a GPU, with stand-ins for its referees: what is raced, and what is asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SCALE_KERNEL
from tests.unit.test_model import profile
from tests.unit.test_wrapper import wanted_of
from tilewright.autotune import modelled
from tilewright.autotune.searching import _Check, search
from tilewright.evaluation.results import (
    BenchmarkResult,
    CorrectnessResult,
    Environment,
    Raced,
    Shaped,
    Status,
    Surveyed,
)
from tilewright.knobs import SpaceError
from tilewright.roofline.bounds import Ceilings
from tilewright.roofline.model import CallProfile
from tilewright.session.outcomes import RaceResult, SurveyResult
from tilewright.task import Backend, Task, TaskFile


class Runs:
    """Stands in for both referees of a search on a GPU. Config n is n halves faster than the original."""

    def __init__(self, original: Surveyed | None = None, tensors: list[Shaped] | None = None) -> None:
        self.surveyed = 0
        self.raced = 0
        self._original = original or Surveyed(profiles=[CallProfile(launches=[profile()])], ms=[1.0], limits=[""])
        self._tensors = tensors or []

    async def environment(self) -> Environment:
        ceilings = Ceilings(copy_bytes_per_s=1e12, flops={}, measured=True)
        known = dict.fromkeys(("torch", "cuda_tile", "compiler", "python"), "")
        return Environment(backend=Backend.CUDA, device="d", arch="sm_90", ceilings=ceilings, **known)

    async def survey(self, variants: list[Any], *_: Any) -> SurveyResult:
        self.surveyed += len(variants)
        return SurveyResult(status=Status.PASSED, cases=[{"N": 1}], tensors=self._tensors, variants=[self._original])

    async def race(self, variants: list[Any], *_: Any) -> RaceResult:
        self.raced = len(variants)
        configs = [[self.figures(number)] for number in range(len(variants))]
        return RaceResult(
            status=Status.PASSED, cases=[{"N": 1}], configs=configs, symbols=["scale_kernel_Kt1f", "fill"]
        )

    def figures(self, number: int) -> Raced:
        up = 1 + number / 2
        return Raced(ms=1 / up, speedup=up, low=up, high=up, rounds=8)

    async def correctness(self, *_: Any) -> CorrectnessResult:
        return CorrectnessResult(status=Status.PASSED)

    async def benchmark(self, *_: Any) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, speedup=2.0, speedup_low=1.9, speedup_high=2.1)


def searched(runs: Runs, space: dict[str, list[Any]], folder: Path, **case: str) -> Any:
    about = {"name": "t", "entry": "k:scale", "editable": ["k.py"], "cases": [{"N": 1, **case}]}
    file = TaskFile.model_validate(about)
    found = wanted_of(Task(file, folder), SCALE_KERNEL.encode())
    wanted = type(found)(found.found, space, None)
    return asyncio.run(search(wanted, Backend.CUDA, runs, runs, lambda _: None))  # type: ignore[arg-type]


def test_a_declared_space_is_raced_and_not_modelled(tmp_path: Path) -> None:
    runs = Runs()
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path)
    assert result.status is Status.PASSED, result.message
    assert (runs.surveyed, runs.raced) == (0, 4)
    assert result.best == {"TILE": 128}
    assert result.launched == ["scale_kernel"]
    assert [(one.label, one.place) for one in result.tried] == [
        ("TILE=128", "best"), ("TILE=32", "measured"), ("TILE=16", "measured"), ("as it is", "measured"),
    ]  # fmt: skip


def test_the_best_stayed_in_the_race_to_its_end(tmp_path: Path) -> None:
    class Halved(Runs):
        def figures(self, number: int) -> Raced:
            return super().figures(number).model_copy(update={"dropped": number > 1})

    result = searched(Halved(), {"TILE": [16, 32, 128]}, tmp_path)
    assert result.best == {"TILE": 16}
    assert result.best_by_case == {"N=1": {"TILE": 16}}
    assert {one.label: one.why for one in result.tried}["TILE=32"] == "it left the race early"


def test_what_was_not_in_the_rounds_is_pruned_with_its_reason(tmp_path: Path) -> None:
    class Telling(Runs):
        def figures(self, number: int) -> Raced:
            found = super().figures(number)
            if number == 1:
                return found.model_copy(update={"same": 0})
            if number == 2:
                return Raced(status=Status.NOT_REPLAYED, message="it waits for the host")
            if number == 3:
                return found.model_copy(update={"dropped": True, "rounds": 0, "message": "1.7 times the best's time"})
            return found

    result = searched(Telling(), {"TILE": [16, 32, 128]}, tmp_path)
    places = {one.label: (one.place, one.why) for one in result.tried}
    assert places["TILE=16"] == ("pruned", "the same machine code as as it is")
    assert places["TILE=32"] == ("failed", "not_replayed: it waits for the host")
    assert places["TILE=128"] == ("pruned", "1.7 times the best's time")
    assert result.best == {}


@pytest.mark.parametrize(
    ("status", "message"),
    [(Status.NOT_REPLAYED, "no"), (Status.VOID, "no"), (Status.WRONG_VALUES, "the candidate fails as it is: no")],
)
def test_a_race_that_fails_ends_the_search(status: Status, message: str, tmp_path: Path) -> None:
    class Failing(Runs):
        async def race(self, *_: Any) -> RaceResult:
            return RaceResult(status=status, message="no")

    result = searched(Failing(), {"TILE": [16]}, tmp_path)
    assert (result.status, result.message) == (status, message)


@pytest.mark.parametrize(
    "original",
    [
        Surveyed(status=Status.TIMEOUT, message="no answer within 60 s in a sampled call"),
        Surveyed(status=Status.RAISED, message="UnsupportedOperation: f.py:3: no such thing"),
    ],
)
def test_a_kind_that_no_model_shows_is_asked_for(original: Surveyed, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="name the kernel's kind, which is unknown: "):
        searched(Runs(original), {}, tmp_path)


def test_an_original_that_fails_while_its_kind_is_looked_for_ends_the_search(tmp_path: Path) -> None:
    result = searched(Runs(Surveyed(status=Status.COMPILE_ERROR, message="no")), {}, tmp_path)
    assert (result.status, result.message) == (Status.COMPILE_ERROR, "the candidate fails as it is: no")


@pytest.mark.parametrize(("dtypes", "kind"), [(["float16"], "T3"), (["float16", "int32"], "T7"), ([], "T3")])
def test_a_kind_follows_from_the_inputs_dtypes_and_from_no_word_of_a_case(
    dtypes: list[str], kind: str, tmp_path: Path
) -> None:
    call = CallProfile(launches=[profile(matrix_flops={"float16": 1e8}, blocks=16383)])
    tensors = [Shaped(dtype=dtype, shape=[64, 64]) for dtype in dtypes]
    runs = Runs(Surveyed(profiles=[call], ms=[1.0], limits=[""]), tensors)
    result = searched(runs, {}, tmp_path, index="int32", kind="float8_e5m2")
    assert result.space.startswith(f"proposed for {kind} ")
    assert (runs.surveyed, runs.raced) == (1, len(result.tried))


def test_the_model_ranks_and_drops_none_but_equal_machine_code() -> None:
    def seen(ms: float, **changes: Any) -> Surveyed:
        return Surveyed(profiles=[CallProfile(launches=[profile(**changes)])], ms=[ms], limits=["spills"])

    variants = [
        seen(9.0, code="a"), seen(1.0, code="b"), seen(1.0, code="b"), seen(1.0, code="b", blocks=7),
        seen(2.0), seen(2.0), Surveyed(status=Status.COMPILE_ERROR, message="no"),
        seen(0.1).model_copy(update={"short": "its kernels move 1 MB, and 9 MB have to be read"}),
    ]  # fmt: skip
    found = [one for (one,) in modelled.raced(variants, 1)]
    assert [one.same for one in found] == [None, None, 1, None, None, None, None, None]
    assert [one.status for one in found[-2:]] == [Status.COMPILE_ERROR, Status.TAMPERED]
    assert "9 MB" in found[-1].message
    assert [one.speedup for one in found[:5]] == [1.0, 9.0, 9.0, 9.0, 4.5]


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

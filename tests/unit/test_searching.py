"""A search with stand-ins for its referee: what is raced, what is asked for, and what becomes of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SCALE_KERNEL
from tests.unit.test_wrapper import wanted_of
from tilewright.autotune.report import SearchResult
from tilewright.autotune.searching import search
from tilewright.evaluation.results import (
    BenchmarkResult,
    CorrectnessResult,
    Environment,
    Modelled,
    Raced,
    Status,
)
from tilewright.knobs import SpaceError
from tilewright.roofline.bounds import Ceilings
from tilewright.session.outcomes import ModelResult, RaceResult
from tilewright.task import Backend, Task, TaskFile


class Runs:
    """Stands in for a referee. Config n is n halves faster than the original."""

    def __init__(self) -> None:
        self.raced = 0
        self.checked: list[str] = []

    async def environment(self) -> Environment:
        ceilings = Ceilings(copy_bytes_per_s=1e12, flops={}, measured=True)
        known = dict.fromkeys(("torch", "cuda_tile", "compiler", "python"), "")
        return Environment(backend=Backend.CUDA, device="d", arch="sm_90", ceilings=ceilings, **known)

    async def race(self, variants: list[Any], *_: Any) -> RaceResult:
        self.raced = len(variants)
        configs = [[self.figures(number)] for number in range(len(variants))]
        return RaceResult(status=Status.PASSED, cases=[{"N": 1}], configs=configs)

    def figures(self, number: int) -> Raced:
        up = 1 + number / 2
        return Raced(ms=1 / up, speedup=up, low=up, high=up, rounds=8)

    async def correctness(self, files: Any, *_: Any) -> CorrectnessResult:
        tile = files["k.py"].split(b"TILE = ")[1].split()[0].decode()
        self.checked.append(tile)
        return CorrectnessResult(status=self.verdict(tile), message="no")

    def verdict(self, tile: str) -> Status:
        return Status.PASSED

    async def benchmark(self, *_: Any) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, speedup=2.0, speedup_low=1.9, speedup_high=2.1)


def searched(
    runs: Runs, space: dict[str, list[Any]], folder: Path, backend: Backend = Backend.CUDA, committed: bytes = b""
) -> SearchResult:
    about = {"name": "t", "entry": "k:scale", "editable": ["k.py"], "cases": [{"N": 1}]}
    wanted = wanted_of(Task(TaskFile.model_validate(about), folder), SCALE_KERNEL.encode())
    found = replace(wanted.found, committed={"large": committed})
    wanted = replace(wanted, found=found, values=space)
    return asyncio.run(search(wanted, backend, runs, lambda _: None))  # type: ignore[arg-type]


def test_a_declared_space_is_raced(tmp_path: Path) -> None:
    runs = Runs()
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path)
    assert result.status is Status.PASSED, result.message
    assert runs.raced == 4
    assert result.best == {"TILE": 128}
    assert [one.line for one in result.tried] == [
        "TILE=128: best, 2.5000x (2.5000 to 2.5000)", "TILE=32: measured, 2.0000x (2.0000 to 2.0000)",
        "TILE=16: measured, 1.5000x (1.5000 to 1.5000)", "as it is: measured, 1.0000x (1.0000 to 1.0000)",
    ]  # fmt: skip


def test_the_best_stayed_in_the_race_to_its_end(tmp_path: Path) -> None:
    class Halved(Runs):
        def figures(self, number: int) -> Raced:
            return super().figures(number).model_copy(update={"dropped": number > 1})

    result = searched(Halved(), {"TILE": [16, 32, 128]}, tmp_path)
    assert result.best == {"TILE": 16}
    assert result.best_by_case == {"N=1": {"TILE": 16}}
    assert {one.config.get("TILE"): one.why for one in result.tried}[32] == "it left the race early"


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
    places = {one.config.get("TILE"): (one.place, one.why) for one in result.tried}
    assert places[16] == ("pruned", "the same program as as it is")
    assert places[32] == ("failed", "not_replayed: it waits for the host")
    assert places[128] == ("pruned", "1.7 times the best's time")
    assert result.best == {}


@pytest.mark.parametrize("status", [Status.NOT_REPLAYED, Status.VOID, Status.WRONG_VALUES])
def test_a_race_that_fails_ends_the_search(status: Status, tmp_path: Path) -> None:
    class Failing(Runs):
        async def race(self, *_: Any) -> RaceResult:
            return RaceResult(status=status, message="no")

    result = searched(Failing(), {"TILE": [16]}, tmp_path)
    assert (result.status, result.message) == (status, "no")


def test_without_a_gpu_the_model_ranks(tmp_path: Path) -> None:
    class Modelling(Runs):
        async def model(self, variants: list[Any], *_: Any) -> ModelResult:
            said = [Modelled(ms=[1.0 + number]) for number in range(len(variants) - 1)]
            failed = Modelled(status=Status.COMPILE_ERROR, message="no")
            return ModelResult(
                status=Status.PASSED, cases=[{"N": 1}], variants=[Modelled(ms=[9.0]), *said[:-1], failed]
            )

    result = searched(Modelling(), {"TILE": [16, 32, 128]}, tmp_path, Backend.CPU)
    assert result.best == {"TILE": 16}
    assert {one.config.get("TILE"): one.place for one in result.tried} == {
        16: "best", 32: "modelled", None: "modelled", 128: "failed",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "checked", "best"),
    [
        ({}, ["128"], {"TILE": 128}),
        ({"128": Status.WRONG_VALUES}, ["128", "64", "32"], {"TILE": 32}),
        ({"128": Status.CRASHED, "32": Status.CRASHED}, ["128", "64", "32", "16"], {"TILE": 16}),
        ({"128": Status.CRASHED, "64": Status.TIMEOUT}, ["128", "64", "32"], {"TILE": 32}),
    ],
)
def test_the_candidate_as_it_is_is_checked_once_a_config_is_wrong(
    wrong: dict[str, Status], checked: list[str], best: dict[str, int], tmp_path: Path
) -> None:
    class Judging(Runs):
        def verdict(self, tile: str) -> Status:
            return wrong.get(tile, Status.PASSED)

    runs = Judging()
    result = searched(runs, {"TILE": [16, 32, 128]}, tmp_path)
    assert result.status is Status.PASSED
    assert runs.checked[: len(checked)] == checked
    assert result.best == best
    assert {one.config.get("TILE"): one.place for one in result.tried}.get(128) == ("failed" if wrong else "best")


def test_what_is_wrong_as_it_is_ends_the_search(tmp_path: Path) -> None:
    class Wrong(Runs):
        def verdict(self, tile: str) -> Status:
            return Status.WRONG_VALUES

    result = searched(Wrong(), {"TILE": [16, 32]}, tmp_path)
    assert (result.status, result.tried) == (Status.WRONG_VALUES, [])


@pytest.mark.parametrize("run", ["correctness", "benchmark"])
def test_a_void_run_ends_the_search_and_is_no_config_s_fault(run: str, tmp_path: Path) -> None:
    class Disturbed(Runs):
        pass

    async def disturbed(*_: Any) -> Any:
        kind = CorrectnessResult if run == "correctness" else BenchmarkResult
        return kind(status=Status.VOID, message="the GPU is in use")

    setattr(Disturbed, run, disturbed)
    result = searched(Disturbed(), {"TILE": [16, 32]}, tmp_path)
    assert (result.status, result.message) == (Status.VOID, "the GPU is in use")


def test_a_gain_that_is_gone_when_measured_anew_is_none(tmp_path: Path) -> None:
    class Fading(Runs):
        async def benchmark(self, *_: Any) -> BenchmarkResult:
            return BenchmarkResult(status=Status.PASSED, speedup=1.0, speedup_low=0.9, speedup_high=1.1)

    result = searched(Fading(), {"TILE": [16]}, tmp_path)
    assert (result.best, result.best_by_case) == ({}, {"N=1": {}})
    assert result.confirmation == "measured anew the gain is gone: 1.0000x (0.9000 to 1.1000)"


def test_a_space_whose_copies_fill_the_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.autotune.searching.COPIES_LIMIT", 1000)
    with pytest.raises(SpaceError, match="each config has a copy"):
        searched(Runs(), {"TILE": [16]}, tmp_path, committed=bytes(600))

"""Many versions captured once each: how many workers, which goes on, and what a failure costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.programs.made import OUT, copied, fill, program
from tests.unit.referee.test_captures import DRAWS, ENTRY, SERVER, Claim, worker  # noqa: F401 (the fixture)
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import Raced, Status
from tilewright.gpu.addresses import ZONES
from tilewright.programs.format import encoded
from tilewright.programs.model import Program
from tilewright.referee import variants
from tilewright.referee.variants import WORKER_BYTES, capture_variants
from tilewright.wire.messages import CandidateFailed, Captured, LoadEntry, Message, NotCaptured, SetArguments

MANY = 100 * WORKER_BYTES
Make = Callable[[Claim], list[Message]]


def taking(folder: str) -> Program:
    """What the version in this folder does."""
    return program([copied(), fill(OUT, int(folder.removeprefix("/v")))])


def captured(count: int, room: int = MANY, calls: int = 1, look: Any = lambda: None) -> list[list[Program] | Raced]:
    entries = [replace(ENTRY, folder=Path(f"/v{number}")) for number in range(count)]
    return capture_variants(SERVER, entries, [DRAWS[0]] * calls, 5.0, room, look, lambda _: None)


def numbers_of(found: list[list[Program] | Raced]) -> list[int]:
    programs = [one for one in found if not isinstance(one, Raced)]
    return [int.from_bytes(one[0].layout.nodes[1].parameters[1], "little") for one in programs]  # type: ignore[union-attr]


def right(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
    return Captured(program=0, peak_bytes=0), [encoded(taking(load.folder))]


def test_a_few_workers_take_one_version_after_the_other(worker: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(variants, "cpus", lambda: 3)
    ran: set[int] = set()

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        ran.add(number)
        return right(number, load)

    asked = worker(claim)
    found = captured(12)
    assert numbers_of(found) == [*range(12)]
    assert len(ran) <= 3
    loads = [one for one in asked if isinstance(one, LoadEntry)]
    assert sorted(one.folder for one in loads) == sorted(f"/v{number}" for number in range(12))
    assert {one.zone for one in asked if isinstance(one, SetArguments)} == {1}, "all have the same addresses"


def test_the_gpus_memory_says_how_many_workers_there_are(worker: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(variants, "cpus", lambda: 8)
    ran: set[int] = set()

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        ran.add(number)
        return Captured(program=0, peak_bytes=WORKER_BYTES), right(number, load)[1]

    worker(claim)
    assert numbers_of(captured(6, room=3 * WORKER_BYTES)) == [*range(6)]
    assert ran == {0}


def test_a_version_that_fails_beside_another_has_a_fresh_worker(worker: Make, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(variants, "cpus", lambda: 1)
    tried: list[tuple[int, str]] = []

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]] | None:
        tried.append((number, load.folder))
        if load.folder == "/v1" and number == 0:
            return CandidateFailed(status="raised", message="what was before it left something"), []
        if load.folder == "/v2":
            return None  # the process ends
        if load.folder == "/v3":
            return NotCaptured(reason="it waits for the host"), []
        return right(number, load)

    worker(claim)
    found = captured(5)
    assert numbers_of(found) == [0, 1, 4]
    assert [(one.status, one.message) for one in found if isinstance(one, Raced)] == [
        (Status.CRASHED, "the process ended: killed by SIGSEGV"),
        (Status.NOT_REPLAYED, "it cannot be replayed, try it with run_benchmark: it waits for the host"),
    ]
    assert tried == [(0, "/v0"), (0, "/v1"), (1, "/v1"), (1, "/v2"), (2, "/v2"), (3, "/v3"), (4, "/v4")]


def test_a_version_that_does_not_compile_leaves_its_worker_to_the_next(
    worker: Make,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(variants, "cpus", lambda: 1)
    tried: list[tuple[int, str]] = []

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        tried.append((number, load.folder))
        if load.folder in ("/v1", "/v2"):
            return CandidateFailed(status="compile_error", message="no power of two"), []
        return right(number, load)

    worker(claim)
    found = captured(4)
    assert [one.status for one in found if isinstance(one, Raced)] == [Status.COMPILE_ERROR] * 2
    assert tried == [(0, "/v0"), (0, "/v1"), (0, "/v2"), (0, "/v3")]


def test_an_original_that_fails_ends_it(worker: Make) -> None:  # noqa: F811
    worker(lambda *_: (CandidateFailed(status="compile_error", message="no"), []))
    with pytest.raises(WorkerFailure, match="no") as failed:
        captured(3)
    assert failed.value.status is Status.COMPILE_ERROR


def test_time_that_is_used_up_ends_it(worker: Make) -> None:  # noqa: F811
    def look() -> None:
        raise WorkerFailure(Status.TIMEOUT, "used up", used_up=True)

    worker(right)
    with pytest.raises(WorkerFailure, match="used up"):
        captured(4, look=look)


def test_more_cases_than_a_worker_has_addresses_for_take_further_workers(worker: Make) -> None:  # noqa: F811
    ran: set[int] = set()

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        ran.add(number)
        return right(number, load)

    asked = worker(claim)
    (found,) = captured(1, calls=ZONES)
    assert not isinstance(found, Raced)
    assert len(found) == ZONES
    assert ran == {0, 1}
    assert [one.zone for one in asked if isinstance(one, SetArguments)] == [*range(1, ZONES), 1]

"""What tuners answer that are told which config to take: no search."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.tile import tune
from cuda.tile._execution import kernel

from tilewright.evaluation import tuners
from tilewright.evaluation.correctness import Run
from tilewright.evaluation.pool import WorkerFailure
from tilewright.evaluation.results import CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.unseen import Tuners
from tilewright.frontends.cutile.runtime import CuTileRuntime
from tilewright.frontends.protocol import Choice, Tuner
from tilewright.task import Backend


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[Any]]]:
    """The spaces that cuTile searches, whose second config is the best."""
    found: list[list[Any]] = []

    def search(space: Any, *_: Any, **__: Any) -> Any:
        found.append([*space])
        return SimpleNamespace(best=SimpleNamespace(config=space[1]))

    monkeypatch.setattr(tune, "exhaustive_search", search)
    monkeypatch.setattr(tune._tune, "exhaustive_search", search)  # type: ignore[attr-defined]
    monkeypatch.setattr(kernel, "_compile", kernel._compile)
    yield found


def taken(space: list[Any]) -> Any:
    return tune.exhaustive_search(space, None, None, None, None).best.config


SEARCH = f"exhaustive_search at test_choosing.py:{taken.__code__.co_firstlineno + 1}"


def test_two_searches_of_as_many_configs_are_two_tuners(searched: list[list[Any]]) -> None:
    runtime = CuTileRuntime()
    runtime.watch()
    assert taken([64, 128]) == 128
    elsewhere = tune.exhaustive_search([7, 5], None, None, None, None)
    assert elsewhere.best.config == 5
    assert [(one.configs, one.taken) for one in runtime.tuners()] == [(2, ["128"]), (2, ["5"])]
    runtime.choose(Choice(0, known={f"{SEARCH} of 2": 0}))
    assert taken([64, 128]) == 64
    assert tune.exhaustive_search([7, 5], None, None, None, None).best.config == 5, "it is not the one that is known"


def test_a_search_of_cutile_takes_elsewhere_what_it_took_first(searched: list[list[Any]]) -> None:
    runtime = CuTileRuntime()
    runtime.watch()
    assert taken([64, 128, 256]) == 128
    assert runtime.tuners() == [Tuner(SEARCH, 3, ["128"], 1)]
    runtime.choose(Choice(0, known={f"{SEARCH} of 3": 1}))
    assert taken([5, 6, 7]) == 6
    assert searched == [[64, 128, 256]], "nothing more was searched"
    assert taken([8, 9]) == 9
    assert searched[1:] == [[8, 9]], "but a space that nobody knows"
    assert runtime.tuners()[0] == Tuner(SEARCH, 3, ["128", "6"], 1)
    runtime.choose(Choice(5))
    assert taken([8, 9]) == 9
    assert len(searched) == 2


def test_a_tuner_of_triton_takes_elsewhere_what_it_took_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from triton.runtime.autotuner import Autotuner

    from tilewright.frontends.triton.runtime import TritonRuntime

    timed: list[Any] = []

    def bench(tuner: Any, *_: Any, config: Any, **__: Any) -> list[float]:
        timed.append(config)
        return [7.0] * 3

    monkeypatch.setattr(Autotuner, "_bench", bench)
    one, other = object(), object()
    known, strange = (
        SimpleNamespace(base_fn=SimpleNamespace(__name__=name), configs=[one, other]) for name in ("known", "strange")
    )
    runtime = TritonRuntime()
    for number in (0, 1):  # it may be told anew
        runtime.choose(Choice(0, known={"known of 2": number}))
        times = [Autotuner._bench(known, config=config)[0] for config in (one, other)]
        assert times.index(min(times)) == number
    assert timed == []
    assert Autotuner._bench(strange, config=one) == [7.0] * 3
    assert timed == [one]


def test_a_config_that_pruning_made_has_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    from tilewright.frontends.triton import runtime

    base = SimpleNamespace(__name__="f")
    tuner_of = [SimpleNamespace(base_fn=base, configs=["a", "b"], cache={0: first}) for first in ("b", "pruned")]
    monkeypatch.setattr(runtime, "_living", lambda *_: tuner_of)
    found = runtime.TritonRuntime().tuners()
    assert [one.first for one in found] == [1, None]
    known = Tuners()
    known.add([[*one] for one in found[1:]])
    assert (known.first, known.configs) == ({}, {"f": 2})


@pytest.mark.parametrize(
    ("taken", "switched", "said"),
    [({"exhaustive_search of 3": 1}, True, []), ({}, True, [tuners.UNTUNED]), ({}, False, [])],
)
def test_on_a_gpu_hidden_sizes_are_told_what_the_benchmarked_case_took(
    monkeypatch: pytest.MonkeyPatch, taken: dict[str, int], switched: bool, said: list[str]
) -> None:
    large, small, hidden = {"N": 9}, {"N": 5}, {"N": 7}
    log: list[Any] = []

    class Ran:
        def __init__(self, by: Any, runs: Any, deadline: float, before: int = 0, after: int = 0) -> None:
            self.runs = runs

        def on(self, workers: Any) -> CorrectnessResult:
            log.append((len(workers), [run.case for run in self.runs]))
            return CorrectnessResult(status=Status.PASSED)

    monkeypatch.setattr(tuners, "Runs", Ran)
    monkeypatch.setattr(tuners, "unshown", lambda *_: SimpleNamespace(tuners=SimpleNamespace(first=taken)))
    task = SimpleNamespace(
        correctness_cases=lambda _: [large, small], benchmark_cases=lambda _: [large], file=SimpleNamespace(timeout_s=1)
    )
    by: Any = SimpleNamespace(code=SimpleNamespace(task=task), backend=Backend.CUDA, tunes=True, switched=switched)
    crew: Any = [
        SimpleNamespace(request=lambda *_, number=number, **said: log.append((number, said))) for number in (0, 1)
    ]
    runs = [Run(small, False, 1), Run(hidden, True, 2), Run(large, False, 3)]
    *_, notes = tuners.checked(by, runs, crew)
    told = [(number, {"tuner": Choice(0, known=taken), "switch": not taken}) for number in (0, 1)]
    assert log == [(1, [large, small]), *(told if taken or switched else []), (2, [hidden])]
    assert notes == said
    log.clear()
    tuners.checked(by, [Run(small, False, 1), Run(hidden, True, 2)], crew)
    assert log[0] == (1, [large, small]), "it is run to find out"


def test_on_a_gpu_several_configs_are_tried_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in a process of its own. What may have failed for the others beside it is tried once more alone."""
    started: list[list[int]] = []

    @contextlib.contextmanager
    def start(choices: list[Choice]) -> Iterator[list[Any]]:
        started.append([one.config for one in choices])
        if len(choices) > 1 and crowded:
            raise WorkerFailure(Status.VOID, "no memory")
        yield [SimpleNamespace(config=one.config, alone=len(choices) == 1) for one in choices]

    def on_each(by: Any, run: Run, workers: list[Any]) -> list[CaseCheck]:
        found = [ends[one.config][one.alone] for one in workers]
        return [CaseCheck(case=run.case, hidden=False, status=status) for status in found]

    monkeypatch.setattr(tuners, "on_each", on_each)
    monkeypatch.setattr(
        tuners, "unshown", lambda workers, _: SimpleNamespace(tuners=SimpleNamespace(text=str(workers[0].config)))
    )
    by: Any = SimpleNamespace(backend=Backend.CUDA, workers=2, start=start, tell=lambda _: None, code=None)
    runs, crowded = [Run({"N": 9}, False, 1)], False
    passes, fails = [Status.PASSED, Status.PASSED], [Status.RAISED, Status.RAISED]
    ends = [passes, fails, passes]

    def found() -> tuple[Tuners, CaseCheck | None]:
        known = Tuners()
        known.add([["search", 3, ["a"], 0]])
        started.clear()
        return known, tuners.fault_of(by, runs, known)

    known, fault = found()
    assert started == [[0, 1], [1], [2]]
    assert (known.tried, fault) == ({0, 2}, None), "one that does not run is none that a tuner takes"
    ends[1] = [Status.RAISED, Status.WRONG_VALUES]
    fault = found()[1]
    assert fault is not None and fault.message.startswith("with the config 1: "), "it failed for the other's memory"
    ends[1], crowded = passes, True
    assert found()[0].tried == {0, 1, 2}
    assert started == [[0, 1], [0], [1], [2]]

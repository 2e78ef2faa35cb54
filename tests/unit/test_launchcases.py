"""How launch code finds a case by a call's arguments, however they are given, and what it passes on."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_launchcode import loaded, result_of, wanted_of
from tilewright.autotune import launchcode
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.task import Task, TaskFile

OPTIONAL = b"""
import functools

import cuda.tile as ct
import torch

TILE = 64


@ct.kernel
def add_kernel(x, bias, out, T: ct.Constant[int]):
    block = ct.bid(0)
    a = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=a + ct.load(bias, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO))


def add(x: torch.Tensor, bias: torch.Tensor | None = None, factor: float = 2.0, *, plan=None, _cache={}):
    out = torch.empty_like(x)
    bias = torch.zeros_like(x) if bias is None else bias * factor
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), add_kernel, (x, bias, out, TILE))
    return out


def doubled(function):
    return functools.partial(function, 2.0)


def swapped(function):
    return lambda bias, x: function(x, bias)


@doubled
def scale(factor, x, bias):
    return add(x, bias, factor)


@swapped
def crossed(x, bias):
    return add(x, bias)


def pair(x, max_x):
    return TILE


def sized(x, bias, SIZE=64):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], SIZE),), add_kernel, (x, bias, out, SIZE))
    return out
"""


VECTORS = "bias=float32[1000], x=float32[1000]"
LONGER = "bias=float32[4000], x=float32[4000]"


def tuned_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, cases: dict[str, dict[str, int]]
) -> ModuleType:
    """The launch code of OPTIONAL's `entry` with the config of each tuned case; others run as it is."""
    host.install(spec_by_arch("sm_90"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    (tmp_path / "optional.py").write_bytes(OPTIONAL)
    file = TaskFile.model_validate(
        {"name": "t", "entry": f"optional:{entry}", "editable": ["optional.py"], "cases": [{"N": 1}]}
    )
    result = result_of([{}, *cases.values()], {}, "").model_copy(
        update={"cases": [*cases], "calls": {one: one for one in cases}, "best_by_case": cases}
    )
    code, table = launchcode.write(wanted_of(Task(file, tmp_path), OPTIONAL), result, {})
    (tmp_path / f"tuned_{entry}.py").write_text(code)
    (tmp_path / "tuned_optional.json").write_text(table)
    return loaded(tmp_path / f"tuned_{entry}.py")


def grids(calls: list[tuple[Any, torch.Tensor]]) -> list[int]:
    """The blocks of each call, made twice, whose results have to be these."""
    for _ in range(2):
        with host.running(host.Mode.RUN) as launches:
            for call, right in calls:
                torch.testing.assert_close(call(), right)
    return [launch.grid[0] for launch in launches]


def test_launch_code_knows_a_case_however_its_arguments_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By position or name, with no tensor where the tuned case has one, with values that are equal but not the same."""
    tuned = tuned_module(tmp_path, monkeypatch, "add", {VECTORS: {"TILE": 128}})
    x, bias = torch.randn(1000), torch.randn(1000)
    sure = x + 2 * bias
    case = [(lambda: tuned.add(x, bias), sure), (lambda: tuned.add(x, bias=bias), sure)]
    others = [
        (lambda: tuned.add(x, bias, 2.0), sure),
        (lambda: tuned.add(x, bias, 2), sure),
        (lambda: tuned.add(x, bias, plan=[1], _cache={"a": x}), sure),
        (lambda: tuned.add(x), x),
        (lambda: tuned.add(x, None), x),
    ]
    assert grids(case + others) == [8] * 2 + [16] * 5
    assert len(tuned._plans) == 7


def test_launch_code_passes_on_what_it_is_given_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A default may be what was tuned, and a decorator may give an argument of its own."""
    x, bias = torch.randn(1000), torch.randn(1000)
    tuned = tuned_module(tmp_path, monkeypatch, "sized", {VECTORS: {"SIZE": 128}})
    assert grids([(lambda: tuned.sized(x, bias), x + bias)]) == [8]
    tuned = tuned_module(tmp_path, monkeypatch, "scale", {VECTORS: {"TILE": 128}})
    assert grids([(lambda: tuned.scale(x, bias), x + 2 * bias)]) == [8]


def test_launch_code_makes_one_plan_for_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tuned_module(tmp_path, monkeypatch, "add", {VECTORS: {"TILE": 128}})
    made: list[int] = []

    def entry(number: int) -> Any:
        made.append(number)
        time.sleep(0.05)
        return lambda *_: number

    monkeypatch.setattr(tuned, "_entry", entry)
    monkeypatch.setattr(tuned, "_config", lambda *_: 7)
    x = torch.randn(1000)
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(lambda _: tuned.add(x, x), range(8))] == [7] * 8
    assert made == [7]


def test_what_tells_the_tuned_configs_apart_is_all_that_a_call_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here `x`: a call that is not tuned runs with the config of those that have such an `x`, else with the best."""
    tuned = tuned_module(tmp_path, monkeypatch, "add", {VECTORS: {"TILE": 128}, LONGER: {"TILE": 32}})
    assert tuned.TELLING == {"x": 0}
    x, bias, longer, other = torch.randn(1000), torch.randn(1000), torch.randn(4000), torch.randn(500)
    calls = [
        (lambda: tuned.add(x, None), x),  # not tuned, and the first with such an `x`
        (lambda: tuned.add(x, bias), x + 2 * bias),
        (lambda: tuned.add(x, bias, 3.0), x + 3 * bias),
        (lambda: tuned.add(longer, longer), 3 * longer),
        (lambda: tuned.add(other, other), 3 * other),
        (lambda: tuned.add(longer, bias=longer), 3 * longer),
        (lambda: tuned.add(bias=longer, x=longer), 3 * longer),
        (lambda: tuned.add(x.double()), x.double()),  # `x` of another dtype
    ]
    assert grids(calls) == [8, 8, 8, 125, 8, 125, 125, 16]
    assert len(tuned._told) == 4
    tuned._plans.clear()  # the way to a config that is told leads past them
    with host.running(host.Mode.RUN):
        tuned.add(x, bias)
    assert not tuned._plans


def test_a_call_is_told_by_nothing_that_tells_too_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table has learnt of cases that are alike in what told its first ones apart, and where it is to."""
    tuned = tuned_module(tmp_path, monkeypatch, "add", {VECTORS: {"TILE": 128}, LONGER: {"TILE": 32}})
    x, longer = torch.randn(1000), torch.randn(4000)
    cases, where = tuned._table["cases"], f"NVIDIA H200, {tuned.TOOLKIT}: "
    cases[f"{where}bias=None, x=float32[1000]"] = cases[f"{where}{LONGER}"]
    alike = [(lambda: tuned.add(x, x), 3 * x), (lambda: tuned.add(x, None), x), (lambda: tuned.add(x, x, 4.0), 5 * x)]
    assert grids(alike) == [8, 32, 16]
    assert not tuned._told
    assert grids([(lambda: tuned.add(longer, longer), 3 * longer), *alike]) == [125, 8, 32, 16]
    assert len(tuned._told) == 1
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1")
    tuned = loaded(tmp_path / "tuned_add.py")
    assert grids([(lambda: tuned.add(x, x), 3 * x), (lambda: tuned.add(longer, longer), 3 * longer)]) == [8, 125]
    assert not tuned._told


def test_what_tells_configs_apart_keeps_no_memory_of_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        f"bias=float32[1000], factor={value}, x=float32[1000]": {"TILE": tile}
        for value, tile in ((2.0, 128), (3.0, 32))
    }
    tuned = tuned_module(tmp_path, monkeypatch, "add", cases)
    assert tuned.TELLING == {"factor": 2}
    x = torch.randn(1000)
    calls = [
        (lambda factor=factor: tuned.add(x, x, factor), x + factor * x) for factor in (2.0, 3.0, 2, torch.tensor(3.0))
    ]
    assert grids(calls) == [8, 32, 16, 16]
    assert {(float, 2.0), (float, 3.0), (int, 2)} <= tuned._told.keys()
    for value in ([1], (1, x)):  # which the kernel cannot take
        with pytest.raises(TypeError, match=r"integer tensors|unsupported"):
            tuned.add(x, x, value)
    held = [one for key in tuned._told for one in key]
    assert not any(isinstance(one, torch.Tensor | tuple | list) and not isinstance(one, torch.Size) for one in held)


def test_a_call_that_is_given_otherwise_is_looked_up_by_all_of_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = tuned_module(tmp_path, monkeypatch, "add", {VECTORS: {"TILE": 128}, LONGER: {"TILE": 32}})
    x, longer = torch.randn(1000), torch.randn(4000)
    with host.running(host.Mode.RUN):
        tuned.add(x, x)
    assert tuned._told
    with pytest.raises(TypeError, match="empty_like"):  # the entry point's own error
        tuned.add(None, x)
    assert grids([(lambda: tuned.add(x=longer), longer), (lambda: tuned.add(longer), longer)]) == [125, 125]
    tuned = tuned_module(tmp_path, monkeypatch, "crossed", {VECTORS: {"TILE": 128}, LONGER: {"TILE": 32}})
    assert grids([(lambda: tuned.crossed(x, x), 3 * x), (lambda: tuned.crossed(longer, longer), 3 * longer)]) == [
        8,
        125,
    ]
    assert not tuned._told  # the decorator gives `x` and `bias` the other way round


def numbers(tuned: ModuleType, *calls: tuple[Any, ...]) -> list[int]:
    """The tile of each call's config, the calls made twice, of an entry point that gives its tile."""
    for _ in range(2):
        found = [getattr(tuned, "pair")(*call) for call in calls]  # noqa: B009
    return found


def test_a_config_is_told_by_whole_arguments_of_cases_on_the_same_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {"max_x=2, x=1": {"TILE": 128}, "max_x=9, x=3": {"TILE": 32}}
    tuned = tuned_module(tmp_path, monkeypatch, "pair", cases)
    assert tuned.TELLING == {"x": 0}
    assert numbers(tuned, (2, 7), (1, 7), (3, 7)) == [64, 128, 32]
    both = {"max_x=1, x=1": {"TILE": 128}, "max_x=1, x=2": {"TILE": 32}, "max_x=2, x=1": {"TILE": 256}}
    tuned = tuned_module(tmp_path, monkeypatch, "pair", both)
    assert tuned.TELLING == {"x": 0, "max_x": 1}
    assert numbers(tuned, (2, 2), (1, 1), (1, 2), (2, 1), (3, 1)) == [64, 128, 256, 32, 64]
    elsewhere = {f"NVIDIA B200, {tuned.TOOLKIT}: max_x=5, x=5": 1, "NVIDIA H200, other: max_x=6, x=6": 1}
    tuned = tuned_module(tmp_path, monkeypatch, "pair", both)
    tuned._table["cases"] |= elsewhere
    assert numbers(tuned, (5, 5), (6, 6), (1, 2)) == [64, 64, 256]
    monkeypatch.setattr(tuned, "REMEMBERED", 2)
    assert numbers(tuned, (7, 7), (8, 8), (9, 9), (1, 2)) == [64, 64, 64, 256]
    assert len(tuned._told) <= 2


def test_a_call_that_cannot_be_searched_runs_as_without_a_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {"max_x=2, x=1": {"TILE": 128}, "max_x=9, x=3": {"TILE": 32}}
    tuned = tuned_module(tmp_path, monkeypatch, "pair", cases)
    monkeypatch.setattr(tuned, "_search", lambda *_: None)
    assert numbers(tuned, (1, 7), (3, 7), (2, 7)) == [128, 32, 64]
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1")
    tuned._plans.clear()
    tuned._told.clear()
    assert numbers(tuned, (1, 7), (3, 7), (2, 7)) == [128, 32, 64]
    assert not tuned._told


@pytest.mark.parametrize(
    "cases",
    [
        {"bias=1, mode='q, bias=2, z', x=2": 0, "bias=1, mode='q, bias=3, z', x=2": 1},  # a string like an argument
        {"bias=1, x=float32[4]": 0, "bias=2, x=None": 1},  # not of one kind in all calls
        {"bias=1": 0, "bias=2": 1},  # not the first parameters
    ],
)
def test_what_cannot_be_told_for_sure_is_not(cases: dict[str, int]) -> None:
    assert launchcode._order(b"def f(x, bias, mode): pass", "f", [*cases]) == {}
    assert launchcode._order(b"def f(x): pass\n\ndef f(bias): pass", "f", ["bias=1"]) == {}
    assert launchcode._order(b"def f(x, bias, mode): pass", "f", ["x=1"]) == {"x": False}


def test_many_parameters_that_tell_are_found_soon() -> None:
    names = [f"p{number}" for number in range(24)]

    def case(changed: int) -> str:
        return "H200, v: " + ", ".join(f"{name}={int(changed == place)}" for place, name in enumerate(names))

    assert launchcode._telling(names, {case(number): number for number in range(-1, 24)}) == {*names}
    source = random.Random(0)
    many = {"H200, v: " + ", ".join(f"{name}={source.randrange(3)}" for name in names): one for one in range(60)}
    assert launchcode._telling(names, many) == {*names}


@pytest.mark.parametrize(
    ("tiles", "telling"),
    [
        ({(1000, 1000): 128}, ()),
        ({(1000, 1000): 128, (4000, 4000): 128}, ()),
        ({(1000, 1000): 128, (4000, 4000): 32, (500, 500): 128}, ("x",)),
        ({(1000, 1000): 128, (1000, 4000): 32}, ("bias",)),
        ({(1000, 1000): 128, (1000, 4000): 32, (4000, 1000): 32}, ("x", "bias")),
    ],
)
def test_as_few_arguments_are_asked_for_as_tell_the_configs_apart(
    tiles: dict[tuple[int, int], int], telling: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {f"bias=float32[{bias}], x=float32[{x}]": {"TILE": tile} for (x, bias), tile in tiles.items()}
    tuned = tuned_module(tmp_path, monkeypatch, "add", cases)
    assert (*getattr(tuned, "TELLING", {}),) == telling
    monkeypatch.setattr(tuned, "_entry", lambda number: lambda x, bias: number)
    for _ in range(2):
        for (x, bias), tile in tiles.items():
            assert tuned._table["configs"][tuned.add(torch.empty(x), torch.empty(bias))] == {"TILE": tile}

"""How launch code finds a case by a call's arguments, however they are given, and what it passes on."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_launchcode import KINDS, loaded, result_of, wanted_of
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


@doubled
def scale(factor, x, bias):
    return add(x, bias, factor)


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
    result = result_of(KINDS["T1"], [{}, *cases.values()], {}, "", {"add_kernel": ["out"]}).model_copy(
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
    assert tuned.TELLING == ("x",)
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
    assert tuned.TELLING == ("factor",)
    x = torch.randn(1000)
    calls = [
        (lambda factor=factor: tuned.add(x, x, factor), x + factor * x) for factor in (2.0, 3.0, 2, torch.tensor(3.0))
    ]
    assert grids(calls) == [8, 32, 16, 16]
    assert [*tuned._told] == [(float, 2.0), (float, 3.0), (int, 2)]


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
    assert getattr(tuned, "TELLING", ()) == telling
    monkeypatch.setattr(tuned, "_entry", lambda number: lambda x, bias: number)
    for _ in range(2):
        for (x, bias), tile in tiles.items():
            assert tuned._table["configs"][tuned.add(torch.empty(x), torch.empty(bias))] == {"TILE": tile}

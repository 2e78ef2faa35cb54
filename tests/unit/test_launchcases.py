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


def tuned_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, best: dict[str, int]) -> ModuleType:
    """The launch code of OPTIONAL's `entry`, whose tuned case has two vectors of 1000; others are not tuned."""
    host.install(spec_by_arch("sm_90"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    (tmp_path / "optional.py").write_bytes(OPTIONAL)
    file = TaskFile.model_validate(
        {"name": "t", "entry": f"optional:{entry}", "editable": ["optional.py"], "cases": [{"N": 1}]}
    )
    case = "bias=float32[1000], x=float32[1000]"
    result = result_of(KINDS["T1"], [{}, best], best, case, {"add_kernel": ["out"]}).model_copy(update={"best": {}})
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
    tuned = tuned_module(tmp_path, monkeypatch, "add", {"TILE": 128})
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
    tuned = tuned_module(tmp_path, monkeypatch, "sized", {"SIZE": 128})
    assert grids([(lambda: tuned.sized(x, bias), x + bias)]) == [8]
    tuned = tuned_module(tmp_path, monkeypatch, "scale", {"TILE": 128})
    assert grids([(lambda: tuned.scale(x, bias), x + 2 * bias)]) == [8]


def test_launch_code_makes_one_plan_for_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tuned_module(tmp_path, monkeypatch, "add", {"TILE": 128})
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

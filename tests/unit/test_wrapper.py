"""The tune-once wrapper of a search: it searches once a key, runs what was measured, and steps aside."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.conftest import SCALE_KERNEL
from tests.corpus import EXAMPLES, Example, operations
from tests.unit.test_corpus import _stand_in, compare, exact, inputs_of  # noqa: F401 (the fixture)
from tilewright.autotune.report import SearchResult, Tried
from tilewright.autotune.searching import Wanted
from tilewright.autotune.wrapper import wrapper_refusal, wrapper_source
from tilewright.evaluation.results import Status
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.policy import Ratio
from tilewright.session.beginning import Working
from tilewright.task import Task, TaskFile

KINDS = {
    example.covers.partition(",")[0]: example
    for example in reversed(EXAMPLES)
    if example.covers[:1] == "T" and example.run.__module__ != operations.__name__  # whose kernels lie in no file
}


def result_of(space: list[dict[str, Any]], best: dict[str, Any]) -> SearchResult:
    speedup = Ratio(speedup=1.5, low=1.4, high=1.6)
    tried = [Tried(config=config, place="best" if config == best else "measured", speedup=speedup) for config in space]
    return SearchResult(
        status=Status.PASSED, task="t", backend="cpu", device="NVIDIA H200 (modelled)", tried=tried, best=best,
        cases=["case"], best_by_case={"case": best}, checked=space,
    )  # fmt: skip


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wanted_of(task: Task, source: bytes) -> Wanted:
    name = f"{task.module.replace('.', '/')}.py"
    return Wanted(Working(task, PurePosixPath(), {name: source}, head="", committed={}), {}, None)


def wrapped(example: Example, folder: Path, space: Sequence[dict[str, Any]]) -> ModuleType:
    """The wrapper of an example of the corpus, imported; the last config of `space` is the best."""
    module, function = example.run.__module__, example.run.__name__
    source = Path(sys.modules[module].__file__ or "").read_bytes()
    file = TaskFile.model_validate(
        {"name": "t", "entry": f"{module}:{function}", "editable": ["kernel.py"], "cases": [{"N": 1}]}
    )
    wanted, result = wanted_of(Task(file, folder), source), result_of([*space], space[-1])
    assert wrapper_refusal(wanted, result) == ""
    path = folder / f"tuned_{module.rpartition('.')[2]}.py"
    path.write_text(wrapper_source(wanted, result, source))
    return loaded(path)


def occupancy(launch: host.Launch) -> int | None:
    found: int | None = launch.kernel._compiler_options.hints_by_target()["default"]["occupancy"]
    return found


def choose(tuned: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int) -> list[list[int]]:
    """Have searches end with this config, after trials that launch each; gives the configs of each search."""
    searches: list[list[int]] = []

    def search(space: list[int], stream: Any, grid: Any, kernel: Any, arguments: Any, quiet: bool) -> Any:
        searches.append(space)
        for trial in space:
            ct.launch(stream, grid(trial), kernel(trial), arguments(trial))
        return SimpleNamespace(best=SimpleNamespace(config=number))

    monkeypatch.setattr(tuned, "exhaustive_search", search)
    return searches


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_wrapper_of_every_kind_of_kernel_searches_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = KINDS[kind]
    host.install(spec_by_arch(example.arch))
    tuned = wrapped(example, tmp_path, [{}, {"occupancy": 2}])
    searches = choose(tuned, monkeypatch, 1)
    kernels = []
    for _ in range(3):
        inputs = inputs_of(example, 0)
        expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
        with host.running(host.Mode.RUN) as launches:
            compare(example, getattr(tuned, example.run.__name__)(**inputs), expected)
        kernels.append(launches[-1].kernel)
        assert occupancy(launches[-1]) == 2
    assert len(searches) <= 1
    assert len({id(kernel) for kernel in kernels}) == 1, "a kernel made anew in each call is compiled anew in each"


def test_each_key_is_searched_and_floats_are_no_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = doubling(tmp_path, monkeypatch, [{}, {"TILE": 128}])
    searches = choose(tuned, monkeypatch, 1)
    with host.running(host.Mode.RUN):
        for rows in (1000, 1000, 500):
            for factor in (2.0, 3.0):
                x = torch.randn(rows)
                torch.testing.assert_close(tuned.double(x, factor=factor), x * 2)
    assert searches == [[0, 1], [0, 1]]


def test_a_search_leaves_the_callers_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of one tensor stay views of one in it."""
    source = DOUBLING.replace(b"    out =", b"    assert x.data_ptr() == many[0].data_ptr()\n    x.add_(1)\n    out =")
    tuned = doubling(tmp_path, monkeypatch, [{}, {"TILE": 128}], source)
    searches = choose(tuned, monkeypatch, 1)
    whole = torch.zeros(2000)
    with host.running(host.Mode.RUN):
        tuned.double(whole[::2], [whole[::2], {"x": whole}])
    assert searches == [[0, 1]]
    assert whole[::2].eq(1).all()
    assert whole[1::2].eq(0).all()


@pytest.mark.parametrize("ends", ["by a second launch", "elsewhere"])
def test_a_call_that_is_not_one_launch_gets_the_best_config(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = next(line for line in DOUBLING.splitlines(keepends=True) if b"ct.launch" in line)
    source = DOUBLING.replace(launch, 2 * launch)
    if ends == "elsewhere":
        source = DOUBLING.replace(b"import torch\n", b"import torch\nfrom cuda.tile import launch\n")
        source = source.replace(b"ct.launch", b"launch")
    tuned = doubling(tmp_path, monkeypatch, [{}, {"TILE": 16}, {"TILE": 128}], source)
    searches = choose(tuned, monkeypatch, 0)
    x = torch.randn(1000)
    with host.running(host.Mode.RUN) as launches:
        torch.testing.assert_close(tuned.double(x), x * 2)
        launches.clear()
        tuned.double(x)
    assert not searches
    assert {launch.grid[0] for launch in launches} == {8}


def test_a_config_that_does_not_suit_a_key_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = DOUBLING.replace(b"    out =", b"    assert x.shape[0] % TILE == 0\n    out =")
    tuned = doubling(tmp_path, monkeypatch, [{}, {"TILE": 128}], source)
    searches = choose(tuned, monkeypatch, 0)
    with host.running(host.Mode.RUN):
        with pytest.warns(UserWarning, match="config 1 fails"):
            tuned.double(torch.zeros(64 * 5))
        with pytest.warns(UserWarning), pytest.raises(AssertionError):  # the entry point's own error
            tuned.double(torch.zeros(65))
    assert searches == [[0]]


def test_a_wrapper_steps_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = doubling(tmp_path, monkeypatch, [{}, {"TILE": 128}])
    searches = choose(tuned, monkeypatch, 1)
    x = torch.zeros(1000)
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    with host.running(host.Mode.RUN) as launches:
        tuned.double(x)
    monkeypatch.delenv("DISABLE_AUTOTUNE")
    path = tmp_path / "doubling.py"
    path.write_bytes(DOUBLING + b"# edited\n")
    edited = loaded(tmp_path / "tuned_doubling.py")
    with host.running(host.Mode.RUN) as more, pytest.warns(UserWarning, match="edited after it was tuned"):
        edited.double(x)
    assert [launch.grid[0] for launch in (*launches, *more)] == [16, 16]
    assert not searches


DOUBLING = b"""
import cuda.tile as ct
import torch

TILE = 64


@ct.kernel
def double_kernel(x, out, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block,), tile=ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * 2)


def double(x, many=(), factor=1.0):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), double_kernel, (x, out, TILE))
    return out
"""


def doubling(
    folder: Path, monkeypatch: pytest.MonkeyPatch, space: list[dict[str, Any]], source: bytes = DOUBLING
) -> ModuleType:
    """The wrapper of `double`, imported."""
    host.install(spec_by_arch("sm_90"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "doubling", raising=False)
    (folder / "doubling.py").write_bytes(source)
    file = TaskFile.model_validate(
        {"name": "t", "entry": "doubling:double", "editable": ["doubling.py"], "cases": [{"N": 1}]}
    )
    text = wrapper_source(wanted_of(Task(file, folder), source), result_of(space, space[-1]), source)
    (folder / "tuned_doubling.py").write_text(text)
    return loaded(folder / "tuned_doubling.py")


TRICKY = b"""
from __future__ import annotations

from dataclasses import dataclass

import cuda.tile as ct
import torch

TILE = 64
STEP = TILE * 2
OCCUPANCY = 1


@dataclass
class Shape:
    rows: int


@ct.kernel(occupancy=OCCUPANCY)
def step_kernel(x, out, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block,), tile=ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * 2)


def double(x, sizes=(), tile=TILE):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 2 * tile),), step_kernel, (x, out, STEP))
    return out
"""


@pytest.mark.parametrize("applied", [False, True])
def test_a_wrapper_runs_the_source_that_was_measured(
    applied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Constants derived from a parameter, defaults and decorators that name one, dataclasses, and lists as arguments;
    around the source as it was searched, and with the best config applied to it."""
    host.install(spec_by_arch("sm_90"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "tricky", raising=False)
    file = TaskFile.model_validate(
        {"name": "t", "entry": "tricky:double", "editable": ["tricky.py"], "cases": [{"N": 1}]}
    )
    wanted, best = wanted_of(Task(file, tmp_path), TRICKY), {"TILE": 128, "OCCUPANCY": 4}
    source = wanted.found.knobs().variant(best)["tricky.py"] if applied else TRICKY
    (tmp_path / "tricky.py").write_bytes(source)
    (tmp_path / "tuned_tricky.py").write_text(wrapper_source(wanted, result_of([{}, best], best), source))
    tuned = loaded(tmp_path / "tuned_tricky.py")
    x = torch.randn(1000)
    for number, tile in ((1, 128), (0, 64)):
        choose(tuned, monkeypatch, number)
        tuned._tuned.clear()
        with host.running(host.Mode.RUN):  # searches
            tuned.double(x, [1, x])
            tuned.double(x, (), tile)
        with host.running(host.Mode.RUN) as launches:
            torch.testing.assert_close(tuned.double(x, [1, x]), x * 2)
            torch.testing.assert_close(tuned.double(x, (), tile), x * 2)
        assert [launch.grid[0] for launch in launches] == [512 // tile] * 2
        assert occupancy(launches[0]) == (4 if number else 1)


@pytest.mark.parametrize(
    ("files", "checked", "words"),
    [
        ({"kernels.py": SCALE_KERNEL.encode()}, {"TILE": 4}, "is not editable"),
        (
            {"ops.py": b"def f(x): pass", "kernels.py": SCALE_KERNEL.encode()},
            {"TILE": 4},
            "TILE is set in another module",
        ),
        (
            {"ops.py": b"def f(x): pass", "kernels.py": SCALE_KERNEL.encode()},
            {"occupancy": 4},
            "lies in another module",
        ),
    ],
)
def test_a_wrapper_that_would_not_be_what_was_measured_is_not_written(
    files: dict[str, bytes], checked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = TaskFile.model_validate({"name": "t", "entry": "ops:f", "editable": list(files), "cases": [{"N": 1}]})
    committed = files | {"ops.py": b"def f(x): pass"}
    found = Working(Task(file, tmp_path), PurePosixPath(), files, head="", committed=committed)
    result = result_of([{}, checked], checked)
    assert words in wrapper_refusal(Wanted(found, {}, None), result)


TWO_KERNELS = b"""
import cuda.tile as ct

CHUNK = 64

@ct.kernel(occupancy=4)
def first(a): pass

@ct.kernel
def second(a): pass

@ct.kernel(occupancy=8)
def third(a): pass

def f(a):
    for kernel in (first, second, third):
        ct.launch(0, (1,), kernel, (a,))
"""


def test_as_it_is_means_every_kernel_with_its_own_hints(tmp_path: Path) -> None:
    file = TaskFile.model_validate({"name": "t", "entry": "ops:f", "editable": ["ops.py"], "cases": [{"N": 1}]})
    wanted = wanted_of(Task(file, tmp_path), TWO_KERNELS)
    best: dict[str, Any] = {"occupancy": 2, "CHUNK": 32}
    sources = [TWO_KERNELS, wanted.found.knobs().variant(best)["ops.py"]]
    assert sources[1].count(b"occupancy=2") == 3
    for source in sources:  # from either, each config's edits lead to what was measured
        text = wrapper_source(wanted, result_of([{}, best], best), source)
        configs = ast.literal_eval(text[text.index("CONFIGS = ") + 10 : text.index("BEST = ")])
        for edits, expected in zip(configs, sources, strict=True):
            made = source
            for start, end, new in sorted(edits, reverse=True):
                made = made[:start] + new.encode() + made[end:]
            assert made.replace(b"(occupancy=None)", b"") == expected

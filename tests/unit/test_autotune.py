"""The parts of the search: knobs in a source, spaces, what is pruned, the race, and the launch code."""

from __future__ import annotations

import importlib.util
import json
import math
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.conftest import SCALE_KERNEL
from tests.corpus import EXAMPLES, Example
from tests.unit.test_corpus import _stand_in, compare, exact, inputs_of  # noqa: F401 (the fixture)
from tests.unit.test_model import profile
from tilewright.autotune import launchcode
from tilewright.autotune.knobs import Knobs, SpaceError, parse_values
from tilewright.autotune.plots import draw
from tilewright.autotune.pruning import MOST_RACED, pruned
from tilewright.autotune.report import SearchResult, Speedup, Tried, geometric
from tilewright.autotune.searching import Wanted
from tilewright.autotune.space import Kind, declared, kind_of, proposed
from tilewright.autotune.tuner import _ended
from tilewright.evaluation import pool
from tilewright.evaluation.racing import ORIGINAL, ROUNDS, halve
from tilewright.evaluation.results import Status, Surveyed
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.roofline.model import CallProfile
from tilewright.session.beginning import Working
from tilewright.task import Task, TaskFile

SOURCE = b"""
import cuda.tile as ct
from cuda.tile import kernel

TILE_M, TILE_N = 128, 64  # \xc3\xa9
TILE_K: int = 32
GROUP = -1
SCALE = 0.5
NAME = "x"
TWICE = 1
TWICE = 2


@ct.kernel
def one(a, T: ct.Constant[int]):
    pass


@kernel(occupancy=2, num_ctas=ct.ByTarget(sm_100=2))
def two(a):
    pass


def entry(a, *, stages=3, fast=True):
    TILE_M = 1
    return a
"""


def knobs(source: bytes = SOURCE) -> Knobs:
    return Knobs({"task/kernel.py": source, "notes.txt": b"TILE_Z = 1"}, "task/kernel.py", "entry")


def test_knobs_are_what_the_source_gives_a_literal() -> None:
    found = knobs()
    assert found.constants == {
        "TILE_M": 128, "TILE_N": 64, "TILE_K": 32, "GROUP": -1, "SCALE": 0.5, "NAME": "x", "stages": 3, "fast": True,
    }  # fmt: skip
    assert [(kernel.name, kernel.hints) for kernel in found.kernels] == [("one", {}), ("two", {"occupancy": 2})]
    assert found.original(["TILE_M", "occupancy", "num_ctas"]) == {"TILE_M": 128}


def test_a_variant_is_the_source_with_these_values_and_nothing_else() -> None:
    made = knobs().variant(
        {"TILE_M": 64, "TILE_K": 16, "GROUP": 8, "fast": False, "occupancy": 4, "num_worker_warps": 8}
    )
    text = made["task/kernel.py"].decode()
    assert list(made) == ["task/kernel.py"]
    expected = (
        SOURCE.decode()
        .replace("= 128, 64", "= 64, 64")
        .replace("int = 32", "int = 16")
        .replace("GROUP = -1", "GROUP = 8")
        .replace("fast=True", "fast=False")
        .replace("@ct.kernel\n", "@ct.kernel(occupancy=4, num_worker_warps=8)\n")
        .replace(
            "(occupancy=2, num_ctas=ct.ByTarget(sm_100=2))",
            "(occupancy=4, num_ctas=ct.ByTarget(sm_100=2), num_worker_warps=8)",
        )
    )
    assert text == expected
    assert knobs().variant({}) == {}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("TILE_Q", [1], "no knob 'TILE_Q'"),
        ("TWICE", [1], "no knob 'TWICE'"),
        ("TILE_M", ["64"], "type int"),
        ("fast", [1], "type bool"),
        ("occupancy", [33], "1 to 32"),
        ("num_ctas", [3], "1, 2, 4, 8 or 16"),
        ("num_worker_warps", [True], "4 or 8"),
    ],
)
def test_values_that_a_knob_cannot_have_are_refused(name: str, values: list[Any], words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        declared(knobs(), {name: values})


def test_a_declared_space_is_the_product_after_the_original() -> None:
    space = declared(knobs(), parse_values(["TILE_M=64,128", "occupancy=1,2", "TILE_M=64"]))
    assert space.configs[0] == {}
    assert {"TILE_M": 64, "occupancy": 1} in space.configs
    assert len(space.configs) == 5
    assert not space.warning
    assert "30 is a good limit" in declared(knobs(), {"TILE_M": [2**n for n in range(1, 40)]}).warning
    with pytest.raises(SpaceError, match="more than a search takes"):
        declared(knobs(), {"TILE_M": list(range(1, 30)), "TILE_N": list(range(1, 30))})
    with pytest.raises(SpaceError, match="NAME=1,2,4"):
        parse_values(["TILE_M"])


def test_the_original_is_not_tried_twice() -> None:
    space = declared(knobs(SCALE_KERNEL.encode()), {"TILE": [32, 64]})
    assert space.configs == [{}, {"TILE": 32}]


@pytest.mark.parametrize("kind", list(Kind))
def test_a_proposed_space_is_small_and_knows_its_kernel(kind: Kind) -> None:
    space = proposed(knobs(), kind, "sm_90")
    assert space.configs[0] == {}
    assert 4 <= len(space.configs) <= 30
    assert all(
        set(config) <= {"TILE_M", "TILE_N", "TILE_K", "occupancy", "num_ctas", "num_worker_warps"}
        for config in space.configs
    )
    tiled = any("TILE_M" in config and "TILE_N" in config for config in space.configs)
    assert tiled == (kind not in (Kind.ELEMENTWISE, Kind.IN_PLACE))
    assert not any("num_ctas" in config for config in proposed(knobs(), kind, "sm_80").configs)
    for config in space.configs:
        knobs().variant(config)


def test_nothing_to_search_is_said() -> None:
    with pytest.raises(SpaceError, match="nothing to search"):
        proposed(knobs(b"def entry(x):\n    return x\n"), Kind.ELEMENTWISE, "sm_90")


def call(**changes: Any) -> CallProfile:
    return CallProfile(launches=[profile(**changes)])


def test_what_a_kernel_is_taken_for() -> None:
    products = {"matrix_flops": {"bfloat16": 1e8}}
    assert kind_of(call(), [], {"bfloat16"}, 132) is Kind.ELEMENTWISE
    assert kind_of(call(), ["x"], {"bfloat16"}, 132) is Kind.IN_PLACE
    assert kind_of(call(**products), [], {"bfloat16"}, 132) is Kind.MATMUL
    assert kind_of(call(**products, blocks=264), [], {"bfloat16"}, 132) is Kind.PERSISTENT
    assert kind_of(call(**products, special_functions=1e8 / 512), [], {"bfloat16"}, 132) is Kind.ATTENTION
    assert kind_of(call(**products, special_functions=1e8 / 8192), [], {"bfloat16"}, 132) is Kind.MATMUL
    assert kind_of(call(**products), [], {"float8_e4m3fn"}, 132) is Kind.FP8
    assert kind_of(call(**products), [], {"int32", "bfloat16"}, 132) is Kind.GROUPED


def surveyed(ms: float, **changes: Any) -> Surveyed:
    return Surveyed(profiles=[call(**changes)], ms=[ms], limits=["spills"])


def test_what_is_pruned_has_a_reason_and_the_original_never_is() -> None:
    found = pruned([surveyed(9.0), surveyed(1.0), surveyed(2.4), surveyed(3.1, spill_bytes=512, ctas_per_sm=1)])
    assert list(found) == [3]
    assert found[3] == (
        "modelled at 3.1 times the best: mostly spills; spills 512 bytes a thread, one CTA a SM, limited by registers"
    )
    many = pruned([surveyed(9.0), *(surveyed(1.0 + number / 100) for number in range(60))])
    assert len(many) == 60 - MOST_RACED
    assert ORIGINAL not in many
    assert "49th of 60" in many[MOST_RACED + 1]
    failed = Surveyed(status=Status.COMPILE_ERROR, message="no")
    assert pruned([surveyed(1.0), failed]) == {}


def race(true_ms: list[float], noise: float, seed: int) -> tuple[list[float], int]:
    """The speedups that a race finds, and the blocks it takes."""
    source = random.Random(seed)
    blocks = [0]

    def timed(arm: int) -> float:
        blocks[0] += 1
        return true_ms[arm] * math.exp(source.gauss(0, noise))

    lanes = halve(len(true_ms), timed, source)
    return [lane.interval.mean for lane in lanes], blocks[0]


def test_a_race_finds_the_best_in_a_fraction_of_the_blocks() -> None:
    shuffled = random.Random(5)
    for seed in range(40):
        ms = [1.0 + 0.03 * number for number in range(12)]
        shuffled.shuffle(ms)
        found, blocks = race(ms, noise=0.01, seed=seed)
        best = max(range(12), key=lambda arm: found[arm])
        assert ms[best] <= min(ms) * 1.03 + 1e-9, seed
        assert blocks < 12 * ROUNDS[-1] * 0.6


def test_a_race_of_equals_drops_none_that_it_cannot_tell_apart() -> None:
    found, _ = race([1.0] * 6, noise=0.02, seed=1)
    assert all(abs(value) < 0.05 for value in found)
    clear, blocks = race([1.0, 5.0, 6.0, 7.0], noise=0.01, seed=1)
    assert max(range(4), key=lambda arm: clear[arm]) == ORIGINAL
    assert blocks == 4 * ROUNDS[0]


def test_the_mean_of_cases_is_geometric() -> None:
    mean = geometric([Speedup(value=2.0, low=1.8, high=2.2), Speedup(value=0.5, low=0.45, high=0.55)])
    assert mean.value == pytest.approx(1.0)
    assert 0.8 < mean.low < 1.0 < mean.high < 1.2


KINDS = {
    example.covers.partition(",")[0]: example
    for example in reversed(EXAMPLES)
    if example.covers[:1] == "T" and example.covers[1:2].isdigit()
}


def result_of(
    example: Example, space: list[dict[str, Any]], best: dict[str, Any], calls: str, written: Any
) -> SearchResult:
    speedup = Speedup(value=1.5, low=1.4, high=1.6)
    tried = [Tried(config=config, place="best" if config == best else "measured", speedup=speedup) for config in space]
    return SearchResult(
        status=Status.PASSED, task="t", backend="cpu", device="NVIDIA H200 (modelled)", tried=tried, best=best,
        cases=["case"], best_by_case={"case": best}, calls={"case": calls}, written=written, checked=space,
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


def generated(
    example: Example, folder: Path, hints: dict[str, int], others: dict[str, SearchResult] | None = None
) -> tuple[ModuleType, Path]:
    """The launch code for an example of the corpus, imported, and its table."""
    module, function = example.run.__module__, example.run.__name__
    source = Path(sys.modules[module].__file__ or "")
    file = TaskFile.model_validate(
        {"name": "t", "entry": f"{module}:{function}", "editable": ["kernel.py"], "cases": [{"N": 1}]}
    )
    wanted = wanted_of(Task(file, folder), source.read_bytes())
    with host.running(host.Mode.RUN) as launches:
        example.run(**inputs_of(example, 0))
    written = {launch.name: [launch.names[place] for place in launch.counts.stored] for launch in launches}
    shown = {name: "int8[1]" if isinstance(one, torch.Tensor) else "..." for name, one in inputs_of(example, 0).items()}
    calls = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))  # not the inputs' case
    result = result_of(example, [{}, dict(hints)], dict(hints), calls, written)
    assert launchcode.why_not(wanted, result) == ""
    code, table = launchcode.write(wanted, result, others or {})
    path = folder / f"tuned_{module.rpartition('.')[2]}.py"
    path.write_text(code)
    path.with_suffix(".json").write_text(table)
    return loaded(path), path.with_suffix(".json")


@pytest.mark.parametrize("kind", [f"T{number}" for number in range(1, 10)])
def test_launch_code_of_every_kind_of_kernel_runs(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = KINDS[kind]
    host.install(spec_by_arch(example.arch))
    tuned, table = generated(example, tmp_path, {"occupancy": 2})
    entry = getattr(tuned, example.run.__name__)
    for miss in ("0", "1"):  # from the table, then with a search of what it lacks
        monkeypatch.setenv("AUTOTUNE_ON_MISS", miss)
        tuned._plans.clear()
        inputs = inputs_of(example, 0)
        expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
        with host.running(host.Mode.RUN) as launches:
            compare(example, entry(**inputs), expected)
        assert launches
        hints = launches[-1].kernel._compiler_options.hints_by_target().get("default", {})
        searched = len(json.loads(table.read_text())["cases"]) > 1
        assert (hints.get("occupancy") == 2) == (not searched)


def test_launch_code_tunes_once_and_makes_no_kernel_on_the_hot_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    tuned, _ = generated(example, tmp_path, {"occupancy": 2})
    inputs = inputs_of(example, 0)
    kernels = []
    with host.running(host.Mode.RUN) as launches:
        for _ in range(3):
            tuned.matmul(**inputs)
            kernels.append(launches[-1].kernel)
    assert len({id(kernel) for kernel in kernels}) == 1
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    tuned._plans.clear()
    with host.running(host.Mode.RUN) as launches:
        tuned.matmul(**inputs)
    assert launches[-1].kernel._compiler_options.hints_by_target()["default"]["occupancy"] is None


def test_a_search_leaves_the_callers_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = KINDS["T2"]
    host.install(spec_by_arch("sm_90"))
    tuned, _ = generated(example, tmp_path, {"occupancy": 2})
    seen = []

    def search(space: Any, stream: Any, grid_fn: Any, kernel: Any, args_fn: Any, **_: Any) -> Any:
        for number in space:
            for _ in range(3):
                ct.launch(stream, grid_fn(number), kernel(number), args_fn(number))
            seen.append(number)
        return type("Found", (), {"best": type("Best", (), {"config": 1})})

    tuned.exhaustive_search = search
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1")
    inputs = inputs_of(example, 0)
    expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
    with host.running(host.Mode.RUN):
        compare(example, getattr(tuned, example.run.__name__)(**inputs), expected)
    assert seen == [0, 1]


def test_launch_code_uses_no_config_for_another_source(tmp_path: Path) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    _, table = generated(example, tmp_path, {"occupancy": 2})
    content = json.loads(table.read_text())
    assert len(content["edits"]) == 2  # of the source as it was searched, and with the best config applied
    table.write_text(json.dumps(content | {"edits": {"0" * 64: []}}))
    with pytest.warns(UserWarning, match="is not the source"):
        again = loaded(table.with_suffix(".py"))
    with host.running(host.Mode.RUN) as launches:
        again.matmul(**inputs_of(example, 0))
    assert launches[-1].kernel._compiler_options.hints_by_target()["default"]["occupancy"] is None


def test_a_picture_is_drawn_of_any_search(tmp_path: Path) -> None:
    resources = profile().resources
    speedup = Speedup(value=1.2, low=1.1, high=1.3)
    one = Tried(config={}, place="best", speedup=speedup, resources=resources)
    result = result_of(KINDS["T3"], [{}], {}, "", {}).model_copy(update={"tried": [one]})
    for tried in ([one], [one, one.model_copy(update={"config": {"A": "x", "B": 2}, "resources": None})]):
        draw(result.model_copy(update={"tried": tried}), tmp_path / "picture.png")
        assert (tmp_path / "picture.png").read_bytes()[:4] == b"\x89PNG"


def test_hints_of_other_architectures_go_by_target(tmp_path: Path) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    base = result_of(example, [{}], {}, "a=1", {})
    others = {
        "sm_100": base.model_copy(update={"device": "NVIDIA B200 (modelled)", "best": {"occupancy": 4}}),
        "sm_120": base.model_copy(update={"device": "X", "best": {"occupancy": 8, "M": 64}}),
    }
    tuned, table = generated(example, tmp_path, {"occupancy": 2}, others)
    assert tuned._table["configs"][tuned._table["best"]] == {"occupancy": {"default": 2, "sm_100": 4}}
    assert "NVIDIA B200: a=1" in json.loads(table.read_text())["cases"]
    with host.running(host.Mode.RUN) as launches:
        tuned.matmul(**inputs_of(example, 0))
    hints = launches[-1].kernel._compiler_options.hints_by_target()
    assert (hints["default"]["occupancy"], hints["sm_100"]["occupancy"]) == (2, 4)


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


def test_launch_code_runs_the_source_that_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants derived from a knob, defaults and decorators that name one, dataclasses, and lists as arguments."""
    host.install(spec_by_arch("sm_90"))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "tricky.py").write_bytes(TRICKY)
    file = TaskFile.model_validate(
        {"name": "t", "entry": "tricky:double", "editable": ["tricky.py"], "cases": [{"N": 1}]}
    )
    wanted = wanted_of(Task(file, tmp_path), TRICKY)
    best = {"TILE": 128, "OCCUPANCY": 4}
    result = result_of(KINDS["T1"], [{}, best], best, "", {"step_kernel": ["out"]})
    code, table = launchcode.write(wanted, result, {})
    (tmp_path / "tuned_tricky.py").write_text(code)
    (tmp_path / "tuned_tricky.json").write_text(table)
    for _ in range(2):  # with the source as it was searched, and with the best config applied to it
        tuned = loaded(tmp_path / "tuned_tricky.py")
        x = torch.randn(1000)
        with host.running(host.Mode.RUN) as launches:
            torch.testing.assert_close(tuned.double(x, [1, x]), x * 2)
            torch.testing.assert_close(tuned.double(x, (), 128), x * 2)
            torch.testing.assert_close(tuned.double(x, tile=128), x * 2)
        assert [launch.grid[0] for launch in launches] == [4] * 3
        assert launches[0].kernel._compiler_options.hints_by_target()["default"]["occupancy"] == 4
        (tmp_path / "tricky.py").write_bytes(wanted.knobs().variant(best)["tricky.py"])


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


@pytest.mark.parametrize(
    ("files", "checked", "words"),
    [
        ({"kernels.py": SCALE_KERNEL.encode()}, {}, "is not editable"),
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
def test_launch_code_that_would_not_be_what_was_measured_is_not_written(
    files: dict[str, bytes], checked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = TaskFile.model_validate({"name": "t", "entry": "ops:f", "editable": list(files), "cases": [{"N": 1}]})
    committed = files | {"ops.py": b"def f(x): pass"}
    found = Working(Task(file, tmp_path), PurePosixPath(), files, head="", committed=committed)
    result = result_of(KINDS["T1"], [{}, checked], checked, "", {})
    assert words in launchcode.why_not(Wanted(found, {}, None), result)


def test_a_config_that_leaves_work_out_sets_no_bar() -> None:
    wrong = surveyed(0.01).model_copy(update={"short": "its kernels move 1 MB, and 9 MB have to be read"})
    assert pruned([surveyed(1.0), surveyed(0.6), surveyed(0.7), wrong]) == {}
    failed = wrong.short_failed()
    assert failed.status is Status.TAMPERED
    assert "9 MB" in failed.message


def test_a_search_that_ran_out_of_time_does_not_blame_the_candidate() -> None:
    prefix = "the candidate fails as it is: "
    sampled = f"no answer within 45 s {pool._DOING['profile']}"
    message, fix = _ended(Status.TIMEOUT, prefix + sampled)
    assert message == f"the model, which runs a sample of each case on this CPU, ran out of time: {sampled}"
    assert "says nothing against the candidate" in fix
    message, fix = _ended(Status.TIMEOUT, f"{prefix}no answer within 45 s {pool._DOING['compile']}")
    assert message == "no answer within 45 s while kernels were compiled"
    assert "run_correctness" not in fix
    assert _ended(Status.VOID, "a worker could not start")[1].endswith("call autotune again")
    wrong = f"{prefix}out of bounds"
    assert _ended(Status.OUT_OF_BOUNDS, wrong) == (wrong, "make the candidate pass run_correctness first")

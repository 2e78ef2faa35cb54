"""The launch code of a search: a case is found, run as it was measured, and searched once where it may be."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.conftest import SCALE_KERNEL
from tests.corpus import EXAMPLES, Example
from tests.unit.test_corpus import _stand_in, compare, exact, inputs_of  # noqa: F401 (the fixture)
from tilewright.autotune import launchcode
from tilewright.autotune.report import SearchResult, Speedup, Tried
from tilewright.autotune.searching import Wanted
from tilewright.evaluation.results import Status
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.session.beginning import Working
from tilewright.task import Task, TaskFile

TOOLKIT = f"cuda-tile {version('cuda-tile')}, tileiras {version('nvidia-cuda-tileiras')}"
KINDS = {
    example.covers.partition(",")[0]: example
    for example in reversed(EXAMPLES)
    if example.covers[:1] == "T" and example.covers[1:2].isdigit()
}


def result_of(space: list[dict[str, Any]], best: dict[str, Any], calls: str, launches: int = 1) -> SearchResult:
    speedup = Speedup(value=1.5, low=1.4, high=1.6)
    tried = [Tried(config=config, place="best" if config == best else "measured", speedup=speedup) for config in space]
    return SearchResult(
        status=Status.PASSED, task="t", backend="cpu", device="NVIDIA H200 (modelled)", tried=tried, best=best,
        cases=["case"], best_by_case={"case": best}, calls={"case": calls}, launches=launches, checked=space,
        toolkit=TOOLKIT,
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
    example: Example,
    folder: Path,
    hints: dict[str, int],
    others: dict[str, SearchResult] | None = None,
    several: bool = False,
) -> tuple[ModuleType, Path]:
    """The launch code for an example of the corpus, imported, and its table; `several`: of two cases that differ in
    the first tensor and in their configs."""
    module, function = example.run.__module__, example.run.__name__
    source = Path(sys.modules[module].__file__ or "")
    file = TaskFile.model_validate(
        {"name": "t", "entry": f"{module}:{function}", "editable": ["kernel.py"], "cases": [{"N": 1}]}
    )
    wanted = wanted_of(Task(file, folder), source.read_bytes())
    with host.running(host.Mode.RUN) as launches:
        example.run(**inputs_of(example, 0))
    shown = {name: "int8[1]" if isinstance(one, torch.Tensor) else "..." for name, one in inputs_of(example, 0).items()}
    calls = ", ".join(f"{name}={shown[name]}" for name in sorted(shown))  # not the inputs' case
    result = result_of([{}, dict(hints)], dict(hints), calls, len(launches))
    if several:
        first = next(name for name in inspect.signature(example.run).parameters if shown.get(name) == "int8[1]")
        result.calls["other"] = ", ".join(
            f"{name}={shown[name] if name != first else 'int8[2]'}" for name in sorted(shown)
        )
        result.best_by_case["other"] = {}
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
    tuned, table = generated(example, tmp_path, {"occupancy": 2})
    inputs = inputs_of(example, 0)
    kernels = []
    with host.running(host.Mode.RUN) as launches:
        for _ in range(3):
            tuned.matmul(**inputs)
            kernels.append(launches[-1].kernel)
    assert len({id(kernel) for kernel in kernels}) == 1
    monkeypatch.setenv("DISABLE_AUTOTUNE", "1")
    tuned = loaded(table.with_suffix(".py"))
    with host.running(host.Mode.RUN) as launches:
        tuned.matmul(**inputs)
    assert launches[-1].kernel._compiler_options.hints_by_target()["default"]["occupancy"] is None


@pytest.mark.parametrize("configs", ["one", "several", "searched"])
def test_launch_code_looks_nothing_up_where_all_cases_have_one_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configs: str
) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    _, table = generated(example, tmp_path, {"occupancy": 2})
    content = json.loads(table.read_text())
    if configs == "several":
        table.write_text(
            json.dumps(content | {"cases": content["cases"] | {f"NVIDIA H200, {TOOLKIT}: another": 1}, "best": 0})
        )
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1" if configs == "searched" else "0")
    tuned = loaded(table.with_suffix(".py"))
    inputs = inputs_of(example, 0)
    for _ in range(2):
        expected = example.reference(**{name: exact(value) for name, value in inputs.items()})
        with host.running(host.Mode.RUN):
            compare(example, tuned.matmul(**inputs), expected)
        inputs = {name: value[:32] if name == "a" else value for name, value in inputs.items()}  # another case
    assert len(tuned._plans) == (1 if configs == "one" else 2)


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
    assert sorted(seen) == [0, 1]


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


def test_launch_code_looks_cases_up_anew_under_another_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    _, table = generated(example, tmp_path, {"occupancy": 2})
    older = table.read_text().replace(TOOLKIT, "cuda-tile 1.0.0, tileiras 13.0")
    assert older.count("13.0") == 2  # what it was tuned with, and the case
    table.write_text(older)
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1")
    with pytest.warns(UserWarning, match=r"was tuned with cuda-tile 1\.0\.0, tileiras 13\.0, and here is .*: tune it"):
        again = loaded(table.with_suffix(".py"))
    with host.running(host.Mode.RUN):
        again.matmul(**inputs_of(example, 0))
    (before, after) = json.loads(table.read_text())["cases"]
    assert before.startswith("NVIDIA H200, cuda-tile 1.0.0, tileiras 13.0: ")
    assert after.startswith(f"NVIDIA H200, {TOOLKIT}: ")


def test_hints_of_other_architectures_go_by_target(tmp_path: Path) -> None:
    example = KINDS["T3"]
    host.install(spec_by_arch("sm_90"))
    base = result_of([{}], {}, "a=1")
    others = {
        "sm_100": base.model_copy(update={"device": "NVIDIA B200 (modelled)", "best": {"occupancy": 4}}),
        "sm_120": base.model_copy(update={"device": "X", "best": {"occupancy": 8, "M": 64}}),
    }
    tuned, table = generated(example, tmp_path, {"occupancy": 2}, others)
    assert tuned._table["configs"][tuned._table["best"]] == {"occupancy": {"default": 2, "sm_100": 4}}
    assert tuned.TOOLKIT == TOOLKIT
    assert f"NVIDIA B200, {TOOLKIT}: a=1" in json.loads(table.read_text())["cases"]
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
    result = result_of([{}, best], best, "")
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
def test_launch_code_that_would_not_be_what_was_measured_is_not_written(
    files: dict[str, bytes], checked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    file = TaskFile.model_validate({"name": "t", "entry": "ops:f", "editable": list(files), "cases": [{"N": 1}]})
    committed = files | {"ops.py": b"def f(x): pass"}
    found = Working(Task(file, tmp_path), PurePosixPath(), files, head="", committed=committed)
    result = result_of([{}, checked], checked, "")
    assert words in launchcode.why_not(Wanted(found, {}, None), result)


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
    result = result_of([{}, best], best, "")
    content = json.loads(launchcode.write(wanted, result, {})[1])
    sources = [TWO_KERNELS, wanted.knobs().variant(best)["ops.py"]]
    assert sources[1].count(b"occupancy=2") == 3
    by_config = [sources[content["configs"][number] == best] for number in range(2)]
    for source in sources:  # from either, each config's edits lead to what was measured
        made = []
        for edits in content["edits"][hashlib.sha256(source).hexdigest()]:
            text = source
            for start, end, new in sorted(edits, reverse=True):
                text = text[:start] + new.encode() + text[end:]
            made.append(text.replace(b"(occupancy=None)", b""))
        assert made == by_config

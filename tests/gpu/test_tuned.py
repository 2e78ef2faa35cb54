"""Functions that tune on their first call are judged: the wrappers of the examples, cuTile's search, Triton's tuner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.bench import Bench
from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.integration.test_triton_frontend import AUTOTUNED, KERNEL, TOML
from tests.integration.test_tuners import SEARCHED
from tilewright.bundled import examples
from tilewright.evaluation.results import BenchmarkResult, Level, Status
from tilewright.programs.format import program_file
from tilewright.task import Backend, case_label

pytestmark = pytest.mark.gpu
EXAMPLES = {
    "01_rmsnorm_occupancy_only": "rmsnorm",
    "02_matmul_full_search": "matmul",
    "03_rope_inplace_splitbuffer": "rope",
    "04_layernorm_torch": "layernorm",
    "05_softmax_triton": "softmax",
}
LIMIT_S = 500.0


class Tuned(NamedTuple):
    """A function as it was found, and the same one tuned."""

    bench: Bench
    fixed: str
    tuned: str


def example(root: Path, folder: Path, name: str, backend: Backend) -> Tuned:
    """Of an example, with its fixed launch beside the kernel."""
    toml = (folder / "task.toml").read_text()
    for place in ('entry = "fixed_launch:', 'editable = ["fixed_launch.py"]'):
        assert place in toml
        toml = toml.replace(place, place.replace("fixed_launch", "kernel"))
    fixed, beside = f"from fixed_launch import {name}\n", {"fixed_launch.py": (folder / "fixed_launch.py").read_text()}
    bench = Bench(root, backend, toml, fixed, (folder / "task.py").read_text(), beside)
    return Tuned(bench, fixed, (folder / "autotuned_launch.py").read_text())


def of_scale(root: Path, which: str, backend: Backend) -> Tuned:
    if which == "triton.autotune":
        return Tuned(Bench(root, backend, TOML, KERNEL, SCALE_TASK), KERNEL, AUTOTUNED)
    tuned = SEARCHED.replace("OUT", "out")
    return Tuned(Bench(root, backend, SCALE_TOML, SCALE_KERNEL, SCALE_TASK), SCALE_KERNEL, tuned)


@pytest.fixture(scope="module", params=[*EXAMPLES, "exhaustive_search", "triton.autotune"])
def one(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tuned]:
    root, which = tmp_path_factory.mktemp("tuned") / "repo", str(request.param)
    if which in EXAMPLES:
        made = example(root, examples() / which, EXAMPLES[which], Backend.CUDA)
    else:
        made = of_scale(root, which, Backend.CUDA)
    with closing(made.bench):
        yield made


def files(result: BenchmarkResult, store: Path) -> dict[str, list[str]]:
    return {
        case_label(case.case): [str(program_file(store, program.sha256)) for program in case.programs]
        for case in result.cases
    }


def test_it_is_right_and_hidden_sizes_cost_no_search(one: Tuned) -> None:
    found = one.bench.check(one.tuned, LIMIT_S)
    assert found.passed, found.message
    assert any(check.hidden for check in found.cases)
    switched = [note for note in found.notes if note.startswith("hidden sizes in the original config")]
    unknown = "DISABLE_AUTOTUNE" in one.tuned and "exhaustive_search" not in one.tuned
    assert bool(switched) == unknown, found.notes


def test_it_is_judged_by_what_fresh_processes_chose(one: Tuned) -> None:
    result = one.bench.measure(one.tuned, one.fixed, LIMIT_S)
    assert result.passed, result.message
    assert result.level is Level.REPLAYED
    assert result.same or result.speedup is not None
    assert all(1 <= len(case.programs) <= 2 for case in result.cases)
    confirmed = one.bench.measure(one.tuned, one.fixed, LIMIT_S, confirms=True)
    assert confirmed.status in (Status.PASSED, Status.OTHER_LAUNCHES), confirmed.message  # a fifth process may differ
    assert confirmed.level is Level.REPLAYED
    assert all(1 <= len(case.programs) <= 4 for case in confirmed.cases)


def test_an_edit_of_it_that_changes_nothing_gains_nothing(one: Tuned, tmp_path: Path) -> None:
    store = tmp_path / "programs"
    baseline = one.bench.measure(one.tuned, None, LIMIT_S, store=store)
    assert baseline.passed, baseline.message
    assert baseline.level is Level.REPLAYED
    assert all(1 <= len(case.programs) <= 4 for case in baseline.cases)
    kept = files(baseline, store)
    assert all(Path(path).is_file() for paths in kept.values() for path in paths)
    again = one.bench.measure(one.tuned + "\n# nothing is changed\n", one.tuned, LIMIT_S, kept=kept)
    assert again.passed, again.message
    assert again.same or (again.speedup_low or 0.0) <= 1, (again.speedup_low, again.speedup)

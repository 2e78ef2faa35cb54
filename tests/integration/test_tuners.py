"""Each config of a tuner is tried on one case."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tests.integration.test_triton_frontend import AUTOTUNED, KERNEL, TOML
from tilewright.evaluation.results import Status
from tilewright.evaluation.unseen import Tuners
from tilewright.task import Backend

HALF = AUTOTUNED.replace(
    "triton.Config({'T': 64}, num_warps=w) for w in (2, 8)", "triton.Config({'T': 64}), SECOND"
).replace("inside = places < n", "inside = (places < n) & (tl.arange(0, T) < 64)")
RIGHT, WRONG, BROKEN = (f"triton.Config({{'T': {tile}}})" for tile in (32, 128, 48))
ADDING = AUTOTUNED.replace(" * factor, mask=inside)", " * factor + tl.load(out + places, mask=inside), mask=inside)")
ADDING = ADDING.replace("empty_like", "zeros_like")
SEARCHED = SCALE_KERNEL.replace("import torch\n", "import torch\nfrom cuda.tile.tune import exhaustive_search\n", 1)
SEARCHED = (
    SEARCHED[: SEARCHED.index("def scale(")]
    + """
TILES = []


def scale(x, factor):
    out = torch.zeros_like(x)
    stream = torch.cuda.current_stream()
    grid = lambda tile: (x.shape[0] // tile + 1,)
    if not TILES:
        arguments = lambda tile: (x, OUT, factor, tile)
        found = exhaustive_search([64, 128], stream, grid_fn=grid, kernel=scale_kernel, args_fn=arguments, quiet=True)
        TILES.append(found.best.config)
    ct.launch(stream, grid(TILES[0]), scale_kernel, (x, out, factor, TILES[0]))
    return out
"""
)
SUMMED = SEARCHED.replace(
    "ct.store(out, index=(block,), tile=values * factor)",
    "before = ct.load(out, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)\n"
    "    ct.store(out, index=(block,), tile=before + values * factor)",
)
ONE_WRONG = SEARCHED.replace("tile=values * factor", "tile=values * (factor if T == 64 else 1.0)")


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    pytest.importorskip("triton")
    yield from opened(tmp_path_factory, Backend.CPU, TOML, KERNEL)


@pytest.fixture(scope="module")
def cutile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CPU, SCALE_TOML)


def test_a_wrong_config_that_no_case_took_is_found(triton: Bench, cutile: Bench) -> None:
    triton.assert_fails(HALF.replace("SECOND", WRONG), Status.NON_FINITE, "with the config T: 128, ")
    cutile.assert_fails(ONE_WRONG.replace("OUT", "out"), Status.WRONG_VALUES, "with the config 128: ")
    for bench, source in ((triton, HALF.replace("SECOND", RIGHT)), (cutile, SEARCHED.replace("OUT", "out"))):
        found = bench.check(source)
        assert found.passed, found.message
        assert not found.notes


def test_a_config_that_does_not_run_is_none_that_a_tuner_takes(triton: Bench) -> None:
    found = triton.check(HALF.replace("SECOND", BROKEN))
    assert found.passed, found.message
    assert found.notes == [
        "not all configs seen: 1 of 2 of scale_kernel " + found.notes[0].partition("scale_kernel ")[2]
    ]


SIZE = 512
"""Of the task, where there is no GPU. A hidden one may be the same."""
TOLD_ONCE = f"""
    assert told or x.shape[0] == {SIZE}, "hidden sizes are told what to take"
    assert calls or not told, "the task's is not"
    calls.append(told)
"""
HEEDING = body(
    f"told = os.environ.get('DISABLE_AUTOTUNE', '0') == '1'\n{dedent(TOLD_ONCE)}return right(x, factor)",
    "import os\n\ncalls = []",
)


def test_a_tuner_that_is_not_known_leaves_the_config_of_hidden_sizes_as_it_is(cutile: Bench) -> None:
    found = cutile.check_widely(HEEDING)  # nothing else is run then
    assert found.passed, found.message
    assert [note.partition(":")[0] for note in found.notes] == ["hidden sizes in the original config"]
    assert {check.hidden for check in found.cases} == {False, True}
    row = cutile.check(body("return right(x, factor)  # DISABLE_AUTOTUNE"))
    assert row.passed, row.message
    assert [note.partition(":")[0] for note in row.notes] == ["hidden sizes in the original config"]
    plain = cutile.check(body("return right(x, factor)"))
    assert not plain.notes
    mixed = cutile.check(SEARCHED.replace("OUT", "out") + "\n# DISABLE_AUTOTUNE\n")
    assert mixed.passed, mixed.message
    assert not mixed.notes, "a search takes what it took on the size of the task"


def test_a_worker_that_boasts_of_configs_is_believed_no_further_than_what_was_tried() -> None:
    tuners = Tuners()
    tuners.add([["one", 3, ["<object at 0x1>"], 7], ["many", 10**9, ["x" * 10**6] * 100, 5], ["odd"], 7])
    assert tuners.first == {"one of 3": 1, "many of 1000000000": 5}
    tuners.tried |= {0, 1}
    assert tuners.left[0].startswith(
        "not all configs seen: 2 of 3 of one (<object at 0x1>), 2 of 1000000000 of many (xxx"
    )
    assert len(tuners.left[0]) + len(tuners.text) < 1000
    tuners.tried.add(2)
    assert "of one" not in tuners.left[0]
    assert Tuners().left == []

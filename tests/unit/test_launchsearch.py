"""The search of launch code: whose launches it sees, whose data it leaves alone, and when it is not made."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit.test_launchcode import loaded, result_of, wanted_of
from tilewright.autotune import launchcode
from tilewright.task import Task, TaskFile

KERNEL = """
TILE = 64


@ct.kernel
def double_kernel(x, out, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block,), tile=ct.load(x, index=(block,), shape=(T,)) * 2)


def double(x, many=()):
    out = torch.empty_like(x)
    x.add_(1)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), double_kernel, (x, out, TILE))
    return out
"""
PLAIN = f"import cuda.tile as ct\nimport torch\n{KERNEL}"
LAUNCH = "    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), double_kernel, (x, out, TILE))\n"
HELPED = LAUNCH.replace("ct.launch(", "double_helper.launch(ct, ")
WAYS = {
    "by the module's name": PLAIN,
    "as a function": PLAIN.replace("import torch\n", "import torch\nfrom cuda.tile import launch\n").replace(
        "    ct.launch(", "    launch("
    ),
    "by its whole name": PLAIN.replace("import torch\n", "import cuda.tile\nimport torch\n").replace(
        "    ct.launch(", "    cuda.tile.launch("
    ),
    "from an import in the function": PLAIN.replace(LAUNCH, f"    from cuda import tile as ct\n{LAUNCH}"),
    "as a default": PLAIN.replace("def double(x, many=())", "def double(x, many=(), launch=ct.launch)").replace(
        "    ct.launch(", "    launch("
    ),
    "in a thread": PLAIN.replace("import torch\n", "import threading\nimport torch\n").replace(
        "    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), double_kernel, (x, out, TILE))\n",
        "    started = threading.Thread(target=ct.launch, args=(torch.cuda.current_stream(), "
        "(ct.cdiv(x.shape[0], TILE),), double_kernel, (x, out, TILE)))\n    started.start()\n    started.join()\n",
    ),
}
"""How an entry point may make its launch."""
Searched = Callable[..., tuple[ModuleType, list[int]]]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What reaches cuTile's launch, which launches nothing here."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(ct, "launch", lambda *arguments, **_: found.append(arguments))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setenv("AUTOTUNE_ON_MISS", "1")
    return found


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Searched:
    """Makes the launch code of a source, whose search takes the config of the largest grid, and notes the grids."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def made(source: str, launches: int = 1) -> tuple[ModuleType, list[int]]:
        (tmp_path / "doubling.py").write_text(source)
        file = TaskFile.model_validate(
            {"name": "t", "entry": "doubling:double", "editable": ["doubling.py"], "cases": [{"N": 1}]}
        )
        result = result_of([{}, {"TILE": 128}, {"TILE": 16}], {"TILE": 128}, "x=float32[1]", launches)
        code, table = launchcode.write(wanted_of(Task(file, tmp_path), source.encode()), result, {})
        (tmp_path / "tuned_doubling.py").write_text(code)
        (tmp_path / "tuned_doubling.json").write_text(table)
        tuned, grids = loaded(tmp_path / "tuned_doubling.py"), []

        def search(space: list[int], stream: Any, grid_fn: Any, kernel: Any, args_fn: Any, quiet: bool) -> Any:
            for number in space:
                assert isinstance(kernel(number), ct.kernel)
                args_fn(number)[0].fill_(torch.nan)
                grids.append(grid_fn(number)[0])
            best = max(space, key=lambda number: int(grid_fn(number)[0]))
            return SimpleNamespace(best=SimpleNamespace(config=best))

        setattr(tuned, "exhaustive_search", search)  # noqa: B010
        return tuned, grids

    return made


@pytest.mark.parametrize("way", list(WAYS))
def test_a_search_sees_a_launch_however_it_is_made(
    way: str, searched: Searched, launched: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    tuned, grids = searched(WAYS[way])
    modules, launch = {*sys.modules}, ct.launch
    x = torch.zeros(1000)
    tuned.double(x)
    assert sorted(grids) == [8, 16, 63]
    assert [call[1] for call in launched[-1:]] == [(63,)]  # the caller's, by the best config
    assert launched[-1][3][0] is x
    assert len(json.loads((tmp_path / "tuned_doubling.json").read_text())["cases"]) == 2
    assert not [name for name in {*sys.modules} - modules if name.endswith("_seen")]
    assert ct.launch is launch


def test_every_launch_of_other_threads_arrives_during_a_search(
    searched: Searched, launched: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that they make through the entry point, and through cuTile itself."""
    tuned, grids = searched(PLAIN)
    known = torch.zeros(1)
    tuned.double(known)
    made: list[torch.Tensor] = []

    def others() -> None:
        made.append(torch.zeros(3))
        ct.launch(0, (7,), None, (made[-1],))
        tuned.double(known)

    def stream() -> int:
        if threading.current_thread() is threading.main_thread():
            other = threading.Thread(target=others)
            other.start()
            other.join()
        return 0

    launched.clear()
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    tuned.double(torch.zeros(1000))
    assert len(grids) == 3
    assert len(made) >= 4
    assert [call[3][0] for call in launched if call[1] == (7,)] == made
    assert sum(call[3][0] is known for call in launched) == len(made)


def test_a_search_leaves_what_the_entry_point_itself_changes_alone(
    searched: Searched, launched: list[tuple[Any, ...]]
) -> None:
    """Views of one tensor stay views of one in a search, in lists too, and need no gradients."""
    source = PLAIN.replace("x.add_(1)", "assert x.data_ptr() == many[0].data_ptr()\n    x.add_(1)")
    tuned, grids = searched(source)
    x = torch.zeros(2000, requires_grad=True)[::2] * 1.0
    whole = torch.zeros(2000)
    with torch.no_grad():
        tuned.double(whole[::2], [whole[::2], {"x": x}])
    assert len(grids) == 3
    assert whole[::2].eq(1).all()
    assert whole[1::2].eq(0).all()


@pytest.mark.parametrize(
    ("source", "launches", "words", "arrive"),
    [
        (PLAIN.replace("import torch\n", "import double_helper\nimport torch\n").replace(LAUNCH, HELPED), 1, "0", 1),
        (PLAIN, 2, "1 launches a call, of at least 2", 1),  # the survey saw another, which is made elsewhere
        (PLAIN.replace(LAUNCH, LAUNCH * 2), 2, "2 launches a call, of at least 2", 2),
    ],
)
def test_what_no_search_can_time_runs_with_a_config_of_the_table_and_says_so(
    source: str,
    launches: int,
    words: str,
    arrive: int,
    searched: Searched,
    launched: list[tuple[Any, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    helper = ModuleType("double_helper")
    setattr(helper, "launch", lambda _, *arguments: ct.launch(*arguments))  # noqa: B010
    monkeypatch.setitem(sys.modules, "double_helper", helper)
    tuned, grids = searched(source, launches)
    x = torch.zeros(1000)
    with pytest.warns(UserWarning, match=f"doubling.py itself makes {words}"):
        tuned.double(x)
    assert not grids
    assert [call[1] for call in launched if call[3][0] is x] == [(8,)] * arrive
    assert x.eq(1).all()
    assert len(json.loads((tmp_path / "tuned_doubling.json").read_text())["cases"]) == 1


def test_a_config_that_does_not_suit_a_case_is_left_out_of_its_search(
    searched: Searched, launched: list[tuple[Any, ...]]
) -> None:
    tuned, grids = searched(PLAIN.replace("x.add_(1)", "assert x.shape[0] % TILE == 0 and TILE != 16"))
    tuned.double(torch.zeros(640))
    assert sorted(grids) == [5, 10]
    with pytest.raises(AssertionError):  # the entry point's own error
        tuned.double(torch.zeros(641))

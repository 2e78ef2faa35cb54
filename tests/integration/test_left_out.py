"""What was not looked at is said: an all-clear is no wider than what was done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench import Bench, body, opened
from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.integration.test_triton_frontend import AUTOTUNED, KERNEL, TOML
from tests.stage import play, quiet
from tilewright.session.checks import check_task, in_words
from tilewright.session.loop import Loop
from tilewright.task import Backend

ANY_ORDER = 'deterministic = false\ndeterministic_reason = "sums in any order"\n'
ATOMIC = SCALE_KERNEL.replace(
    "ct.store(out, index=(block,), tile=values * factor)",
    "ct.atomic_add(out, block * T + ct.arange(T, dtype=ct.int32), values * factor)",
).replace("empty_like", "zeros_like")
TRITON_ATOMIC = KERNEL.replace("tl.store(out", "tl.atomic_add(out").replace("empty_like", "zeros_like")
TRITON_DOT = KERNEL.replace(
    "    tl.store(",
    "    square = tl.zeros((16, 16), tl.float32)\n    tl.dot(square, square)\n    tl.store(",
)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    pytest.importorskip("triton")
    yield from opened(tmp_path_factory, Backend.CPU, TOML, KERNEL)


@pytest.fixture(scope="module")
def cutile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    yield from opened(tmp_path_factory, Backend.CPU, SCALE_TOML)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (KERNEL, []),
        (AUTOTUNED, []),
        (TRITON_ATOMIC, ["order of atomics not checked: scale_kernel; "]),
        (TRITON_DOT, ["tf32 not checked: tl.dot in scale_kernel; "]),
        (TRITON_DOT.replace("(square, square", "(square, square, input_precision='ieee'"), []),
    ],
    ids=["plain", "autotuned", "atomic", "tf32", "ieee"],
)
def test_a_triton_kernels_check_names_what_the_interpreter_cannot_show(
    triton: Bench, source: str, words: list[str]
) -> None:
    found = triton.check(source)
    assert found.passed, found.message
    assert [note[: len(word)] for note, word in zip(found.notes, words, strict=True)] == words
    classes, sizes, races = found.unseen
    assert " of 8 classes of values on N=512 dtype=float32 (" in classes
    assert sizes.startswith("sizes larger than N=") and sizes.endswith(", up to the task's N=1048576 dtype=float32")
    assert races.startswith("races: ")


SEARCH = """
if not found:
    result = exhaustive_search(
        [{"tile": 128}, {"tile": 256}], torch.cuda.current_stream(), lambda _: (1,), None, lambda _: (), quiet=True
    )
    found.append(result.best.config)
return right(x, factor)
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (SCALE_KERNEL, []),
        (ATOMIC, ["order of atomics not checked: kernel.py:12; "]),
        (
            body(SEARCH, "from cuda.tile.tune import exhaustive_search\nfound = []"),
            [],
        ),
        (
            body("index = torch.arange(x.shape[0])\nreturn torch.zeros_like(x).index_add_(0, index, right(x, factor))"),
            ["order of atomics not checked: torch's index_add_; "],
        ),
        (body("torch.set_float32_matmul_precision('high')\nreturn right(x, factor)"), ["tf32 not checked: torch's "]),
        (
            body(
                "from tilewright.interpreter import unshown\nunshown.met['order'] = dict.fromkeys(range(10**5))\n"
                "unshown.met['tf32'] = {chr(27) * 10**5: None}\nreturn right(x, factor)"
            ),
            ["order of atomics not checked: 0, 1, 2 and 9 more; ", "tf32 not checked: ???"],
        ),
    ],
    ids=["plain", "atomic", "search", "torch atomic", "torch tf32", "boasting"],
)
def test_a_cutile_kernels_check_names_what_the_interpreter_cannot_show(
    cutile: Bench, source: str, words: list[str]
) -> None:
    found = cutile.check(source)
    assert found.passed, found.message
    assert [note[: len(word)] for note, word in zip(found.notes, words, strict=True)] == words
    assert len(found.all_unseen) < 1000
    assert not any(text.startswith("races") for text in found.unseen)  # its checker looks for them


def checked(root: Path) -> str:
    return in_words(asyncio.run(check_task(root, Path("task"), quiet)))


def test_check_says_which_values_and_sizes_it_did_not_look_at(make_task: Callable[..., Path]) -> None:
    large = SCALE_TASK.replace("bytes=8 *", f"bytes={2**20} *")
    said = checked(make_task(task=large, kernel=SCALE_KERNEL.replace("values * factor", "values * 0.0")))
    assert said.startswith("nothing found; not looked at: values: run_correctness compares them with the reference; ")
    assert said.endswith(", up to the task's N=1048576 dtype=float32, where a 32-bit index may wrap")


def test_check_tells_how_many_shapes_are_to_come(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.session.jobs.HEARTBEAT_S", 0.001)
    told: list[str] = []

    async def progress(text: str) -> None:
        told.append(text)

    assert asyncio.run(check_task(make_task(), Path("task"), progress)).passed
    assert any(text.startswith("looking for races and other defects, shape 1 of ") for text in told)


def test_neither_an_order_that_the_task_allows_nor_sizes_that_it_lacks_are_named(
    make_task: Callable[..., Path],
) -> None:
    toml = SCALE_TOML.replace("timeout_s = 20", f"timeout_s = 20\n{ANY_ORDER}").replace("1048576", "512")
    said = checked(make_task(toml=toml, kernel=ATOMIC))
    assert said == "nothing found; not looked at: values: run_correctness compares them with the reference"


def test_the_row_says_it_too(begun: Path) -> None:
    async def scene(loop: Loop) -> None:
        (loop.checkout.root / "task" / "kernel.py").write_text(ATOMIC)
        report = await loop.run_correctness(quiet)
        assert "order of atomics not checked: kernel.py:12; " in report.summary
        assert "; not looked at: " in report.summary
        loop.revert()
        await loop.append_result("atomics", quiet)
        row = loop.status().tried[-1]
        assert "order of atomics not checked] |" in row
        assert "order of atomics not checked: kernel.py:12" in row

    play(begun, scene)

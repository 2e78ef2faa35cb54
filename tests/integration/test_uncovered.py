"""Code that an edit changes and that no case runs is named where the edit is judged, kept and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.integration.test_triton_frontend import KERNEL, TOML
from tests.stage import play, quiet, start
from tilewright.session.checks import check_task, in_words
from tilewright.session.loop import Loop

HELPER = """
def half(values):
    return values * 0.5


"""
BACKWARD = (
    f"\n{HELPER}"
    + """@ct.kernel
def scale_backward(grad, out, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block,), tile=half(ct.load(grad, index=(block,), shape=(T,))))


def backward(grad):
    out = torch.empty_like(grad)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(grad.shape[0], TILE),), scale_backward, (grad, out, TILE))
    return out
"""
)
DESTROYED = BACKWARD.replace("index=(block,), tile", "index=(0,), tile")
USED = SCALE_KERNEL.replace("tile=values * factor", "tile=half(half(values)) * factor * 4.0")
TRITON_BACKWARD = """

@triton.jit
def half(values):
    return values * 0.5


@triton.jit
def scale_backward(x, T: tl.constexpr):
    tl.store(x + tl.arange(0, T), half(tl.load(x + tl.arange(0, T))))
"""
HARMLESS = BACKWARD.replace("    block", "    # the block\n    block").replace(
    "    out = ", '    """The gradient."""\n    out = '
)
CASES = {
    "what runs, comments, a docstring": (SCALE_KERNEL.replace("values * factor", "factor * values") + HARMLESS, ""),
    "kernel": (SCALE_KERNEL + DESTROYED, "no case ran scale_backward, which the edit changes"),
    "hint": (SCALE_KERNEL + BACKWARD.replace("@ct.kernel", "@ct.kernel(occupancy=2)"), "no case ran scale_backward, "),
    "constant": (SCALE_KERNEL.replace("TILE = 64", "TILE = 32") + BACKWARD, "no case ran backward, which"),
    "helper": (SCALE_KERNEL + BACKWARD.replace("* 0.5", "/ 2"), "no case ran half, which"),
    "helper that a kernel holds": (USED + BACKWARD.replace("* 0.5", "/ 2"), ""),
}


@pytest.mark.parametrize("what", list(CASES))
def test_what_a_cutile_edit_changes_and_no_case_runs_is_named(make_task: Callable[..., Path], what: str) -> None:
    source, words = CASES[what]
    root = make_task(kernel=SCALE_KERNEL + BACKWARD)
    (root / "task" / "kernel.py").write_text(source)
    found = asyncio.run(check_task(root, Path("task"), quiet))
    assert found.passed, found.message
    assert [note[: len(words)] for note in found.notes] == ([words] if words else [])


def test_so_it_is_in_triton(make_task: Callable[..., Path]) -> None:
    pytest.importorskip("triton")
    source = KERNEL + TRITON_BACKWARD
    root = make_task(toml=TOML, kernel=source)
    for edit in (("T), half(", "T), 0.0 * half("), ("* 0.5", "/ 2"), ("* factor, m", "* (factor), m")):
        source = source.replace(*edit)
    (root / "task" / "kernel.py").write_text(source)
    found = asyncio.run(check_task(root, Path("task"), quiet))
    assert found.passed, found.message
    assert found.notes == ["no case ran half, scale_backward, which the edit changes"]
    assert in_words(found).split("; ")[2] == found.notes[0]


IN_CLASSES = """

class Scale:
    @staticmethod
    def forward(x, factor):
        return right(x, factor)

    @staticmethod
    def backward(x):
        return x


class Other:
    @staticmethod
    def forward(x):
        return x + 1


def large(x, factor):
    return right(x, factor)


def table():
    return {"large": large}


BY_SIZE = table()


def scale(x, factor, out):
    out.copy_((BY_SIZE["large"] if x.shape[0] > 100_000 else Scale.forward)(x, factor))
"""


def test_names_are_whole_and_what_an_import_runs_counts(make_task: Callable[..., Path]) -> None:
    """Of a task, too, whose entry point fills an argument."""
    source = SCALE_KERNEL.replace("def scale(", "def right(") + IN_CLASSES
    task = SCALE_TASK.replace('"factor": 3.0}', '"factor": 3.0, "out": torch.zeros(case["N"])}')
    task = task.replace("(x, factor)", "(x, factor, out)")
    root = make_task(kernel=source, toml=SCALE_TOML.replace("timeout_s", 'outputs = ["out"]\ntimeout_s'), task=task)
    for old, new in (
        ("return right(x, factor)", "return right(x, factor * 1.0)"),
        ("return x", "return 0 + x"),
        ("return {", "return 1 and {"),
    ):
        source = source.replace(old, new)
    (root / "task" / "kernel.py").write_text(source)
    found = asyncio.run(check_task(root, Path("task"), quiet))
    assert found.passed, found.message
    assert found.notes == ["no case ran Scale.backward, Other.forward, large, which the edit changes"]


def test_it_stands_in_the_answers_the_commit_and_the_row(make_task: Callable[..., Path]) -> None:
    note = "no case ran scale_backward, backward, which the edit changes"  # a tile size of backward, too

    async def scene(loop: Loop) -> None:
        await start(loop)
        edited = FASTER_KERNEL + BACKWARD.replace(HELPER, "").replace("half(", "(0.5 * ")
        (loop.checkout.root / "task" / "kernel.py").write_text(edited)
        checked = await loop.run_correctness(quiet)
        assert note in checked.summary
        measured = await loop.run_benchmark(quiet)
        assert measured.summary.startswith("KEEP") and note in measured.summary
        kept = loop.checkpoint()
        repository = loop.checkout.repository
        assert note in repository.message(kept.commit)
        appended = await loop.append_result("tiles", quiet)
        assert f"tiles [{note}]" in appended.row

    play(make_task(kernel=SCALE_KERNEL + BACKWARD), scene)

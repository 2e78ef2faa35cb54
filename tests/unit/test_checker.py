"""The checker reports the defect of every kernel that has one, at its line, and nothing of those that have none."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import cuda.tile as ct
import pytest
import torch

from tests.defects import CLEAN, DEFECTS, Defect, functions, marked_lines
from tests.unit import kernels
from tilewright.evaluation.candidate import Candidate
from tilewright.evaluation.modelling import check_call
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.checker import findings_of
from tilewright.interpreter.races import Finding

MISSED = {
    "equal_shares": "its output is whole; that a part of an input is read by no block is no defect in general",
    "branch_on_unwritten_flag": "none of the fillings is the number that it compares with",
}


@pytest.fixture(autouse=True, scope="module")
def _stand_in() -> Iterator[None]:
    saved = {name: getattr(torch.cuda, name) for name in dir(torch.cuda) if not name.startswith("__")}
    launch = ct.launch
    host.install(spec_by_arch("sm_90"))
    yield
    for name, value in saved.items():
        setattr(torch.cuda, name, value)
    ct.launch = launch


def findings(defect: Defect) -> list[Finding]:
    state = torch.get_rng_state()

    def call(_: object) -> list[torch.Tensor]:
        torch.set_rng_state(state)
        outputs = defect.run()
        return list(outputs) if isinstance(outputs, tuple) else [outputs]

    return findings_of(call)


def named(kind: str) -> list[object]:
    return [pytest.param(one, id=one.name) for one in DEFECTS if (one.kind == CLEAN) == (kind == CLEAN)]


@pytest.mark.parametrize("defect", named("defect"))
def test_a_defect_is_reported_at_its_line(defect: Defect) -> None:
    found = findings(defect)
    if defect.name in MISSED:
        assert not found, f"no longer missed: {MISSED[defect.name]}"
        return
    assert {one.line for one in found if one.kind == defect.kind} & marked_lines(defect), found
    assert {one.kind for one in found} <= {defect.kind}, found
    places = {function.__code__.co_filename for function in functions(defect)}
    assert all(one.file in places for one in found if one.line)


@pytest.mark.parametrize("defect", named(CLEAN))
def test_what_only_looks_like_a_defect_is_not_reported(defect: Defect) -> None:
    assert not findings(defect)


def test_every_class_has_kernels() -> None:
    for kind in {one.kind for one in DEFECTS}:
        assert sum(one.kind == kind for one in DEFECTS) >= 3


def launched(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(64, device="cuda")
    ct.launch(torch.cuda.current_stream(), (2,), kernels.casts, (x, out, 32))
    return out


def looped(trips: int) -> torch.Tensor:
    x, out = torch.ones(256, device="cuda"), torch.empty(16, device="cuda")
    ct.launch(torch.cuda.current_stream(), (1,), kernels.multiples, (x, out, trips, 16))
    return out


CALLS: dict[str, tuple[Callable[[], torch.Tensor], list[str]]] = {
    "a copy of what nobody wrote": (
        lambda: launched(torch.empty(64, device="cuda")),
        ["loads what nobody has written to x, and the outputs depend on it"],
    ),
    "host code that reads what nobody wrote": (
        lambda: launched(torch.ones(64, device="cuda")) + torch.empty(64, device="cuda"),
        ["outputs depend on what nobody has written or padded; launched: casts"],
    ),
    "a loop whose end nobody wrote": (
        lambda: looped(int(torch.empty(1, dtype=torch.int32, device="cuda"))),
        ["outputs depend on what nobody has written or padded; launched: multiples"],
    ),
    "an output that nobody wrote": (
        lambda: torch.cat((launched(torch.ones(64, device="cuda")), torch.empty(3, device="cuda"))),
        ["3 of 67 elements of output 0 are written by no block, the first at (64,); no kernel stores to it"],
    ),
    "random numbers": (lambda: launched(torch.rand(64, device="cuda")), []),
    "torch alone": (lambda: torch.empty(64, device="cuda"), []),
}


@pytest.mark.parametrize("what", CALLS)
def test_what_a_call_rests_on(what: str) -> None:
    call, words = CALLS[what]
    assert [one.message for one in findings(Defect(what, "", call))] == words


def test_calls_that_differ_by_themselves_show_nothing() -> None:
    numbers = itertools.count()
    assert not findings_of(lambda _: [launched(torch.full((64,), next(numbers), device="cuda"))])


OUTPUT = """
import cuda.tile as ct, torch

@ct.kernel
def kernel(x, out, T: ct.Constant[int]):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,))
    ct.store(out, index=(i,), tile=a + BEFORE)

def entry(x, out):
    ct.launch(torch.cuda.current_stream(), (BLOCKS,), kernel, (x, out, 16))
    x.zero_()
"""
BEFORE = "ct.load(out, index=(i,), shape=(T,))"


@pytest.mark.parametrize(
    ("before", "blocks", "words"),
    [
        ("1.0", "4", []),
        (BEFORE, "4", ["loads what nobody has written to out, and the outputs depend on it"]),
        ("1.0", "3", ["16 of 64 elements of out are written by no block, the first at (48,); the store is in kernel"]),
    ],
)
def test_an_argument_for_the_outputs_is_filled_and_inputs_are_fresh_in_each_call(
    tmp_path: Path, before: str, blocks: str, words: list[str]
) -> None:
    (tmp_path / "kernel.py").write_text(OUTPUT.replace("BEFORE", before).replace("BLOCKS", blocks))
    with host.running(host.Mode.RUN):
        candidate = Candidate(tmp_path, [tmp_path], "kernel", "entry", ["out"])
    try:
        arguments = {"x": torch.ones(64), "out": torch.zeros(64)}
        found = check_call(candidate, arguments, ["out"], contextlib.nullcontext)
    finally:
        candidate.forget()
    assert [one["message"] for one in found] == words
    assert {(one["file"], one["line"]) for one in found} <= {("kernel.py", 8)}
    assert arguments["x"].all()

"""The checker reports the defect of every kernel that has one, at its line, and nothing of those that have none."""

from __future__ import annotations

from collections.abc import Iterator

import cuda.tile as ct
import pytest
import torch

from tests.defects import CLEAN, DEFECTS, Defect, marked_lines
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.checker import Checker, Finding

MISSED = {"equal_shares": "its output is whole; that a part of an input is read by no block is no defect in general"}


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
    with host.checking() as (checker, _):
        outputs = defect.run()
    checker.outputs(list(outputs) if isinstance(outputs, tuple) else [outputs])
    return list(checker.findings.values())


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
    assert all(one.file.endswith(f"{defect.run.__module__.rpartition('.')[2]}.py") for one in found if one.line)


@pytest.mark.parametrize("defect", named(CLEAN))
def test_what_only_looks_like_a_defect_is_not_reported(defect: Defect) -> None:
    assert not findings(defect)


def test_every_class_has_kernels() -> None:
    for kind in {one.kind for one in DEFECTS}:
        assert sum(one.kind == kind for one in DEFECTS) >= 3


def test_memory_of_the_host_is_known() -> None:
    checker = Checker()
    tensor = torch.empty(4, 6)
    checker.fresh(tensor)
    checker.wrote(tensor[1:3, ::2])
    missing = checker.unwritten(tensor)
    assert missing is not None
    assert (~missing).nonzero().tolist() == [[1, 0], [1, 2], [1, 4], [2, 0], [2, 2], [2, 4]]
    checker.wrote(tensor)
    assert checker.unwritten(tensor) is None

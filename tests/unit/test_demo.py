"""The demo's edits are data beside each example."""

from __future__ import annotations

import ast

import pytest

from tilewright.bundled import examples
from tilewright.demo import STATUSES, Aim, edits_of

EXAMPLES = sorted(path.parent.name for path in examples().glob("*/task.toml"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_edit_changes_the_example_into_another_program(example: str) -> None:
    text = (examples() / example / "fixed_launch.py").read_text()
    edits = edits_of(example)
    versions = {edit.change(text) for edit in edits}
    assert text not in versions
    assert len(versions) == len(edits)
    assert all(ast.parse(version) for version in versions)
    assert {Aim.GAIN, Aim.WRONG, Aim.NOISE} <= {edit.aim for edit in edits}
    assert STATUSES.keys() | {Aim.GAIN, Aim.OPEN} == set(Aim)

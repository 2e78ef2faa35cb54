"""An edit that nothing needs to be run for: comments and layout alone."""

from __future__ import annotations

import pytest

from tilewright.evaluation.snapshot import content_id
from tilewright.session.uncovered import same_syntax

SOURCE = b'def f(x):\n    """Doubles."""\n    return 2 * x\n'


@pytest.mark.parametrize(
    ("edited", "same"),
    [
        (SOURCE, True),
        (SOURCE + b"# a comment\n", True),
        (SOURCE.replace(b"2 * x", b"(2 *\n            x)"), True),
        (SOURCE.replace(b"2 * x", b"x * 2"), False),
        (SOURCE.replace(b"Doubles", b"Twice"), False),  # code may read a docstring
        (SOURCE.replace(b"return", b"retrun"), False),
    ],
)
def test_only_the_syntax_tree_counts(edited: bytes, same: bool) -> None:
    assert same_syntax({"kernel.py": SOURCE}, {"kernel.py": edited}) is same


def test_files_that_are_no_python_have_to_be_equal() -> None:
    assert same_syntax({"a.cu": b"int x; // 1"}, {"a.cu": b"int x; // 1"})
    assert not same_syntax({"a.cu": b"int x; // 1"}, {"a.cu": b"int x; // 2"})
    assert not same_syntax({"a.py": b"x"}, {"b.py": b"x"})


def test_a_candidate_is_known_by_its_whole_sha256() -> None:
    assert len(content_id({"kernel.py": SOURCE})) == 64

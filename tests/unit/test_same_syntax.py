"""An edit that nothing needs to be run for: comments and layout alone."""

from __future__ import annotations

import pytest

from tilewright.evaluation.results import CorrectnessResult, Status
from tilewright.evaluation.snapshot import content_id
from tilewright.session.uncovered import same_syntax, with_uncovered

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


@pytest.mark.parametrize("deep", [b"x = a" + b".a" * 3000, b"x = 1" + b" + 1" * 20000, b"x = " + b"-" * 20000 + b"1"])
def test_of_a_file_that_is_nested_too_deep_nothing_is_known(deep: bytes) -> None:
    before, after = {"kernel.py": SOURCE + deep}, {"kernel.py": SOURCE + deep + b"  # a comment"}
    assert same_syntax(before, before)
    assert not same_syntax(before, after)
    result = with_uncovered(CorrectnessResult(status=Status.PASSED, ran=["kernel.py:f"]), before, after)
    assert result.unseen == ["whether a case ran all that the edit changes"]

"""Whole words of outputs, and the replayer's own kernels."""

from __future__ import annotations

import shutil

import pytest

from tilewright.programs.digests import key_of, widened
from tilewright.replay.build import PTX, built, sources_hash


def test_equal_outputs_do_not_stand_for_each_other() -> None:
    """The kernel adds the place of a word to the key: no two words of a call have one key."""
    words = 10**9
    assert key_of(5, 1) - key_of(5, 0) > words
    assert 0 <= key_of(2**64 - 1, 255) < 2**64


def test_outputs_are_widened_to_words() -> None:
    assert widened(1024, 16) == (1024, 16)
    assert widened(1026, 4) == (1024, 8)
    assert widened(1030, 4) == (1024, 16)
    assert widened(1024, 0) == (1024, 0)


def test_the_kernels_were_built_from_their_sources() -> None:
    assert PTX.read_text().startswith(f"// sources {sources_hash()}\n"), "run `make kernels`"


@pytest.mark.skipif(not shutil.which("c++"), reason="nvcc needs a C++ compiler")
def test_the_kernels_are_what_is_built() -> None:
    assert built() == PTX.read_text()

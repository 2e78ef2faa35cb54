"""What the clock says that it resolves, on a replayer with a stand-in driver."""

from __future__ import annotations

import shutil

import pytest

from tilewright.programs.format import decoded, encoded
from tilewright.referee import clock
from tilewright.referee.clock import copy_program, resolved
from tilewright.referee.replayer import Replayer

pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")


@pytest.mark.parametrize("size", [1, 2 << 20, 3 << 20])
def test_the_built_in_program_is_a_program(size: int) -> None:
    made = copy_program("sm_90", size)
    assert decoded(encoded(made)).layout == made.layout


def test_a_program_of_ours_is_compared_with_itself(replayer: Replayer, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the stand-in's clock, a copy takes 1 us, an empty program 1 us, and both never differ."""
    monkeypatch.setattr(clock, "COPIED_MIB", (1,))
    (said,) = resolved(replayer)
    assert said == "a copy of 1 MiB, 1.0 us: resolves 0%, in 8 rounds"

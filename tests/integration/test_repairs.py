"""What a call does for one that was broken off: git comes to what the last record says, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SCALE_KERNEL, git
from tests.forging import WRONG_KERNEL
from tests.stage import edit, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import CorrectnessResult, Status
from tilewright.evaluation.seeds import commitment
from tilewright.session.checkout import Checkout, EditableFiles
from tilewright.session.loop import Loop
from tilewright.session.records import Begun, Checked
from tilewright.session.session import Session
from tilewright.session.standby import Standby
from tilewright.session.state import State
from tilewright.session.verification import Mark, verify


def state_of(root: Path) -> State:
    state = Checkout(root).peek()
    assert state is not None
    return state


def session_of(root: Path) -> Session:
    checkout = Checkout(root)
    session = Session.current(checkout, Standby(checkout.repository))
    assert session is not None
    return session


def test_the_index_of_another_branch_stays(root: Path) -> None:
    """The last record moved the session's branch, so the next call stages what it kept."""
    assert state_of(root).moved_from
    git(root, "checkout", "--quiet", state_of(root).started.came_from)

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match="the session is on that branch"):
            await loop.run_correctness(quiet)

    play(root, scene)
    assert git(root, "status", "--porcelain") == ""


def test_an_end_after_a_kill_leaves_no_branch_behind(root: Path) -> None:
    state = state_of(root)
    branch = f"refs/heads/{state.started.branch}"
    git(root, "update-ref", branch, state.moved_from)  # as a kill after the row leaves it

    async def scene(loop: Loop) -> None:
        await loop.end("enough", quiet)

    play(root, scene)
    assert git(root, "rev-parse", branch) == state.incumbent_commit
    assert not [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL]

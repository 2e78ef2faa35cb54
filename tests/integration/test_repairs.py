"""What a call does for one that was broken off: git comes to what the last record says, and nothing else changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.conftest import git
from tests.forging import WRONG_KERNEL
from tests.stage import edit, play, quiet
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


def test_a_revert_that_was_killed_between_two_files_is_called_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(root)
    state, repository = session.state, session.checkout.repository
    state.started = state.started.model_copy(update={"editable": ["README.md", "task/kernel.py"]})
    session.tree = EditableFiles(repository, state.started)
    (root / "README.md").write_text("edited\n")
    edit(root, WRONG_KERNEL + "# edited\n")
    commit = state.incumbent_commit
    session.record(Begun(run="check", candidate="c" * 64, commit=commit, secret_sha256=commitment("x")))
    wrong = CorrectnessResult(status=Status.WRONG_VALUES)
    session.record(Checked(candidate="c" * 64, secret="x", result=wrong))

    def killed(path: Path, data: bytes) -> None:
        if path.name == "kernel.py":
            raise KeyboardInterrupt
        path.write_bytes(data)

    with monkeypatch.context() as patch:
        patch.setattr("tilewright.repository.write_atomically", killed)
        with pytest.raises(KeyboardInterrupt):
            session.revert()
    assert (root / "task" / "kernel.py").read_text() == WRONG_KERNEL + "# edited\n"
    assert session.revert()
    assert session.tree.present() == session.tree.at(state.incumbent_commit)
    assert git(root, "status", "--porcelain") == ""


def test_what_did_not_pass_is_not_measured(root: Path) -> None:
    session = session_of(root)
    with pytest.raises(UsageError, match="did not pass the last check"):
        asyncio.run(session.measure(session.tree.read(), lambda _: None))

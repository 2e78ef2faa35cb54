"""A session that is exported and imported: it is the same wherever it is, and comes back from where it went on."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import git
from tests.forging import WRONG_KERNEL, failures, records
from tests.stage import edit, play, quiet
from tilewright.errors import UsageError
from tilewright.heads import HeadStore
from tilewright.session.checkout import Checkout
from tilewright.session.history import Phase
from tilewright.session.loop import Loop
from tilewright.session.transfer import export_session, import_session
from tilewright.session.verification import Mark, verify


def clone(root: Path, name: str) -> Path:
    git(root.parent, "clone", "-q", "--branch", "main", str(root), name)
    return root.parent / name


def exported(root: Path, name: str) -> Path:
    checkout = Checkout(root)
    export_session(checkout, root.parent / name)
    checkout.release()
    return root.parent / name


def end(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        await loop.end("enough", quiet)

    play(root, scene)


def another_machine(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_STATE", str(root.parent / "another machine's"))


def ended_elsewhere(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An archive of the session of `root`, which went to another machine and ended there."""
    there = clone(root, "there")
    first = exported(root, "first.tgz")
    with monkeypatch.context() as elsewhere:
        another_machine(root, elsewhere)
        import_session(Checkout(there), first)
        end(there)
        return exported(there, "back.tgz")


def phase(root: Path) -> str:
    state = Checkout(root).peek()
    assert state is not None
    return state.phase


@pytest.mark.slow
def test_an_ended_session_whose_head_is_lost_stays_one_session(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(root)
    another_machine(root, monkeypatch)
    archive = exported(root, "session.tgz")
    places = [clone(root, name) for name in ("one", "two")]
    for place in places:
        import_session(Checkout(place), archive)
    for place in (root, *places):
        assert phase(place) == Phase.ENDED
        assert records(place) == records(root)
        assert failures(place).keys() == {"outside head"}
    assert exported(root, "again.tgz").is_file()
    assert [record["data"]["kind"] for record in records(root)][-2:] == ["ended", "noticed"]
    with pytest.raises(UsageError, match="in this checkout already, with all records of the archive"):
        import_session(Checkout(root), archive)


@pytest.mark.parametrize("same_machine", [True, False])
@pytest.mark.slow
def test_a_session_comes_back_from_where_it_went_on(
    root: Path, monkeypatch: pytest.MonkeyPatch, same_machine: bool
) -> None:
    there = clone(root, "there")
    first = exported(root, "first.tgz")
    with monkeypatch.context() as elsewhere:
        if not same_machine:
            another_machine(root, elsewhere)
        import_session(Checkout(there), first)

        async def scene(loop: Loop) -> None:
            edit(there, WRONG_KERNEL.replace("64", "128"))
            await loop.run_correctness(quiet)
            loop.revert()
            await loop.append_result("adds again", quiet)
            await loop.end("enough", quiet)

        play(there, scene)
        back = exported(there, "back.tgz")
    if same_machine:
        shown = tilewright("status", cwd=root)
        assert f"is an older copy. All of the session is in {there}: go on there, or bring it back" in shown.stderr
    state = import_session(Checkout(root), back)
    assert state.rows[-1].optimization == "adds again"
    assert records(root) == records(there)
    assert phase(root) == Phase.ENDED
    assert failures(root) == {}
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    with pytest.raises(UsageError, match=r"is in this checkout already|is an older copy"):
        import_session(Checkout(root), first)


def test_two_copies_that_both_went_on_are_told_apart(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    back = ended_elsewhere(root, monkeypatch)
    end(root)
    before = records(root)
    with pytest.raises(UsageError, match=r"rewritten at or before that record|went on here in another way"):
        import_session(Checkout(root), back)
    (state,) = HeadStore(before[0]["data"]["session"]).path.parent.glob("*.json")
    state.unlink()
    with pytest.raises(UsageError, match="went on here in another way: record"):
        import_session(Checkout(root), back)
    assert records(root) == before


def test_an_import_that_fails_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = clone(root, "there")
    archive = exported(root, "session.tgz")
    refs = git(there, "for-each-ref")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(Checkout, "set_current", full)
        with pytest.raises(OSError, match="No space left"):
            import_session(Checkout(there), archive)
    assert git(there, "for-each-ref") == refs
    assert git(there, "branch", "--show-current") == "main"
    assert list((there / "sandbox").iterdir()) == []
    import_session(Checkout(there), archive)
    assert failures(there) == {}


def test_an_import_whose_head_cannot_be_kept_changes_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ended_elsewhere(root, monkeypatch)
    before = records(root)
    with monkeypatch.context() as full:
        full.setattr(HeadStore, "write", lambda *_: "the head cannot be written: no space is left")
        with pytest.raises(UsageError, match="no space is left; make room there, and import again"):
            import_session(Checkout(root), archive)
    assert records(root) == before
    assert phase(root) != Phase.ENDED
    import_session(Checkout(root), archive)
    assert phase(root) == Phase.ENDED


def test_a_commit_after_the_end_is_named_and_is_not_exported(root: Path) -> None:
    end(root)
    assert not [line for line in verify(Checkout(root)) if line.what == "branch"]
    edit(root, WRONG_KERNEL)
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qam", "mine")
    (line,) = [line for line in verify(Checkout(root)) if line.what == "branch"]
    assert line.mark is Mark.WARN
    assert re.search(r"perf/\S+ has 1 commit after \w{12}, which the session kept last; nobody judged it", line.detail)
    with pytest.raises(
        UsageError, match=r"the session left it at \w{12}; `git reset --soft \w{12}` puts it back.* are$"
    ):
        exported(root, "later.tgz")

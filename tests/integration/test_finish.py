"""From a session to a pull request: the clean branch, what the end of a session says, and taking it up again."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, git
from tests.forging import WRONG_KERNEL
from tests.stage import edit, journal_of, judged, play, quiet, start
from tilewright.errors import UsageError
from tilewright.ledger import Journal
from tilewright.rules import Rules
from tilewright.session.checkout import Checkout
from tilewright.session.finish import FROM_DIRTY, finish
from tilewright.session.loop import Loop
from tilewright.session.records import ENTRY, Resumed
from tilewright.session.state import Phase, State
from tilewright.session.verification import Mark, verify

COMMENT = FASTER_KERNEL + "# a comment\n"


def state_of(root: Path) -> State:
    return State.of(Journal(journal_of(root), ENTRY).entries)


def picture(root: Path) -> list[str]:
    """What a user sees of the checkout."""
    return [git(root, "rev-parse", "HEAD"), git(root, "branch", "--show-current"), git(root, "status", "--porcelain")]


def test_a_clean_branch_holds_what_was_kept_and_nothing_else(root: Path) -> None:
    git(root, "remote", "add", "origin", "nowhere")
    edit(root, WRONG_KERNEL)
    before, state = picture(root), state_of(root)
    branch = f"{state.started.branch}-clean"
    said = "\n".join(finish(Checkout(root)))
    assert picture(root) == before
    assert git(root, "log", "--format=%s", f"{branch}^..{branch}") == git(root, "log", "-1", "--format=%s")
    assert git(root, "rev-parse", f"{branch}^") == state.started.base
    assert git(root, "rev-parse", f"{branch}^{{tree}}") == git(root, "rev-parse", f"{state.incumbent_commit}^{{tree}}")
    assert git(root, "diff", "--name-only", state.started.base, branch) == "task/kernel.py"
    assert f"git push -u origin {branch}" in said
    assert f"gh pr create --head {branch} --title 'scale: large tiles (" in said
    assert "--body-file sandbox/pull-request.md" in said
    git(root, "branch", "-f", branch, "main")
    for taken in (branch, "main"):
        with pytest.raises(UsageError, match=f"^branch {taken} is there already; name another with --branch"):
            finish(Checkout(root), branch=taken)
    assert git(root, "rev-parse", branch) == git(root, "rev-parse", "main")
    with pytest.raises(UsageError, match="is no name of a branch"):
        finish(Checkout(root), branch="a b")


def test_the_command_squashes_and_names_the_branch(root: Path) -> None:
    done = tilewright("finish", "--squash", "--branch", "faster", "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert "this repository has no remote" in done.stdout
    assert git(root, "rev-parse", "faster^") == state_of(root).started.base
    assert git(root, "log", "-1", "--format=%b", "faster").startswith("- large tiles (")


def test_without_a_kept_edit_there_is_nothing_to_finish(begun: Path) -> None:
    done = tilewright("finish", "--root", str(begun))
    assert (done.returncode, "kept no edit" in done.stderr) == (2, True)
    assert git(begun, "branch", "--list", "*-clean") == ""
    Checkout(begun).forget_current()
    assert "no current session" in tilewright("finish", "--root", str(begun)).stderr


def test_edits_that_the_session_began_with_have_their_own_commit(make_task: Callable[..., Path]) -> None:
    root = make_task()
    edit(root, SCALE_KERNEL + "MINE = 1\n")

    async def scene(loop: Loop) -> None:
        report = await start(loop, include_dirty=True)
        assert any(note.startswith("dirty baseline") for note in report.notes)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        with pytest.raises(UsageError, match="has no row yet"):
            finish(loop.checkout)
        await loop.append_result("large tiles", quiet)

    play(root, scene)
    assert "dirty baseline" in (root / "sandbox" / "report.md").read_text()
    finish(Checkout(root), branch="each")
    assert git(root, "log", "--format=%s", "main..each").splitlines()[1] == f"scale: {FROM_DIRTY}"
    finish(Checkout(root), branch="all", squash=True)
    assert FROM_DIRTY in git(root, "log", "-1", "--format=%B", "all")
    assert git(root, "rev-parse", "all^{tree}") == git(root, "rev-parse", "each^{tree}")


def test_a_session_that_ended_is_taken_up_again(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        said = await loop.end("by the user", quiet)
        assert "kept 1 of 2: large tiles (iteration 2)" in said
        assert "gain: ~" in said
        assert f"branch: {state_of(root).started.branch}" in said
        assert all(word in said for word in ("tilewright finish", "report --pr", "resume=true"))
        finish(loop.checkout)
        assert all(word in loop.status().next for word in ("tilewright finish", "report --pr", "resume=true"))
        git(root, "checkout", "-q", "main")
        with pytest.raises(UsageError, match="git checkout perf/scale"):
            await start(loop, resume=True)
        git(root, "checkout", "-q", state_of(root).started.branch)
        report = await start(loop, resume=True)
        assert (report.phase, report.iteration, len(report.tried)) == ("ready", 3, 3)
        assert report.summary.startswith("resumed: ")
        edit(root, WRONG_KERNEL)
        with pytest.raises(UsageError, match="tried before"):
            await loop.run_correctness(quiet)
        edit(root, COMMENT)
        await loop.run_correctness(quiet)
        loop.revert()
        row = await loop.append_result("a comment", quiet)
        assert row.advice.action == "continue"
        await loop.end("by the user", quiet)

    play(root, scene)
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []
    assert [type(entry) for entry in Journal(journal_of(root), ENTRY).entries].count(Resumed) == 1


def test_a_stop_is_advice(make_task: Callable[..., Path]) -> None:
    """The rules count anew in a session that is taken up."""
    root = make_task()

    async def scene(loop: Loop) -> None:
        await start(loop, rules=Rules(max_iterations=1))
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        stop = await loop.append_result("large tiles", quiet)
        assert stop.advice.action == "stop"
        assert "kept 1: ~" in stop.summary
        assert "tilewright finish" in stop.next
        assert state_of(root).phase is Phase.ENDED
        report = await start(loop, resume=True)
        assert report.budget.startswith("1 of 1 iterations left")
        assert loop.status().next.startswith("apply ONE optimization")
        edit(root, COMMENT)
        await loop.run_correctness(quiet)
        loop.revert()
        assert (await loop.append_result("a comment", quiet)).advice.action == "stop"

    play(root, scene)
    assert [line for line in verify(Checkout(root)) if line.mark is Mark.FAIL] == []


def test_the_body_of_a_pull_request_times_torch_too_if_it_is_asked_to(root: Path) -> None:
    (root / "pyproject.toml").write_text('[tool.tilewright]\nbackend = "cpu"\n')
    done = tilewright("report", "--pr", "--compare", "--root", str(root))
    assert done.returncode == 0, done.stderr
    assert "\n| torch " in done.stdout
    assert "\n| torch " not in tilewright("report", "--pr", "--root", str(root)).stdout


def test_a_session_is_exported_by_its_name(root: Path) -> None:
    checkout, archive = Checkout(root), root.parent / "named.tgz"
    folder = checkout.current_folder()
    assert folder is not None
    checkout.forget_current()
    without = tilewright("session", "export", str(archive), "--root", str(root))
    assert (without.returncode, "no current session" in without.stderr) == (2, True)
    named = tilewright("session", "export", str(archive), "--session", "scale", "--root", str(root))
    assert named.returncode == 0, named.stderr
    with tarfile.open(archive) as packed:
        current = packed.extractfile("sandbox/current")
        assert current is not None
        assert current.read().decode() == f"{folder.name}\n"
        assert f"sandbox/{folder.name}/journal.jsonl" in packed.getnames()


def test_an_imported_session_is_named_in_notes_and_report(root: Path) -> None:
    assert "imported" not in tilewright("report", "--root", str(root)).stdout
    archive = root.parent / "session.tgz"
    assert tilewright("session", "export", str(archive), "--root", str(root)).returncode == 0
    there = root.parent / "clone"
    git(root, "clone", "-q", str(root), str(there))
    with tarfile.open(archive) as packed:
        packed.extractall(there, filter="data")
    assert "imported: " in tilewright("report", "--root", str(there)).stdout
    assert "imported: " in tilewright("report", "--pr", "--root", str(there)).stdout

    async def scene(loop: Loop) -> None:
        assert any(note.startswith("imported: ") for note in loop.status().notes)

    play(there, scene)

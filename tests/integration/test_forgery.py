"""Every way to forge a session's journal, head or table that leaves a trace: each is named, and stops the loop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import git
from tests.forging import WRONG_KERNEL, failures, faster, forge, records, refused
from tests.stage import edit, journal_of, play, quiet, start
from tilewright.errors import UsageError
from tilewright.heads import HeadStore
from tilewright.session.checkout import Checkout, Forged
from tilewright.session.loop import Loop
from tilewright.session.verification import verify


def test_an_honest_session_verifies(root: Path) -> None:
    assert failures(root) == {}
    done = tilewright("verify", cwd=root)
    assert done.returncode == 0
    assert done.stdout.count("ok ") == len(done.stdout.splitlines()) == 10
    session = journal_of(root).parent.name
    assert tilewright("verify", session, cwd=root).returncode == 0
    assert "there is no session nonsense" in tilewright("verify", "nonsense", cwd=root).stderr


def test_a_journal_that_was_cut_off_is_named(root: Path) -> None:
    forge(root, lambda found: found[:-1])
    refused(root, r"has \d+ records, but the head kept in .* names record \d+ \(\w+\): it was cut off")


def test_a_journal_with_other_figures_is_named(root: Path) -> None:
    forge(root, faster)
    refused(root, "the journal was rewritten at or before that record")


def test_an_older_copy_of_the_journal_is_named(root: Path) -> None:
    old = journal_of(root).read_bytes()

    async def scene(loop: Loop) -> None:
        await loop.end("enough", quiet)

    play(root, scene)
    journal_of(root).write_bytes(old)
    refused(root, "it was cut off, or is an older copy")


def test_records_added_by_another_hand_are_named(root: Path) -> None:
    ended = {"kind": "ended", "reason": "mine"}
    extra = [{"time": "now", "data": ended}, {"time": "now", "data": ended}]
    forge(root, lambda found: [*found, *extra])
    with pytest.raises(Forged, match="added by another hand"):
        Checkout(root).peek()


def test_one_record_after_the_head_is_what_a_kill_leaves(root: Path) -> None:
    last = records(root)[-2]
    HeadStore(journal_of(root).parent.name).write(last["seq"], last["hash"], journal_of(root))
    assert failures(root) == {}

    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"

    play(root, scene)
    head = HeadStore(journal_of(root).parent.name).read()
    assert head is not None
    assert head.seq == len(records(root)) - 1


def test_a_head_that_was_deleted_is_on_record(root: Path, state_folder: Path) -> None:
    shutil.rmtree(state_folder)
    assert "it was deleted" in tilewright("status", cwd=root).stdout
    assert "it was deleted" in failures(root)["outside head"]

    async def scene(loop: Loop) -> None:
        assert any(note.startswith("head missing: no head") for note in (await start(loop)).notes)

    play(root, scene)
    assert records(root)[-1]["data"]["what"] == "head missing"
    assert list(state_folder.iterdir())
    assert "on record: head missing" in failures(root)["outside head"]


def test_a_cut_journal_without_head_contradicts_the_commits(root: Path, state_folder: Path) -> None:
    shutil.rmtree(state_folder)
    forge(root, lambda found: found[:6])
    text = failures(root)
    assert "names record" in text["refs"]
    git(root, "reset", "-q", "--soft", "main")

    async def scene(loop: Loop) -> None:
        with pytest.raises(UsageError, match=r"refs/tilewright/\S+ \(\w+\) names record \d+ .*cut off"):
            await loop.run_correctness(quiet)

    play(root, scene)


@pytest.mark.parametrize("content", ["{}", "junk", None], ids=["empty", "junk", "another session's"])
def test_a_head_that_is_none_is_named(root: Path, state_folder: Path, content: str | None) -> None:
    (path,) = state_folder.iterdir()
    path.write_text(content if content is not None else path.read_text().replace("scale", "other"))
    refused(root, "cannot be read|is not a head of session")


def test_a_forged_head_is_named(root: Path, state_folder: Path) -> None:
    (path,) = state_folder.iterdir()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hash": "f" * 64}))
    refused(root, "names ffffffffffff: the journal was rewritten")


def test_a_state_folder_that_cannot_be_written_is_on_record_and_stops_nothing(root: Path, state_folder: Path) -> None:
    shutil.rmtree(state_folder.parent)
    state_folder.parent.write_text("")

    def step(loop: Loop) -> None:
        edit(root, WRONG_KERNEL)
        loop.revert()

    async def scene(loop: Loop) -> None:
        step(loop)
        assert any("head unwritable" in note for note in loop.status().notes)
        step(loop)
        state_folder.parent.unlink()
        step(loop)
        assert list(state_folder.iterdir())

    play(root, scene)
    kinds = [record["data"].get("what", record["data"]["kind"]) for record in records(root)[-6:]]
    assert kinds == ["head missing", "head unwritable", "reverted", "reverted", "reverted", "head kept"]
    lines = [(line.mark, line.detail) for line in verify(Checkout(root)) if line.what == "outside head"]
    assert [mark for mark, _ in lines] == ["FAIL", "warn", "warn", "ok"]


def test_a_journal_changed_under_the_server_is_named_and_set_aside(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"
        forge(root, faster, head=True)
        with pytest.raises(UsageError, match=r"record \d+ is not the one that was written"):
            loop.revert()
        assert "is set aside" in await loop.end("forged", quiet)
        assert loop.status().phase == "none"

    play(root, scene)


def test_a_pointer_back_to_an_earlier_session_is_named(root: Path) -> None:
    first = (root / "sandbox" / "current").read_text()

    async def another(loop: Loop) -> None:
        await loop.end("enough", quiet)
        await start(loop)
        await loop.end("enough, too", quiet)

    play(root, another)
    assert "begun later" not in tilewright("verify", cwd=root).stdout
    (root / "sandbox" / "current").write_text(first)
    assert "begun later than this one" in tilewright("verify", cwd=root).stdout


def test_a_changed_table_is_named_and_rendered_again(root: Path) -> None:
    table = root / "sandbox" / "perf_results.md"
    right = table.read_text()
    table.write_text(right.replace("~0.004", "~0.001"))
    refused(root, r"sandbox/perf_results\.md was changed by another hand: line 5 is .*rm sandbox/perf_results\.md")
    table.unlink()
    git(root, "checkout", "--", "task/kernel.py")

    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"
        assert table.read_text() == right
        table.write_text(right + "| 3 | mine | 0.1 | PASS | keep |\n")
        edit(root, WRONG_KERNEL + "\n")
        with pytest.raises(UsageError, match=r"line 6 is .* where the journal gives `nothing`"):
            await loop.run_correctness(quiet)

    play(root, scene)

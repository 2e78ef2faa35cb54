"""Every way to forge a session's journal or table that leaves a trace: each is named, and stops the loop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.forging import WRONG_KERNEL, failures, faster, forge, refused
from tests.stage import edit, journal_of, play, quiet, start
from tilewright.errors import UsageError
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop

NOT_THERE = r"refs/tilewright/\S+ \(\w+\) names record \w+, which the journal lacks: it was rewritten, was cut off"


def test_an_honest_session_verifies(root: Path) -> None:
    assert failures(root) == {}
    done = tilewright("verify", cwd=root)
    assert done.returncode == 0
    assert done.stdout.count("ok ") == len(done.stdout.splitlines()) == 5
    session = journal_of(root).parent.name
    assert tilewright("verify", session, cwd=root).returncode == 0
    assert "there is no session nonsense" in tilewright("verify", "nonsense", cwd=root).stderr


def test_a_session_is_named_by_a_part_of_its_name(root: Path) -> None:
    session = journal_of(root).parent
    assert {Checkout(root).session_folder(part) for part in ("scale", session.name[-6:])} == {session}
    for name in ("scaled-1", "up-scale-2"):
        shutil.copytree(session, session.with_name(name))
    assert Checkout(root).session_folder("scale") == session
    for part, why in (("ale", "names of several sessions: scale-.*, scaled-1, up-"), ("..", "there is no session")):
        with pytest.raises(UsageError, match=why):
            Checkout(root).session_folder(part)


@pytest.mark.parametrize("left", [-1, 3])
def test_a_journal_that_was_cut_off_is_named(root: Path, left: int) -> None:
    forge(root, lambda found: found[:left])
    refused(root, NOT_THERE)


def test_a_journal_with_other_figures_is_named(root: Path) -> None:
    forge(root, faster)
    refused(root, NOT_THERE)


def test_a_record_that_was_changed_is_named(root: Path) -> None:
    journal = journal_of(root)
    journal.write_text(journal.read_text().replace('"latency_ms":', '"latency_ms":1', 1))
    refused(root, "the journal cannot be trusted: .*it was altered")


def test_a_pointer_out_of_the_sandbox_leads_to_no_session(root: Path) -> None:
    outside = root / "outside"
    outside.mkdir()
    (outside / "journal.jsonl").write_bytes(journal_of(root).read_bytes())
    (root / "sandbox" / "current").write_text("../outside\n")
    assert Checkout(root).current_folder() is None


def test_a_journal_of_another_session_is_named(root: Path) -> None:
    def change(found: list[dict[str, object]]) -> None:
        found[0]["data"]["session"] = "another"  # type: ignore[index]

    forge(root, change)
    refused(root, "is the journal of another session, another")


def test_a_journal_changed_under_the_server_is_named_and_set_aside(root: Path) -> None:
    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"
        forge(root, lambda found: faster(found, 0))
        with pytest.raises(UsageError, match=NOT_THERE):
            loop.revert()
        assert "is set aside" in await loop.end("forged", quiet)
        assert loop.status().phase == "none"

    play(root, scene)


def test_a_changed_table_stops_nothing_and_the_next_row_renders_it(root: Path) -> None:
    (session,) = (root / "sandbox").glob("*/perf_results.md")
    right = session.read_text()
    for table in (session, root / "sandbox" / "perf_results.md"):
        table.write_text(right.replace("~0.004", "~0.001"))

    async def scene(loop: Loop) -> None:
        edit(root, WRONG_KERNEL + "UNUSED = 1\n")
        await loop.run_correctness(quiet)
        loop.revert()
        await loop.append_result("wrong once more", quiet)

    play(root, scene)
    assert failures(root) == {}
    assert (root / "sandbox" / "perf_results.md").read_text() == session.read_text()
    assert "~0.001" not in session.read_text()

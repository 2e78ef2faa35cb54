"""Every way to forge a session's record that leaves a trace: each is found, named, and keeps the loop from going on.

One session is played, and each test forges a copy of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TASK, SCALE_TOML, commit_all, git
from tests.integration.test_cli import tilewright
from tests.stage import edit, journal_of, judged, play, quiet, start
from tilewright.evaluation.results import BenchmarkResult, CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.seeds import commitment
from tilewright.heads import HeadStore
from tilewright.session import integrity
from tilewright.session.checkout import Checkout, Forged, Misuse
from tilewright.session.loop import Loop
from tilewright.session.replay import compare_benchmarks, compare_checks
from tilewright.session.transfer import export_session, import_session
from tilewright.session.verification import verify

WRONG_KERNEL = SCALE_KERNEL.replace("values * factor", "values + factor")
Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repository and a state folder: a baseline, a wrong candidate, a keep, and a pending check."""
    place = tmp_path_factory.mktemp("played")
    folder = place / "repo" / "task"
    folder.mkdir(parents=True)
    for name, text in (("task.toml", SCALE_TOML), ("task.py", SCALE_TASK), ("kernel.py", SCALE_KERNEL)):
        (folder / name).write_text(text)
    (place / "repo" / "README.md").write_text("a user's repository\n")
    commit_all(place / "repo")

    async def scene(loop: Loop) -> None:
        await start(loop)
        edit(place / "repo", WRONG_KERNEL)
        await loop.run_correctness(quiet)
        loop.revert()
        loop.append_result("adds instead")
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        loop.append_result("large tiles")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_STATE", str(place / "state"))
        play(place / "repo", scene)
    return place


@pytest.fixture
def root(played: Path, tmp_path: Path, state_folder: Path) -> Path:
    shutil.copytree(played / "repo", tmp_path / "repo")
    shutil.copytree(played / "state", state_folder.parent)
    return tmp_path / "repo"


def records(root: Path) -> Records:
    return [json.loads(line) for line in journal_of(root).read_text().splitlines()]


def rechained(found: Records) -> str:
    """A journal of these records with a chain that is right again."""
    head, lines = "0" * 64, []
    for number, record in enumerate(found):
        body = {"seq": number, "time": record["time"], "prev": head, "data": record["data"]}
        head = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        lines.append(json.dumps(body | {"hash": head}, separators=(",", ":")))
    return "\n".join(lines) + "\n"


def forge(root: Path, change: Callable[[Records], Records | None], head: bool = False) -> None:
    """Change the records and chain them again; `head`: put the outside head where the forged journal stands too."""
    journal = journal_of(root)
    found = records(root)
    journal.write_text(rechained(change(found) or found))
    if head:
        last = records(root)[-1]
        HeadStore(journal.parent.name).write(last["seq"], last["hash"], journal)


def of_kind(found: Records, kind: str, number: int = -1) -> dict[str, Any]:
    data: dict[str, Any] = [record["data"] for record in found if record["data"]["kind"] == kind][number]
    return data


def faster(found: Records) -> None:
    result = of_kind(found, "measured")["result"]
    result["latency_ms"] /= 2


def refused(root: Path, words: str) -> None:
    """Every tool that runs or writes is refused with these words, and so is an export; the status shows them."""

    async def scene(loop: Loop) -> None:
        edit(root, FASTER_KERNEL.replace("1024", "2048"))
        with pytest.raises(Misuse, match=words):
            await loop.run_correctness(quiet)
        with pytest.raises(Misuse, match=words):
            loop.append_result("mine")

    before = journal_of(root).read_bytes()
    play(root, scene)
    assert journal_of(root).read_bytes() == before
    shown = tilewright("status", cwd=root)
    assert re.search(words, shown.stdout + shown.stderr)
    with pytest.raises(Misuse, match=words):
        export_session(Checkout(root), root.parent / "out.tgz")
    lines = [line for line in verify(Checkout(root)) if line.mark == "FAIL"]
    assert any(re.search(words, line.detail) for line in lines), lines


def failures(root: Path) -> dict[str, str]:
    """What `verify` finds wrong: the details of each kind, a line each."""
    found: dict[str, str] = {}
    for line in verify(Checkout(root)):
        if line.mark == "FAIL":
            found[line.what] = f"{found[line.what]}\n{line.detail}" if line.what in found else line.detail
    return found


def test_an_honest_session_verifies(root: Path) -> None:
    assert failures(root) == {}
    done = tilewright("verify", cwd=root)
    assert done.returncode == 0
    assert done.stdout.count("ok ") == len(done.stdout.splitlines()) == 9
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
        loop.end("enough")

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
        assert loop.status().phase == "ready"

    play(root, scene)
    head = HeadStore(journal_of(root).parent.name).read()
    assert head is not None
    assert head.seq == len(records(root)) - 1


def test_a_head_that_was_deleted_is_on_record(root: Path, state_folder: Path) -> None:
    shutil.rmtree(state_folder)
    assert "it was deleted" in tilewright("status", cwd=root).stdout
    assert "it was deleted" in failures(root)["outside head"]

    async def scene(loop: Loop) -> None:
        assert any(note.startswith("head missing: no head") for note in loop.status().notes)

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
        with pytest.raises(Misuse, match=r"refs/tilewright/\S+ \(\w+\) names record \d+ .*cut off"):
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
        assert loop.status().phase == "ready"
        forge(root, faster, head=True)
        with pytest.raises(Misuse, match=r"record \d+ is not the one that was written"):
            loop.revert()
        assert "is set aside" in loop.end("forged")
        assert loop.status().phase == "none"

    play(root, scene)


def test_a_pointer_back_to_an_earlier_session_is_named(root: Path) -> None:
    first = (root / "sandbox" / "current").read_text()

    async def another(loop: Loop) -> None:
        loop.end("enough")
        await start(loop)
        loop.end("enough, too")

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
        assert loop.status().phase == "ready"
        assert table.read_text() == right
        table.write_text(right + "| 3 | mine | 0.1 | PASS | keep |\n")
        edit(root, WRONG_KERNEL + "\n")
        with pytest.raises(Misuse, match=r"line 6 is .* where the journal gives `nothing`"):
            await loop.run_correctness(quiet)

    play(root, scene)


def amend(root: Path, message: str | None = None) -> str:
    """Another commit in the place of the branch's last one, which the branch is moved to."""
    said = git(root, "log", "-1", "--format=%B") if message is None else message
    commit = git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit-tree", "HEAD^{tree}", "-p", "HEAD^",
                 "-m", said)  # fmt: skip
    git(root, "update-ref", "HEAD", commit)
    return commit


def test_an_amended_commit_is_named(root: Path) -> None:
    amend(root, "mine")
    refused(root, r"branch perf/\S+ is at \w+, but the session left it at \w+; `git reset --soft")


@pytest.mark.parametrize("what", ["trailers", "content"])
def test_a_kept_commit_that_the_journal_was_made_to_name(root: Path, what: str) -> None:
    if what == "trailers":
        kept = of_kind(records(root), "kept")["candidate"]
        commit = amend(root, f"mine\n\nTilewright-Candidate: {kept}\nTilewright-Journal: 0 {'a' * 64}")
    else:
        edit(root, FASTER_KERNEL.replace("1024", "4096"))
        git(root, "add", "--all")
        git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--amend", "--no-edit")
        commit = git(root, "rev-parse", "HEAD")

    def change(found: Records) -> None:
        of_kind(found, "kept")["commit"] = commit

    forge(root, change, head=True)
    found = failures(root)
    if what == "trailers":
        assert "says that it belongs to session" in found["trailers"]
    else:
        assert re.search(r"iteration 2, kept: commit \w+ holds content \w+, not \w+", found["commits"])


def test_a_commit_with_the_right_trailer_and_other_content_is_not_taken_up(root: Path) -> None:
    forge(root, lambda found: [record for record in found if record["data"]["kind"] not in ("kept",)][:-1], head=True)
    edit(root, FASTER_KERNEL.replace("1024", "4096"))
    git(root, "add", "--all")
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--amend", "--no-edit")

    async def scene(loop: Loop) -> None:
        with pytest.raises(Misuse, match="the session left it at"):
            loop.append_result("mine")

    play(root, scene)


@pytest.mark.parametrize("what", ["deleted", "moved"])
def test_refs_that_are_gone_are_named_with_what_brings_them_back(root: Path, what: str) -> None:
    for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/tilewright").split():
        git(root, "update-ref", *(["-d", ref] if what == "deleted" else [ref, "main"]))
    refused(root, r"is no longer kept: refs/tilewright/\S+ was deleted or moved; `git update-ref")
    git(root, "checkout", "--", "task/kernel.py")
    for _ in range(8):
        found = failures(root)
        if "refs" not in found:
            break
        git(root, *found["refs"].split("`git ")[1].split("`")[0].split())
    assert failures(root) == {}


def test_a_replaced_object_deceives_nobody(root: Path) -> None:
    other = git(root, "rev-parse", "HEAD^")
    git(root, "replace", "HEAD", other)
    assert failures(root) == {}


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_protected_file_that_git_was_told_to_overlook_is_named(root: Path, flag: str) -> None:
    git(root, "update-index", flag, "task/task.py")
    assert failures(root) == {}
    (root / "task" / "task.py").write_text("raise SystemExit\n")
    assert "task/task.py" in failures(root)["protected"]


def test_a_secret_that_was_not_committed_to_is_named(root: Path) -> None:
    def change(found: Records) -> None:
        of_kind(found, "checked")["secret"] = "0" * 64

    forge(root, change, head=True)
    assert "is not the one that was committed to" in failures(root)["secrets"]


def test_a_run_that_was_not_committed_to_is_named(root: Path) -> None:
    def change(found: Records) -> Records:
        gone = of_kind(found, "committed")
        return [record for record in found if record["data"] is not gone]

    forge(root, change, head=True)
    assert "was not committed to before it was made" in failures(root)["secrets"]


def test_a_verdict_that_its_result_does_not_give_is_named(root: Path) -> None:
    def change(found: Records) -> None:
        of_kind(found, "measured")["verdict"] |= {"kind": "revert", "reason": "noise"}
        of_kind(found, "row")["optimization"] = "mine"
        of_kind(found, "row")["latency_ms"] = 1e-6

    forge(root, change, head=True)
    found = failures(root)["verdicts"]
    assert "the row's latency_ms, verdict" in found
    assert "the benchmark's verdict is revert (noise), its result gives keep (gain)" in found
    assert "a candidate was kept that no verdict keeps" in found


def test_replay_agrees_with_an_honest_log_and_changes_nothing(root: Path) -> None:
    def snapshot() -> dict[str, bytes]:
        names = [path for path in (root / "sandbox").rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in names} | {"refs": git(root, "for-each-ref").encode()}

    before = snapshot()
    done = tilewright("replay", "2", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"inputs +the same in (\d+) of \1 cases", done.stdout), done.stdout
    assert "modelled speedup" in done.stdout
    assert snapshot() == before
    assert tilewright("replay", "1", cwd=root).returncode == 0
    missing = tilewright("replay", "7", cwd=root).stderr
    assert "iteration 7 has no check on record; the session has iterations 0 to 2\n" in missing


def test_replay_disagrees_with_forged_figures_and_secrets(root: Path) -> None:
    def change(found: Records) -> None:
        faster(found)
        of_kind(found, "row")["latency_ms"] /= 2
        of_kind(found, "checked")["secret"] = "0" * 64

    forge(root, change, head=True)
    done = tilewright("replay", "2", cwd=root)
    assert done.returncode == 1
    assert "FAIL  modelled latency" in done.stdout
    assert "FAIL  secret" in done.stdout
    assert re.search(r"FAIL  inputs +\d+ of \d+ cases had other inputs", done.stdout), done.stdout


def test_replay_names_what_is_missing(root: Path) -> None:
    for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/tilewright").split():
        git(root, "update-ref", "-d", ref)
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    done = tilewright("replay", "1", cwd=root)
    assert done.returncode == 2
    assert re.search(r"the candidate of iteration 1, commit \w+, is not in this repository", done.stderr)
    assert "this repository no longer has it" in failures(root)["refs"]


def test_an_archive_is_compared_with_what_is_known(root: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--branch", "main", str(root), "clone")
    archive = tmp_path / "session.tgz"
    checkout = Checkout(root)
    export_session(checkout, archive)
    checkout.release()

    async def scene(loop: Loop) -> None:
        loop.end("enough")

    play(root, scene)
    with pytest.raises(Misuse, match=r"names record .* it was cut off, or is an older copy"):
        import_session(Checkout(tmp_path / "clone"), archive)
    os.environ["TILEWRIGHT_STATE"] = str(tmp_path / "another machine's")  # the fixture puts it back
    state = import_session(Checkout(tmp_path / "clone"), archive)
    assert failures(tmp_path / "clone") == {}
    assert HeadStore(state.started.session).path.is_file()


def test_results_are_compared_by_interval_and_by_status() -> None:
    def timed(low: float, high: float) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, latency_ms=1.0, speedup=low, speedup_low=low, speedup_high=high)

    def checked(status: Status, digest: str) -> CorrectnessResult:
        case = CaseCheck(case={"N": 1}, hidden=False, status=status, inputs_hash=digest)
        return CorrectnessResult(status=status, cases=[case])

    (near,) = compare_benchmarks(timed(1.01, 1.03), timed(1.02, 1.05), None)
    (far,) = compare_benchmarks(timed(1.01, 1.03), timed(1.04, 1.05), None)
    assert (near.mark, far.mark) == ("ok", "FAIL")
    assert far.detail.endswith("do not overlap")
    (crashed,) = compare_benchmarks(timed(1.01, 1.03), BenchmarkResult(status=Status.CRASHED), None)
    assert crashed.mark == "FAIL"
    lines = compare_checks(checked(Status.PASSED, "a"), checked(Status.WRONG_VALUES, "b"))
    assert [line.mark for line in lines] == ["FAIL", "FAIL"]
    lines = compare_checks(checked(Status.PASSED, ""), checked(Status.PASSED, "b"))
    assert [line.mark for line in lines] == ["warn", "ok"]
    lines = compare_checks(checked(Status.PASSED, "a"), checked(Status.PASSED, "b"), same_rules=False)
    assert [line.mark for line in lines] == ["warn", "ok"]
    assert "another version" in lines[0].detail
    assert commitment("a") != commitment("b")
    assert integrity.refs_of("s") == "refs/tilewright/s"

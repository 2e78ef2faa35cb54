"""Forged commits, refs and runs: what git and the recorded secrets give is found where the journal says otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import FASTER_KERNEL, git
from tests.forging import Records, failures, faster, forge, of_kind, refused
from tests.stage import edit
from tilewright.evaluation.results import BenchmarkResult, CaseCheck, CorrectnessResult, Status
from tilewright.evaluation.seeds import commitment
from tilewright.session.rerun import compare_benchmarks, compare_checks


def test_an_amended_commit_is_named(root: Path) -> None:
    author = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    git(root, *author, "commit", "-q", "--amend", "-m", "mine")
    refused(root, r"branch perf/\S+ is at \w+, but the session left it at \w+; `git update-ref refs/heads")


def test_a_kept_commit_that_the_journal_was_made_to_name(root: Path) -> None:
    edit(root, FASTER_KERNEL.replace("1024", "4096"))
    git(root, "add", "--all")
    git(root, "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-q", "--amend", "--no-edit")
    commit = git(root, "rev-parse", "HEAD")

    def change(found: Records) -> None:
        of_kind(found, "row")["commit"] = commit

    forge(root, change)
    assert re.search(r"iteration 2, kept: commit \w+ holds content \w+, not \w+", failures(root)["commits"])


def test_a_replaced_object_deceives_nobody(root: Path) -> None:
    other = git(root, "rev-parse", "HEAD^")
    git(root, "replace", "HEAD", other)
    assert failures(root) == {}


def test_a_secret_that_was_not_committed_to_is_named(root: Path) -> None:
    def change(found: Records) -> None:
        of_kind(found, "checked")["secret"] = "0" * 64

    forge(root, change)
    assert "is not the one that was committed to" in failures(root)["secrets"]


def test_a_run_that_was_not_committed_to_is_named(root: Path) -> None:
    def change(found: Records) -> Records:
        gone = of_kind(found, "begun")
        return [record for record in found if record["data"] is not gone]

    forge(root, change)
    assert "was not committed to before it was made" in failures(root)["secrets"]


def test_a_row_that_its_results_do_not_give_is_named(root: Path) -> None:
    def change(found: Records) -> None:
        first = of_kind(found, "measured")["first"]
        first |= {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
        of_kind(found, "row")["latency_ms"] = 1e-6

    forge(root, change)
    found = failures(root)["verdicts"]
    assert "the row's latency_ms, verdict, advice do not follow" in found
    assert "a candidate was kept that no verdict keeps" in found


@pytest.mark.slow
def test_rerun_agrees_with_an_honest_log_and_changes_nothing(root: Path) -> None:
    def snapshot() -> dict[str, bytes]:
        names = [path for path in (root / "sandbox").rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in names} | {"refs": git(root, "for-each-ref").encode()}

    before = snapshot()
    done = tilewright("rerun", "2", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "modelled speedup" in done.stdout
    assert snapshot() == before
    assert tilewright("rerun", "1", cwd=root).returncode == 0
    missing = tilewright("rerun", "7", cwd=root).stderr
    assert "iteration 7 has no check on record; the session has iterations 0 to 2\n" in missing


def test_rerun_disagrees_with_forged_figures_and_secrets(root: Path) -> None:
    def change(found: Records) -> None:
        faster(found)
        of_kind(found, "row")["latency_ms"] /= 2
        of_kind(found, "checked")["secret"] = "0" * 64

    forge(root, change)
    done = tilewright("rerun", "2", cwd=root)
    assert done.returncode == 1
    assert "FAIL  modelled latency" in done.stdout


def test_rerun_names_what_is_missing(root: Path) -> None:
    for ref in git(root, "for-each-ref", "--format=%(refname)", "refs/tilewright").split():
        git(root, "update-ref", "-d", ref)
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    done = tilewright("rerun", "1", cwd=root)
    assert done.returncode == 2
    assert re.search(r"the candidate of iteration 1, commit \w+, is not in this repository", done.stderr)
    assert "is not in this repository" in failures(root)["commits"]


def test_results_are_compared_by_interval_and_by_status() -> None:
    def timed(low: float, high: float) -> BenchmarkResult:
        return BenchmarkResult(status=Status.PASSED, latency_ms=1.0, speedup=low, speedup_low=low, speedup_high=high)

    def checked(status: Status) -> CorrectnessResult:
        return CorrectnessResult(status=status, cases=[CaseCheck(case={"N": 1}, hidden=False, status=status)])

    (near,) = compare_benchmarks(timed(1.01, 1.03), timed(1.02, 1.05))
    (far,) = compare_benchmarks(timed(1.01, 1.03), timed(1.04, 1.05))
    assert (near.mark, far.mark) == ("ok", "FAIL")
    assert far.detail.endswith("do not overlap")
    (crashed,) = compare_benchmarks(timed(1.01, 1.03), BenchmarkResult(status=Status.CRASHED))
    assert crashed.mark == "FAIL"
    changed = compare_checks(checked(Status.PASSED), checked(Status.WRONG_VALUES))
    assert changed.mark == "FAIL"
    assert compare_checks(checked(Status.PASSED), checked(Status.PASSED)).mark == "ok"
    assert commitment("a") != commitment("b")

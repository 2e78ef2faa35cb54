"""What a session does to a user's repository, and what it refuses to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import git
from tilewright.errors import UsageError
from tilewright.repository import Repository, RepositoryError

KERNEL = "task/kernel.py"


@pytest.fixture
def repository(make_task: Callable[..., Path]) -> Repository:
    return Repository(make_task())


def test_a_branch_a_commit_and_a_way_back(repository: Repository) -> None:
    base = repository.head()
    name = repository.start_branch("perf/scale-2026-01-01")
    assert repository.branch() == name == "perf/scale-2026-01-01"
    commit = repository.commit({KERNEL: b"changed\n"}, base, "one\n\nTilewright-Candidate: x\n")
    assert repository.head() == base
    (repository.root / KERNEL).write_bytes(b"changed\n")
    repository.advance(name, commit, base)
    repository.stage(commit, [KERNEL])
    assert repository.head() == commit
    assert repository.resolve(f"{commit}^") == base
    assert git(repository.root, "status", "--porcelain") == ""
    assert repository.files(commit)[KERNEL] == b"changed\n"
    assert repository.files(commit)["README.md"] == repository.files(base)["README.md"]
    repository.restore(base, [KERNEL])
    assert repository.read([KERNEL]) == {KERNEL: repository.files(base)[KERNEL]}
    assert repository.changed(base) == []


def test_a_file_without_its_content_is_named(repository: Repository) -> None:
    blob = git(repository.root, "rev-parse", f"HEAD:{KERNEL}")
    (repository.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(UsageError, match=f"no content of {KERNEL}, as in a partial clone: run `git fetch"):
        repository.files(repository.head())


def test_a_taken_branch_name_gets_a_number(repository: Repository) -> None:
    assert repository.start_branch("perf/x") == "perf/x"
    assert repository.start_branch("perf/x") == "perf/x-2"
    assert repository.start_branch("perf/x") == "perf/x-3"


def test_a_branch_moved_by_another_hand_is_not_overwritten(repository: Repository) -> None:
    base = repository.head()
    name = repository.start_branch("perf/x")
    one = repository.commit({KERNEL: b"1\n"}, base, "one")
    two = repository.commit({KERNEL: b"2\n"}, base, "two")
    repository.advance(name, one, base)
    with pytest.raises(RepositoryError, match="update-ref failed"):
        repository.advance(name, two, base)
    assert repository.head() == one


def test_hooks_and_the_users_configuration_stay_out(repository: Repository, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for hook in ("pre-commit", "post-checkout", "reference-transaction", "post-index-change"):
        path = repository.git_dir / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {mark}\n")
        path.chmod(0o755)
    git(repository.root, "config", "core.fsmonitor", f"touch {mark}; true")
    base = repository.head()
    name = repository.start_branch("perf/x")
    commit = repository.commit({KERNEL: b"1\n"}, base, "one")
    repository.advance(name, commit, base)
    repository.stage(commit, [KERNEL])
    repository.restore(base, [KERNEL])
    repository.changed(base)
    assert not mark.exists()


def test_links_and_paths_that_leave_the_tree_are_refused(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (repository.root / KERNEL).unlink()
    (repository.root / KERNEL).symlink_to(tmp_path / "secret")
    with pytest.raises(RepositoryError, match="symbolic link"):
        repository.read([KERNEL])
    with pytest.raises(RepositoryError, match="symbolic link"):
        repository.restore(repository.head(), [KERNEL])
    for name in ("../secret", "/etc/passwd", "task/../../secret"):
        with pytest.raises(RepositoryError, match="outside the repository"):
            repository.read([name])
    (repository.root / "out").symlink_to(tmp_path)
    with pytest.raises(RepositoryError, match="outside the repository"):
        repository.read(["out/secret"])


@pytest.mark.parametrize("revision", ["--output=/tmp/x", "-h", "HEAD^{tree}", "nope", ""])
def test_a_revision_is_a_commit_or_nothing(repository: Repository, revision: str) -> None:
    assert repository.resolve(revision) is None


def test_the_sandbox_is_excluded_once_and_never_shows(repository: Repository) -> None:
    repository.exclude_sandbox()
    repository.exclude_sandbox()
    (repository.root / "sandbox").mkdir()
    (repository.root / "sandbox" / "perf_results.md").write_text("x")
    assert git(repository.root, "status", "--porcelain") == ""
    assert (repository.git_dir / "info" / "exclude").read_text().count("/sandbox/") == 1


def test_what_is_no_repository_is_told_where_commands_run(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="run the command in your repository"):
        Repository(tmp_path)
    git(tmp_path, "init", "-q")
    with pytest.raises(RepositoryError, match="no commit yet"):
        Repository(tmp_path)


def test_a_worktree_has_its_own_git_directory(repository: Repository, tmp_path: Path) -> None:
    git(repository.root, "worktree", "add", "-q", str(tmp_path / "other"))
    other = Repository(tmp_path / "other")
    assert other.root != repository.root
    assert other.git_dir != repository.git_dir
    other.exclude_sandbox()
    (other.root / "sandbox").mkdir()
    (other.root / "sandbox" / "x").write_text("x")
    assert git(other.root, "status", "--porcelain") == ""


@pytest.mark.parametrize("submodule", [True, False])
def test_a_git_directory_elsewhere_is_no_worktree(make_task: Callable[..., Path], submodule: bool) -> None:
    source = make_task()
    root = source.parent / "above"
    if submodule:
        root.mkdir()
        git(root, "init", "--quiet")
        git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(source), "inner")
        root /= "inner"
    else:
        git(source, "clone", "--quiet", f"--separate-git-dir={source.parent / 'elsewhere'}", str(source), str(root))
    assert root.resolve() in Repository(root).worktrees()

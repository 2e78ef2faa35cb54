"""The user's git repository, touched only in the ways a session needs: its own branch, its own refs, named files.

Hooks, filters, fsmonitor and the user's git configuration are kept out of every command; commits are made by plumbing
from bytes in memory, so that what is committed is what was measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # without git, say so in our own words
import git

from tilewright.errors import UsageError
from tilewright.files import write_atomically

Files = dict[str, bytes]
"""File contents by path relative to the repository's root, in POSIX form."""

SANDBOX = "sandbox"
_GUARD = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "commit.gpgSign=false",
    "-c", "core.quotePath=false",
)  # fmt: skip
_ISOLATED = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull,
}  # fmt: skip
_PLAIN, _SYMLINK, _SUBMODULE = "100644", "120000", "160000"


def _safe_directories() -> dict[str, str]:
    """The user's own `safe.directory` settings, as environment for a git that reads no user configuration."""
    asked = ["git", "config", "--global", "--get-all", "safe.directory"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    values = done.stdout.split("\n")[:-1]
    found = {"GIT_CONFIG_COUNT": str(len(values))}
    for number, value in enumerate(values):
        found |= {f"GIT_CONFIG_KEY_{number}": "safe.directory", f"GIT_CONFIG_VALUE_{number}": value}
    return found if values else {}


class RepositoryError(UsageError):
    """The repository is not in a state that allows the step; the text says what to do."""


class Repository:
    """A working tree and its git directory, fixed at construction."""

    def __init__(self, root: Path) -> None:
        """Open the repository that contains `root`. Raises `RepositoryError` where there is none to work in."""
        if shutil.which("git") is None:
            raise RepositoryError("git is missing; install it: `apt-get install git`")
        try:
            self._repo = git.Repo(root, search_parent_directories=True)
        except (git.InvalidGitRepositoryError, git.NoSuchPathError):
            raise RepositoryError(
                f"{root.resolve()} is not in a git repository: run the command in your repository, or give --root"
            ) from None
        if self._repo.bare or self._repo.working_tree_dir is None:
            raise RepositoryError(f"{root} is a bare repository; use a clone with a working tree")
        self.root = Path(self._repo.working_tree_dir).resolve()
        self.git_dir = Path(self._repo.git_dir).resolve()
        name, email = (self._identity(key) for key in ("name", "email"))
        self._repo.git.update_environment(
            **_ISOLATED, **_safe_directories(), GIT_AUTHOR_NAME=name, GIT_COMMITTER_NAME=name,
            GIT_AUTHOR_EMAIL=email, GIT_COMMITTER_EMAIL=email,
        )  # fmt: skip
        self._run("rev-parse", "--git-dir")  # a repository that git will not touch says why here
        if not self._run("rev-parse", "--verify", "--quiet", "HEAD", check=False).strip():
            raise RepositoryError(f"{self.root} has no commit yet; run `git add -A && git commit -m start`")

    # What is there

    def resolve(self, revision: str) -> str | None:
        """The commit that a revision names, or None."""
        found = self._run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", check=False
        ).strip()
        return found or None

    def head(self) -> str:
        """The commit that is checked out."""
        found = self.resolve("HEAD")
        assert found is not None
        return found

    def branch(self) -> str | None:
        """The branch that is checked out, or None when HEAD is detached."""
        return self._run("symbolic-ref", "--quiet", "--short", "HEAD", check=False).strip() or None

    def message(self, commit: str) -> str:
        return self._run("log", "-1", "--format=%B", commit)

    def files(self, commit: str, names: Iterable[str] | None = None) -> Files:
        """The files of a commit (or those of them that are named) by path.

        A symbolic link to another file of the commit stands for that file; other links and submodules are left out.
        """
        found: Files = {}
        links = []
        for name, (mode, blob) in self._entries(commit, names or ()).items():
            if mode == _SUBMODULE:
                continue
            try:
                found[name] = self._repo.git.get_object_data(blob)[3]
            except ValueError:
                text = f"git has no content of {name}, as in a partial clone: run `git fetch --refetch`"
                raise UsageError(text) from None
            if mode == _SYMLINK:
                links.append(name)
        for name in links:
            target = os.path.normpath(PurePosixPath(name).parent / found.pop(name).decode("utf-8", "replace"))
            if target in found and target not in links:
                found[name] = found[target]
        return found

    def worktrees(self) -> list[Path]:
        """The folders of all worktrees of this repository. Git lists the git directory instead of the main worktree
        where that directory lies elsewhere, as a submodule's does."""
        lines = self._run("worktree", "list", "--porcelain").splitlines()
        listed = (Path(line.removeprefix("worktree ")) for line in lines if line.startswith("worktree "))
        return sorted({self.root, *(folder.resolve() for folder in listed)})

    def need_own(self, path: PurePosixPath) -> None:
        """Raises `RepositoryError` for a path that is or lies in a submodule, or in another repository in this one."""
        places = (place for place in (path, *path.parents) if place.parts and (self.root / place / ".git").exists())
        if module := next(places, None):
            raise RepositoryError(
                f"{path} lies in the submodule {module}, which has commits of its own: work there, with `cd "
                f"{self.root / module}`; an MCP server needs `tilewright serve --root {self.root / module}`"
            )

    def whole(self, commit: str, wanted: Callable[[PurePosixPath], bool] = lambda _: True) -> Files:
        """The files of a commit, with those of its submodules that are `wanted`, at the commits that it names. A
        submodule that is not checked out here is left out, as it is for whoever works here."""
        found = self.files(commit)
        for name, (mode, inner) in self._entries(commit, ()).items():
            if mode == _SUBMODULE and (self.root / name / ".git").exists() and wanted(PurePosixPath(name)):
                module = Repository(self.root / name)
                if module.resolve(inner) is None:
                    raise RepositoryError(f"submodule {name} lacks commit {inner[:12]}; run `git submodule update`")
                found |= {f"{name}/{path}": content for path, content in module.whole(inner).items()}
        return found

    def _entries(self, commit: str, names: Iterable[str]) -> dict[str, tuple[str, str]]:
        """Mode and blob of each entry of a commit, or of the named ones."""
        listed = self._run("ls-tree", "-r", "-z", "--full-tree", commit, "--", *names)
        found = {}
        for line in filter(None, listed.split("\0")):
            kind, _, name = line.partition("\t")
            mode, _, blob = kind.split()
            found[name] = (mode, blob)
        return found

    def changed(self, commit: str) -> list[str]:
        """Tracked files of the working tree that differ from a commit's, outside the sandbox."""
        names = set(self._run("diff", "--name-only", "-z", "--no-ext-diff", "--no-renames", commit, "--").split("\0"))
        return sorted(name for name in names if name and not name.startswith(f"{SANDBOX}/"))

    def since(self, commit: str, revision: str) -> list[str]:
        """The commits that lie in the history of `revision` and not in that of a commit, the newest first."""
        return self._run("rev-list", revision, f"^{commit}", "--").split()

    def refs(self, prefix: str) -> dict[str, tuple[str, str]]:
        """Commit and message of each ref under a prefix."""
        listed = self._run("for-each-ref", "--format=%(refname)%00%(objectname)%00%(contents)%00", prefix)
        parts = listed.split("\0")[:-1]
        return {
            ref.strip(): (commit, message)
            for ref, commit, message in zip(parts[::3], parts[1::3], parts[2::3], strict=True)
        }

    def read(self, names: Iterable[str]) -> Files:
        """Files of the working tree as they are now. Raises `RepositoryError` where one is missing or no plain file."""
        found: Files = {}
        for name in names:
            path = self._plain(name)
            if not path.is_file():
                raise RepositoryError(f"{name} is missing from the working tree; `revert` brings it back")
            found[name] = path.read_bytes()
        return found

    # What is changed

    def exclude_sandbox(self) -> None:
        """Keep the sandbox out of git's sight in this clone, without touching tracked files."""
        path = Path(self._repo.common_dir) / "info" / "exclude"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if f"/{SANDBOX}/" not in lines:
            write_atomically(path, "\n".join([*lines, f"/{SANDBOX}/"]) + "\n")

    def start_branch(self, name: str) -> str:
        """Create a branch at HEAD and check it out; a number is added where the name is taken. Gives the name."""
        candidate, number = name, 2
        while self._run("show-ref", "--verify", f"refs/heads/{candidate}", check=False).strip():
            candidate, number = f"{name}-{number}", number + 1
        self._run("update-ref", f"refs/heads/{candidate}", self.head(), "0" * 40)
        self.switch(candidate)
        return candidate

    def name_branch(self, name: str, commit: str) -> None:
        """Create a branch at a commit, and check nothing out."""
        if self._run("check-ref-format", "--branch", name, check=False).strip() != name:
            raise RepositoryError(f"{name!r} is no name of a branch")
        if self.resolve(f"refs/heads/{name}") is not None:
            raise RepositoryError(f"branch {name} is there already; name another with --branch")
        self._run("update-ref", f"refs/heads/{name}", commit, "0" * 40)

    def folders_with(self, name: str) -> list[PurePosixPath]:
        """The folders with a file of this name that git does not ignore."""
        known = ("--cached", "--others", "--exclude-standard")
        listed = self._run("ls-files", "-z", *known, "--", f":(top,glob)**/{name}")
        return sorted({PurePosixPath(path).parent for path in listed.split("\0") if (self.root / path).is_file()})

    def remote(self) -> str:
        """The remote that a push goes to: `origin`, else the first; empty where there is none."""
        names = self._run("remote").split()
        return "origin" if "origin" in names else next(iter(names), "")

    def switch(self, branch: str) -> None:
        """Point HEAD at a branch whose commit is the one that is checked out; no file changes."""
        self._run("symbolic-ref", "HEAD", f"refs/heads/{branch}")

    def commit(self, files: Files, parent: str, message: str) -> str:
        """A commit object on `parent` whose tree has `files` instead of its own; no ref moves."""
        with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self._run("read-tree", parent, extra=index)
            known = self._entries(parent, files)
            for name, content in files.items():
                mode = known[name][0] if name in known else _PLAIN
                blob = self._store(content, Path(folder))
                self._run("update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}", extra=index)
            tree = self._run("write-tree", extra=index).strip()
        return self._run("commit-tree", tree, "-p", parent, "-m", message).strip()

    def recommit(self, commit: str, parent: str, message: str) -> str:
        """A commit object on `parent` that has the tree of another commit; no ref moves."""
        return self._run("commit-tree", f"{commit}^{{tree}}", "-p", parent, "-m", message).strip()

    def advance(self, branch: str, new: str, old: str) -> None:
        """Move a branch from `old` to `new`. Raises where another hand moved it."""
        self._run("update-ref", f"refs/heads/{branch}", new, old)

    def stage(self, commit: str, files: Iterable[str]) -> None:
        """Give the named files the content in the index that they have in a commit."""
        for name, (mode, blob) in self._entries(commit, list(files)).items():
            self._run("update-index", "--add", "--cacheinfo", f"{mode},{blob},{name}")

    def keep(self, ref: str, commit: str) -> None:
        """Make a commit reachable under a ref of ours."""
        self._run("update-ref", ref, commit)

    def restore(self, commit: str, names: Iterable[str]) -> None:
        """Give the named files of the working tree and the index the content they have in a commit."""
        wanted = self.files(commit, list(names))
        for name, data in wanted.items():
            path = self._plain(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
        self.stage(commit, wanted)

    def forget(self, ref: str, commit: str) -> None:
        """Delete a ref that stands at `commit`."""
        self._run("update-ref", "-d", ref, commit)

    def bundle(self, target: Path, refs: Iterable[str]) -> None:
        """Write refs, with their history, to a git bundle."""
        self._run("bundle", "create", str(target), *refs)

    # How

    def _plain(self, name: str) -> Path:
        pure = PurePosixPath(name)
        path = self.root / pure
        if pure.is_absolute() or ".." in pure.parts or not path.parent.resolve().is_relative_to(self.root):
            raise RepositoryError(f"{name} lies outside the repository")
        if path.is_symlink():
            raise RepositoryError(f"{name} is a symbolic link; an editable file must be a plain file")
        return path

    def _store(self, content: bytes, folder: Path) -> str:
        file = folder / "blob"
        file.write_bytes(content)
        return self._run("hash-object", "-w", "--no-filters", "--", str(file)).strip()

    def _identity(self, key: str) -> str:
        fallback = {"name": "Tilewright", "email": "tilewright@localhost"}[key]
        try:
            return str(self._repo.config_reader().get_value("user", key, fallback))
        except (OSError, ValueError):
            return fallback

    def _run(self, *arguments: str, check: bool = True, extra: dict[str, str] | None = None) -> str:
        status, output, error = self._repo.git.execute(
            ["git", *_GUARD, *arguments],
            env=extra,
            with_extended_output=True,
            with_exceptions=False,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
        )
        if check and status:
            raise RepositoryError(f"git {arguments[0]} failed: {str(error).strip() or f'status {status}'}")
        assert isinstance(output, bytes)
        return output.decode("utf-8", "surrogateescape")

"""A disk that takes no more: each call says so in one sentence, loses no result, and works once there is room."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL, SLOWER_KERNEL, git
from tests.forging import failures, of_kind, records
from tests.stage import edit, play, quiet, start
from tilewright.files import write_atomically
from tilewright.repository import Repository
from tilewright.session.checkout import Checkout
from tilewright.session.export import export_session
from tilewright.session.loop import Loop


def full(path: object = None) -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path and str(path))


class Disk:
    """Takes so many writes, and then is full."""

    def __init__(self) -> None:
        self.room = 0

    def take(self, path: object = None) -> None:
        if not self.room:
            raise full(path)
        self.room -= 1


async def insist(disk: Disk, call: Callable[[], Any]) -> Any:
    """Repeat a call with room for one more write each time, so that each of its writes fails once; its answer."""
    for room in range(40):
        disk.room = room
        try:
            answer = call()
            return await answer if isinstance(answer, Awaitable) else answer
        except OSError as error:
            assert error.errno == errno.ENOSPC
    raise AssertionError("the call never works again")


async def whole_session(loop: Loop, root: Path, disk: Disk) -> None:
    await insist(disk, lambda: start(loop))
    edit(root, FASTER_KERNEL)
    await insist(disk, lambda: loop.run_correctness(quiet))
    await insist(disk, lambda: loop.run_benchmark(quiet))
    kept = await insist(disk, loop.checkpoint)
    assert kept.commit == git(root, "rev-parse", "HEAD")
    await insist(disk, lambda: loop.append_result("larger tiles", quiet))
    edit(root, SLOWER_KERNEL)
    await insist(disk, lambda: loop.run_correctness(quiet))
    await insist(disk, lambda: loop.run_benchmark(quiet))
    back = await insist(disk, loop.revert)
    assert git(root, "show", f"{back.recovery}:task/kernel.py") == SLOWER_KERNEL.strip()
    await insist(disk, lambda: loop.append_result("smaller tiles", quiet))
    await insist(disk, lambda: loop.end("enough", quiet))


@pytest.mark.parametrize("what", ["journal", pytest.param("git", marks=pytest.mark.slow)])
def test_each_write_of_a_session_fails_once(
    make_task: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    root, disk = make_task(), Disk()
    run, fsync = Repository._run, os.fsync
    changing = {"hash-object", "write-tree", "commit-tree", "update-ref", "update-index", "symbolic-ref", "read-tree"}

    def run_git(self: Repository, *arguments: str, **options: Any) -> str:
        asks = arguments[0] == "symbolic-ref" and "--quiet" in arguments
        if arguments[0] in changing and not asks:
            disk.take(self.git_dir)
        return run(self, *arguments, **options)

    def sync(handle: int) -> None:
        name = str(Path(f"/proc/self/fd/{handle}").readlink())
        if name.endswith("journal.jsonl"):
            disk.take()
        fsync(handle)

    if what == "git":
        monkeypatch.setattr(Repository, "_run", run_git)
    else:
        monkeypatch.setattr(os, "fsync", sync)

    async def scene(loop: Loop) -> None:
        await whole_session(loop, root, disk)

    play(root, scene)
    monkeypatch.undo()
    assert failures(root) == {}
    kinds = [record["data"]["kind"] for record in records(root)]
    assert kinds.count("row") == 3
    settled = [bool(record["data"]["commit"]) for record in records(root) if record["data"]["kind"] == "settled"]
    assert (settled, kinds.count("ended")) == ([True, False], 1)
    assert kinds.count("checked") == kinds.count("measured") == 3
    assert of_kind(records(root), "row")["optimization"] == "smaller tiles"
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    (mine, *left) = git(root, "for-each-ref", "--sort=-committerdate", "--format=%(objectname)", "refs/heads").split()
    assert mine == git(root, "rev-parse", "HEAD")
    assert {*left} == {git(root, "rev-parse", "main")}, "a branch that could not be taken back holds nothing of its own"


def limited(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command whose process may write no file of more than a few bytes, as on a disk that is full."""
    return subprocess.run(
        [sys.executable, "-B", "-m", "tilewright", *arguments],
        cwd=root, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "200"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8, 8)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [
        ("session", "start", "task", "--backend", "cpu"),
        ("check", "task"),
        ("dump-ir", "task"),
        ("skills", "install"),
        ("demo", "--backend", "cpu", "--only", "01", "--folder", "demo"),
    ],
)
def test_a_command_that_cannot_write_says_so(make_task: Callable[..., Path], command: tuple[str, ...]) -> None:
    root = make_task()
    done = limited(root, *command)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr + done.stdout
    assert "[Errno 27] File too large" in done.stderr
    assert git(root, "branch", "--show-current") == "main"
    assert git(root, "for-each-ref", "refs/tilewright", "refs/heads/perf") == ""


def test_a_file_that_cannot_be_replaced_stays_and_leaves_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernel.py"
    path.write_text("old")
    path.chmod(0o755)
    write_atomically(path, b"new\r\n")
    assert path.read_bytes() == b"new\r\n"
    assert path.stat().st_mode & 0o777 == 0o755

    def sync(_: int) -> None:
        raise full()

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(OSError, match="No space left") as raised:
        write_atomically(path, "newer")
    assert raised.value.filename == str(path)
    assert path.read_bytes() == b"new\r\n"
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.slow
def test_an_archive_that_cannot_be_written_spares_the_older_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = root.parent / "session.tgz"
    archive.write_bytes(b"older")

    def sync(_: int) -> None:
        raise full()

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(os, "fsync", sync)
        export_session(Checkout(root), archive)
    assert archive.read_bytes() == b"older"

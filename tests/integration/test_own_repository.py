"""A session in this repository itself, whose `sandbox/` has a page that is tracked."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import commit_all, git
from tests.stage import play, quiet, start
from tilewright.evaluation.results import Status
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop

ROOT = Path(__file__).parents[2]
EXAMPLE = "assets/examples/01_rmsnorm_occupancy_only"
PAGE = "sandbox/README.md"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository with the files of this one as they are now, but for what git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("the tests lie in no git repository")
    copy = tmp_path / "own"
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("benchmarks/evidence/"):  # megabytes that no session reads
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    commit_all(copy)
    return copy


@pytest.mark.slow
def test_a_session_leaves_what_the_page_says_and_git_sees_none_of_it(own: Path) -> None:
    assert git(own, "ls-files", "sandbox") == PAGE
    kernel, page = own / EXAMPLE / "fixed_launch.py", (own / PAGE).read_text()

    async def scene(loop: Loop) -> None:
        assert (await start(loop, EXAMPLE)).phase == "ready"
        (own / PAGE).write_text(page + "\nA note.\n")  # no file of the task: it is in no one's way
        kernel.write_text(kernel.read_text().replace("keepdims=True) / N", "keepdims=True) / (2 * N)"))
        assert (await loop.run_correctness(quiet)).status is Status.WRONG_VALUES
        assert loop.revert().recovery
        await loop.append_result("half the mean", quiet)
        dumper = Dumper(loop.checkout, loop.jobs)
        folder, _ = loop.task_of(EXAMPLE)
        assert (await dumper.dump(folder, ["sm_90"], "sass", quiet)).status is Status.PASSED
        await dumper.close()

    play(own, scene)
    (own / PAGE).write_text(page)
    assert git(own, "status", "--porcelain", "--untracked-files=all") == ""
    assert git(own, "ls-files", "sandbox") == PAGE
    named = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    patterns = [re.sub(r"<[a-z]+>", "*", name).rstrip("/") for name in named]
    found = {path for pattern in patterns for path in (own / "sandbox").glob(pattern)}
    left = {path for path in (own / "sandbox").rglob("*") if path.is_file()} - {own / PAGE}
    assert all(path in found or found & set(path.parents) for path in left), "the page does not name all that is left"
    unseen = [pattern for pattern in patterns if not list((own / "sandbox").glob(pattern))]
    assert unseen == ["autotune"]  # which test_autotune.py finds there

"""Fixtures that all tests share: scratch repositories with a task, and the skip of GPU tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.referees import Referees
from tilewright.bundled import examples
from tilewright.evaluation.evaluator import Evaluator

if TYPE_CHECKING:
    from tilewright.session.loop import Loop

settings.register_profile("tilewright", deadline=None)  # the first example of a test pays for its imports
settings.load_profile("tilewright")

collect_ignore = ["repositories"]
"""Repositories as users have them, with tests of their own, which sessions are tried on."""
os.environ.setdefault("TILEWRIGHT_SPARES", "0")  # tests share the processors: a worker is started when one is needed
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and torch's threads would wait for each other there, at full speed

SOURCES = pytest.StashKey[dict[Path, tuple[int, int]]]()

SCALE_TOML = """
name = "scale"
entry = "kernel:scale"
editable = ["kernel.py"]
timeout_s = 20

[[cases]]
N = 1048576
dtype = "float32"

[[cases]]
backend = "cpu"
N = 512
dtype = "float32"

[hidden]
N = { min = 1, max = 700 }
"""

SCALE_TASK = """
import torch

from tilewright.task import Work


def make_inputs(case, generator):
    dtype = getattr(torch, case["dtype"])
    return {"x": torch.randn(case["N"], generator=generator, device=generator.device, dtype=dtype), "factor": 3.0}


def reference(x, factor):
    return x * factor


def work(case):
    return Work(bytes=8 * case["N"], flops=case["N"], dtype="float32")
"""

SCALE_KERNEL = """
import cuda.tile as ct
import torch

TILE = 64


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out
"""

RACING_KERNEL = """
import cuda.tile as ct
import torch

TILE = 64


@ct.kernel
def scale_kernel(x, out, shared, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    if block == 0:
        ct.store(shared, index=(0,), tile=ct.full((1,), factor, ct.float32))
    factor = ct.load(shared, index=(0,), shape=(1,))
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def scale(x, factor):
    out, shared = torch.empty_like(x), torch.zeros(1, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, shared, factor, TILE))
    return out
"""
"""Right where the first block comes first, as in the interpreter."""
FASTER_KERNEL = SCALE_KERNEL.replace("TILE = 64", "TILE = 1024")
SLOWER_KERNEL = SCALE_KERNEL.replace("TILE = 64", "TILE = 16")


def commit_all(repository: Path, message: str = "start") -> None:
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@localhost",
            "-c",
            "commit.gpgSign=false",
            "commit",
            "--quiet",
            f"--message={message}",
        ],
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="session", autouse=True)
def referees() -> Iterator[None]:
    """Tests that start a referee each have one that begins with torch imported."""
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Referees()) as made:
        patch.setattr(Evaluator, "_supervised", lambda evaluator, channel: made.supervised(evaluator, channel))
        yield


def _repository(root: Path, kernel: str, toml: str, task: str) -> Path:
    folder = root / "task"
    folder.mkdir(parents=True)
    for name, text in (("task.toml", toml), ("task.py", task), ("kernel.py", kernel)):
        (folder / name).write_text(text)
    (root / "README.md").write_text("a user's repository\n")
    commit_all(root)
    return root


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """Make a committed repository that holds the `scale` task in its folder `task`; the parts can be replaced."""

    def make(kernel: str = SCALE_KERNEL, toml: str = SCALE_TOML, task: str = SCALE_TASK, name: str = "repo") -> Path:
        return _repository(tmp_path / name, kernel, toml, task)

    return make


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the `scale` task, and a session there that has its baseline alone."""
    from tests.stage import play, start

    small = SCALE_TOML.replace("1048576", "262144")  # a server need not import torch's compiler for it
    root = _repository(tmp_path_factory.mktemp("baseline") / "repo", SCALE_KERNEL, small, SCALE_TASK)

    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"

    play(root, scene)
    return root


@pytest.fixture
def begun(baseline: Path, tmp_path: Path) -> Path:
    """A copy of that repository: a test goes on from there, and need not wait for a baseline of its own."""
    root = shutil.copytree(baseline, tmp_path / "repo", symlinks=True)
    git(root, "status")  # the index knows the files' places again
    return root


@pytest.fixture(scope="session")
def example_folders() -> list[Path]:
    return sorted(folder for folder in examples().iterdir() if folder.is_dir())


def _sources() -> dict[Path, tuple[int, int]]:
    """Every module of the package and of the tests, by when it was written and its size."""
    found = {}
    for folder in ("server", "tests"):
        for path in (Path(__file__).parents[1] / folder).rglob("*.py"):
            with contextlib.suppress(OSError):
                found[path] = path.stat().st_mtime_ns, path.stat().st_size
    return found


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[SOURCES] = _sources()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Referees and workers read the package anew whenever they start: tests of a tree that is edited meanwhile run
    several versions of it beside each other, and fail in ways that no version explains."""
    before, now = config.stash.get(SOURCES, {}), _sources()
    if changed := sorted(path.name for path in before.keys() | now.keys() if before.get(path) != now.get(path)):
        terminalreporter.write_line(f"changed while the tests ran; failures may come from that: {', '.join(changed)}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    from tilewright.gpu.telemetry import find_gpu

    if find_gpu() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU; the driver shows none"))

"""One session that is played, of which each test that forges takes a copy; and a replayer on a stand-in driver."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FASTER_KERNEL
from tests.fakedriver.build import built
from tests.forging import WRONG_KERNEL
from tests.stage import edit, judged, play, quiet
from tilewright.referee.replayer import Replayer
from tilewright.session.loop import Loop
from tilewright.session.runs import Runs

_KNOWN: dict[str, Any] = {}


@pytest.fixture
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where runs happen, and the work of the `scale` task, as the first referee said it. Sessions for whose runs a test
    gives the results start no further one."""

    def once(name: str, real: Callable[[Runs], Awaitable[Any]]) -> Callable[[Runs], Awaitable[Any]]:
        async def asked(runs: Runs) -> Any:
            if name not in _KNOWN:
                _KNOWN[name] = await real(runs)
            return _KNOWN[name]

        return asked

    for name in ("environment", "work"):
        monkeypatch.setattr(Runs, name, once(name, getattr(Runs, name)))


@pytest.fixture(scope="session")
def played(baseline: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a repository, and a session there: a baseline, a wrong candidate, and a keep."""
    place = tmp_path_factory.mktemp("played")
    shutil.copytree(baseline, place / "repo", symlinks=True)

    async def scene(loop: Loop) -> None:
        edit(place / "repo", WRONG_KERNEL)
        await loop.run_correctness(quiet)
        loop.revert()
        await loop.append_result("adds instead", quiet)
        await judged(loop, FASTER_KERNEL)
        loop.checkpoint()
        await loop.append_result("large tiles", quiet)

    play(place / "repo", scene)
    return place


@pytest.fixture
def root(played: Path, tmp_path: Path) -> Path:
    """The repository of a copy of that session."""
    shutil.copytree(played / "repo", tmp_path / "repo")
    return tmp_path / "repo"


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library that stands in for the CUDA driver's."""
    return built(tmp_path_factory.mktemp("driver") / "lib")


@pytest.fixture(scope="session")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a GPU with so little memory that no round fits."""
    return built(tmp_path_factory.mktemp("driver") / "lib", TOTAL_MIB=260)


@pytest.fixture
def replayer(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replayer]:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    with Replayer(tmp_path) as made:
        yield made

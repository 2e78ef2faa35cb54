"""Command tasks under attack: from outside the tests' process nothing gets through, from inside it a known few do."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.conftest import commit_all, git
from tests.redteam.harness import NEGATIVE_CLOCK, REMEMBER, SLOW_CLOCK, STOPPED, SURVIVE, WRONG, edited
from tests.stage import play, quiet, running
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.repository import Files, Repository
from tilewright.session.loop import Loop
from tilewright.session.runs import Runs
from tilewright.task import Backend

MINIGYM = Path(__file__).parents[1] / "repositories" / "minigym"
KERNEL = "src/minigym/ops/cutile/layer_norm.py"
SOURCE = (MINIGYM / KERNEL).read_text()
LIMIT_S = 900.0


class Stage:
    """Runs on the fixture repository, as a session makes them."""

    def __init__(self, root: Path) -> None:
        self._runner = asyncio.Runner()
        repository = Repository(root)
        self._runs = Runs(Backend.CPU, "sm_90", repository.whole(repository.head()), PurePosixPath("."), root)

    def files(self, source: str) -> Files:
        return {KERNEL: source.encode()}

    def check(self, source: str) -> Any:
        return self._do(self._runs.correctness(self.files(source), "", LIMIT_S, lambda _: None))

    def latency(self, source: str) -> Any:
        return self._do(self._runs.benchmark(self.files(source), None, "", LIMIT_S, lambda _: None))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        self._runner.run(self._runs.close())
        self._runner.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("attacked") / "repository"
    shutil.copytree(MINIGYM, root, ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(root)
    made = Stage(root)
    assert made.check(SOURCE).passed
    assert made.check(SOURCE.replace(*WRONG)).status is Status.FAILED, "what the attacks want to pass is caught"
    yield made
    made.close()


@pytest.mark.parametrize("name", STOPPED)
def test_an_attack_from_inside_is_stopped(stage: Stage, name: str) -> None:
    attack, status = STOPPED[name]
    found = stage.check(edited(SOURCE, attack))
    assert found.status is status, found.message


@pytest.mark.parametrize("name", SURVIVE)
def test_a_known_attack_from_inside_gets_through(stage: Stage, name: str) -> None:
    """Fails on the day that it is stopped: then it belongs to the others, and the README has to say so."""
    assert stage.check(edited(SOURCE, SURVIVE[name])).passed


@pytest.mark.slow
def test_the_harness_believes_its_own_clock(stage: Stage) -> None:
    honest = stage.latency(SOURCE).latency_ms
    assert stage.latency(edited(SOURCE, SLOW_CLOCK, wrong=False)).latency_ms < honest / 100
    assert stage.latency(edited(SOURCE, REMEMBER, wrong=False)).latency_ms < honest / 2


def test_a_negative_figure_is_shown_and_never_counted(stage: Stage) -> None:
    found = stage.latency(edited(SOURCE, NEGATIVE_CLOCK, wrong=False))
    assert found.status is Status.CRASHED
    assert "is no latency, in" in found.message


def test_nothing_outlives_the_run_that_started_it(stage: Stage) -> None:
    attack = "import subprocess\n\nsubprocess.Popen(['sleep', '619.5'], start_new_session=True)\n"
    assert stage.check(edited(SOURCE, attack, wrong=False)).passed
    assert not running("619.5")


CONFTEST = """
import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.outcome = "passed"
"""
SETTINGS = "[pytest]\naddopts = -p evil\n"
OUTSIDE: dict[str, dict[str, str]] = {
    "a conftest.py beside the tests": {"tests/ops/conftest.py": CONFTEST},
    "a conftest.py in the root": {"conftest.py": CONFTEST},
    "settings that load a plugin": {"pytest.ini": SETTINGS, "evil.py": CONFTEST, "src/evil.py": CONFTEST},
    "a module that shadows another": {
        "src/numpy/testing.py": "def assert_allclose(*_, **__): ...\n",
        "numpy.py": "raise SystemExit(0)\n",
    },
    "modules that Python loads at its start": {
        "sitecustomize.py": "import os\nos._exit(0)\n",
        "src/sitecustomize.py": "import os\nos._exit(0)\n",
        "src/usercustomize.py": "import os\nos._exit(0)\n",
        "src/evil.pth": "import os; os._exit(0)\n",
    },
    "results of an earlier run": {"junit.xml": "<testsuites/>", ".env": "PYTEST_ADDOPTS=-p evil\n"},
}


@pytest.mark.timeout(1200)
@pytest.mark.slow
def test_nothing_outside_the_editable_files_reaches_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One session in which an agent tries one thing after another to have a wrong kernel passed."""
    root = tmp_path / "repository"
    shutil.copytree(MINIGYM, root, ignore=shutil.ignore_patterns("__pycache__"))
    commit_all(root)
    wrong = SOURCE.replace(*WRONG)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):
        monkeypatch.setenv(name, "-p evil" if name == "PYTEST_ADDOPTS" else "evil")
    monkeypatch.setenv("PYTHONPATH", str(root))

    async def refused(loop: Loop, name: str, number: int, status: Status) -> None:
        (root / KERNEL).write_text(f"{wrong}# try {number}\n")
        found = await loop.run_correctness(quiet, LIMIT_S)
        assert found.status is status, (name, found.summary)
        loop.revert()
        await loop.append_result(name, quiet)

    async def scene(loop: Loop) -> None:
        started = await loop.start(".", quiet, wait_s=LIMIT_S)
        assert started.phase == "ready", started.summary
        for number, (name, files) in enumerate(OUTSIDE.items()):
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            await refused(loop, name, number, Status.FAILED)
            for path in files:
                (root / path).unlink()
        test = root / "tests/ops/test_layer_norm.py"
        kept = test.read_text()
        test.write_text(kept.replace("np.testing.assert_allclose(", "bool("))
        with pytest.raises(UsageError, match="protected files differ"):
            await loop.run_correctness(quiet, LIMIT_S)
        git(root, "update-index", "--assume-unchanged", "tests/ops/test_layer_norm.py")
        await refused(loop, "an edited test that git was told to overlook", 91, Status.FAILED)
        test.write_text(kept)
        task = (root / "task.toml").read_text()
        (root / "task.toml").write_text(task.replace("test_ and not test_perf", "cutile-1-64"))
        with pytest.raises(UsageError, match="protected files differ"):
            await loop.run_correctness(quiet, LIMIT_S)
        (root / "task.toml").write_text(task)
        assert all("| revert |" in row for row in loop.status().tried[1:])

    play(root, scene)

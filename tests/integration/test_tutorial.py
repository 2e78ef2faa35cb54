"""The tutorial and the how-to pages are run as their reader would run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from tests.pages import session
from tests.pages.page import ROOT, read

DOCS = ROOT / "docs"
OPS = '''"""An activation function."""

import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def gelu_rows(x, out, TILE: ct.Constant[int]):
    place = (ct.bid(0), ct.bid(1))
    value = ct.load(x, index=place, shape=(1, TILE), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    inner = 0.7978845608 * (value + 0.044715 * value * value * value)
    ct.store(out, index=place, tile=(0.5 * value * (1.0 + ct.tanh(inner))).astype(out.dtype))


def gelu(x):
    out = torch.empty_like(x)
    rows, columns = x.shape
    ct.launch(torch.cuda.current_stream(), (rows, ct.cdiv(columns, TILE)), gelu_rows, (x, out, TILE))
    return out


def gelu_torch(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
'''


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    person = {f"GIT_{who}_{what}": "me@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | person | {"PATH": path, "HOME": str(tmp_path / "home"), "COLUMNS": "120"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


@pytest.fixture
def call(repository: Path, environment: dict[str, str]) -> Callable[[str], None]:
    def run(command: str) -> None:
        subprocess.run(command, shell=True, cwd=repository, env=environment, check=True)

    return run


@pytest.mark.slow
def test_the_tutorial_ends_with_a_kept_improvement(repository: Path, environment: dict[str, str]) -> None:
    assert session.play(read(DOCS / "tutorial.md"), repository, environment) >= 15


@pytest.mark.slow
def test_a_function_goes_from_its_task_to_its_review(
    repository: Path, environment: dict[str, str], call: Callable[[str], None]
) -> None:
    def play(name: str) -> int:
        return session.play(
            read(DOCS / "how-to" / name), repository, environment, lambda line: re.sub(r"\d{4}-\d\d-\d\d", today, line)
        )

    today = date.today().isoformat()
    package = repository / "mypkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "ops.py").write_text(OPS)
    call("git init --quiet --initial-branch=main && git add mypkg && git commit --quiet --message ops")
    assert play("function.md") >= 3
    call("tilewright session start perf/gelu --rules stop_on_minor_gain=false")
    assert play("profile.md") >= 6
    (package / "ops.py").write_text(OPS.replace("TILE = 256", "TILE = 4096"))
    call("tilewright try 'larger tiles' && tilewright session end")
    assert play("review.md") >= 6
    assert play("tune.md") >= 3
    assert play("read-the-log.md") == 0


@pytest.mark.slow
def test_a_repository_goes_to_its_task(
    repository: Path, environment: dict[str, str], call: Callable[[str], None]
) -> None:
    shutil.copytree(ROOT / "tests" / "repositories" / "minigym", repository, dirs_exist_ok=True)
    call("git init --quiet --initial-branch=main && git add --all && git commit --quiet --message ops")

    def drafted(command: str) -> str:
        """`init` ends with 2: a person has to fill in the draft."""
        return f"{command}; test $? = 2" if command == "tilewright init" else command

    assert session.play(read(DOCS / "how-to" / "repository.md"), repository, environment, drafted) >= 2


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        (["~0.817576 PASS"], ["~0.41  PASS"], True),
        (["PASS"], ["FAIL"], False),
        (["...", "nothing found"], ["checking", "nothing found"], True),
        (["nothing found"], ["checking", "nothing found"], False),
        (["committed ..."], ["committed 6fef on perf"], True),
        (["committed ..."], ["nothing"], False),
        ([], ["a line"], False),
        (["a line"], [], False),
    ],
)
def test_output_is_compared(shown: list[str], said: list[str], same: bool) -> None:
    assert session.matches(shown, said) is same

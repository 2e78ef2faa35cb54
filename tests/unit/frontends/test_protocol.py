"""The registry of languages, and what is asked of each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.plain import PLAIN
from tilewright.errors import UsageError
from tilewright.frontends.protocol import FRONTENDS, imported_runtimes, need_packages
from tilewright.task import Frontend

NAMES = [frontend.name for frontend in FRONTENDS]


def test_each_language_of_a_task_is_found_by_its_name() -> None:
    assert [frontend.value for frontend in Frontend] == NAMES
    assert [FRONTENDS[name].name for name in NAMES] == NAMES
    assert [name for name in NAMES if not FRONTENDS[name].has_kernels] == ["torch"]


def test_an_unknown_name_is_answered_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"^no frontend 'plain': there are cutile, triton, torch$"):
        FRONTENDS["plain"]


def test_a_language_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FRONTENDS, "dotted", (*FRONTENDS.dotted, "tests.plain:PLAIN"))
    assert FRONTENDS["plain"] is PLAIN
    need_packages(PLAIN)
    assert SyntaxError in {kind for runtime in imported_runtimes() for kind in runtime.compile_errors}


@pytest.mark.parametrize("name", NAMES)
def test_asking_for_a_language_imports_neither_it_nor_torch(name: str) -> None:
    program = (
        "import sys; from tilewright.frontends.protocol import FRONTENDS\n"
        f"FRONTENDS[{name!r}]; print([name for name in ('torch', 'triton', 'cuda.tile') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""`tilewright compare`: the kernel before and after beside the task's reference in torch, on the cpu backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commandline import tilewright
from tests.conftest import SCALE_KERNEL, SCALE_TOML, commit_all


@pytest.mark.slow
def test_before_after_torch_and_others_in_one_table(make_task: Callable[..., Path], tmp_path: Path) -> None:
    root = make_task()
    (root / "task" / "kernel.py").write_text(SCALE_KERNEL.replace("TILE = 64", "TILE = 512"))
    (tmp_path / "other.py").write_text(SCALE_KERNEL.replace("TILE = 64", "TILE = 128"))
    (tmp_path / "wrong.py").write_text("def scale(x, factor):\n    raise RuntimeError('not today')\n")
    done = tilewright(
        "compare", "task", "--backend", "cpu", "--root", str(root),
        "--with", f"other={tmp_path / 'other.py'}", "--with", f"wrong={tmp_path / 'wrong.py'}",
    )  # fmt: skip
    assert done.returncode == 1
    assert "wrong: raised: RuntimeError: not today" in done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:2] == "| "]
    timed = [row for row in rows if len(row) == 5]
    by_name = {row[0]: row[1:] for row in timed}
    assert list(by_name) == ["", "before", "after", "torch", "other", "wrong"]
    latency = {name: float(cells[0].lstrip("~")) for name, cells in by_name.items() if cells[0].startswith("~")}
    assert latency["after"] < latency["other"] < latency["before"]
    assert latency["torch"] < latency["before"]
    assert by_name["wrong"][:2] == ["-", "raised"]
    assert "NVIDIA H200 (modelled)" in done.stdout


OUT = """
import torch

class Library:
    @staticmethod
    def scaled(x, factor):
        return x * factor

def by_position(a, b):
    return torch.mul(a, b)
"""


@pytest.mark.slow
def test_rows_are_functions_of_files_and_of_packages(make_task: Callable[..., Path], tmp_path: Path) -> None:
    root = make_task()
    (tmp_path / "library.py").write_text(OUT)
    done = tilewright(
        "compare", "task", "--backend", "cpu", "--root", str(root),
        "--with", "mul=torch:mul", "--with", "tensor=torch:Tensor.mul",
        "--with", f"method={tmp_path / 'library.py'}:Library.scaled",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:2] == "| "]
    timed = {row[0]: row[1] for row in rows if len(row) == 5}
    assert [*timed] == ["", "before", "torch", "mul", "tensor", "method"]
    assert timed["mul"] == timed["tensor"] == timed["method"] == timed["torch"], "all are one multiplication"


@pytest.mark.slow
def test_the_row_of_torch_keeps_what_a_package_imports_from_the_kernels_file(make_task: Callable[..., Path]) -> None:
    toml = SCALE_TOML.replace("kernel:scale", "parts.kernel:scale").replace("kernel.py", "parts/kernel.py")
    root = make_task(toml=toml)
    parts = root / "task" / "parts"
    parts.mkdir()
    (parts / "__init__.py").write_text("from parts.kernel import TILE, scale\n")
    (parts / "kernel.py").write_text(SCALE_KERNEL)
    commit_all(root)
    done = tilewright("compare", "task", "--backend", "cpu", "--root", str(root))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| torch | ~" in done.stdout


def test_what_has_not_changed_is_said_to_be_so(make_task: Callable[..., Path]) -> None:
    done = tilewright("compare", "task", "--backend", "cpu", "--root", str(make_task()))
    assert done.returncode == 0
    assert "nothing has changed since" in done.stderr
    assert "--before main" in done.stderr
    assert "| after |" not in done.stdout


def test_what_cannot_be_compared_is_refused(make_task: Callable[..., Path]) -> None:
    root = make_task()
    assert "NAME=PATH" in tilewright("compare", "task", "--root", str(root), "--with", "other").stderr
    for text, why in (
        ("a=torch:", "no name of a function"),
        ("a=torch:b-c", "no name"),
        ("a=a/b:c", "file.py:function"),
        ("torch=torch:mul", "a row of that name"),
    ):
        assert why in tilewright("compare", "task", "--backend", "cpu", "--root", str(root), "--with", text).stderr
    missing = tilewright("compare", "task", "--backend", "cpu", "--root", str(root), "--with", "other=/nowhere.py")
    assert "give a file that defines scale" in missing.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fills", [False, True])
def test_a_file_may_import_the_module_that_it_is_compared_with(
    make_task: Callable[..., Path], tmp_path: Path, fills: bool
) -> None:
    """As the wrapper of a search does. And an entry point may write into its arguments."""
    toml, kernel, call, head = SCALE_TOML, SCALE_KERNEL, "scale(x, factor)", "import kernel"
    if fills:
        toml = SCALE_TOML.replace("editable", 'outputs = ["out"]\neditable')
        kernel = SCALE_KERNEL.replace("def scale(x, factor)", "def scale(x, factor, out)")
        kernel = kernel.replace("    out = torch.empty_like(x)\n", "").replace("    return out\n", "")
        call, head = "scale(x, factor, out)", "from kernel import scale as before"
    root, other = make_task(toml=toml, kernel=kernel), tmp_path / "tuned.py"
    inner = f"kernel.{call}" if head == "import kernel" else f"before{call.removeprefix('scale')}"
    other.write_text(f"{head}\n\n\ndef {call}:\n    return {inner}\n")
    done = tilewright("compare", "task", "--backend", "cpu", "--root", str(root), "--with", f"tuned={other}")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if line[:2] == "| "]
    timed = {row[0]: row[1] for row in rows if len(row) == 5}
    assert timed["tuned"] == timed["before"]

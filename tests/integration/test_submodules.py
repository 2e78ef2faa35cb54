"""Native tasks in repositories with submodules."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from tests.conftest import SCALE_KERNEL, SCALE_TOML, commit_all, git
from tests.stage import edit, play, quiet, start
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.repository import Repository
from tilewright.session.dumping import Dumper
from tilewright.session.loop import Loop
from tilewright.session.runs import files_for

LIBRARY = {"tilelib/__init__.py": "WIDTH = 64\n"}
IMPORTING = SCALE_KERNEL.replace("TILE = 64", "TILE = WIDTH").replace("import torch", "import torch\n{}", 1)


def lay(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    commit_all(folder)


def add_submodule(root: Path, path: str, files: dict[str, str]) -> None:
    """Add a repository of these files as the submodule at `path`, and commit that."""
    inner = root.parent / f"inner-{path.replace('/', '-')}"
    lay(inner, files)
    git(root, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), path)
    commit_all(root, "submodule")


def test_a_kernel_imports_from_a_submodule_that_is_checked_out(make_task: Callable[..., Path]) -> None:
    toml = SCALE_TOML.replace("editable", 'python_path = ["../third_party"]\neditable')
    root = make_task(toml=toml, kernel=IMPORTING.format("from tilelib import WIDTH"))
    add_submodule(root, "third_party", LIBRARY)
    (root / "third_party/tilelib/__pycache__").mkdir()
    (root / "third_party/tilelib/__pycache__/x.pyc").write_text("untracked, and in no one's way")

    async def scene(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"
        edit(root, IMPORTING.format("from tilelib import WIDTH\n\nWIDTH = 8 * WIDTH"))
        assert (await loop.run_correctness(quiet)).status is Status.PASSED
        loop.revert()
        await loop.append_result("wider", quiet)
        dumped = await Dumper(loop.checkout, loop.jobs).dump(PurePosixPath("task"), ["sm_90"], "resources", quiet)
        assert dumped.status is Status.PASSED

    play(root, scene)


@pytest.mark.parametrize(
    ("module", "toml", "line", "taken"),
    [
        ("third_party", 'python_path = ["../third_party"]', "from tilelib import WIDTH", True),
        ("extern/tiles", 'python_path = ["../extern"]', "from tiles.tilelib import WIDTH", True),
        ("extern/tiles", 'python_path = [".."]', "from common import WIDTH", True),
        ("task/third", "", "from third.tilelib import WIDTH", True),
        ("extern", 'python_path = ["../extern/tilelib"]', "from a import WIDTH", True),
        ("extern/tiles", "", "import sys; sys.path.insert(0, f'{__file__}/../../extern/tiles'); WIDTH = 64", True),
        ("docs/theme", "", "WIDTH = 64", False),
    ],
)
def test_which_submodules_a_task_comes_with(
    make_task: Callable[..., Path], module: str, toml: str, line: str, taken: bool
) -> None:
    root = make_task(toml=f"{toml}\n{SCALE_TOML}", kernel=IMPORTING.format(line))
    add_submodule(root, module, LIBRARY)
    repository = Repository(root)
    found = files_for(repository, repository.head(), PurePosixPath("task"))
    assert (f"{module}/tilelib/__init__.py" in found) is taken
    assert "task/kernel.py" in found


def test_a_submodule_that_is_not_checked_out_is_named(make_task: Callable[..., Path]) -> None:
    toml = SCALE_TOML.replace("editable", 'python_path = ["../third_party"]\neditable')
    root = make_task(toml=toml, kernel=IMPORTING.format("from tilelib import WIDTH"))
    add_submodule(root, "third_party", LIBRARY)
    git(root, "submodule", "--quiet", "deinit", "--force", "third_party")

    async def scene(loop: Loop) -> None:
        status = await start(loop)
        assert status.phase != "ready"
        assert "git submodule update --init" in status.model_dump_json()

    play(root, scene)


def test_a_task_in_a_submodule_is_worked_on_there(make_task: Callable[..., Path]) -> None:
    root = make_task(toml=SCALE_TOML.replace('"kernel.py"', '"../kernels/task/kernel.py"'))
    task = {name: (root / "task" / name).read_text() for name in ("kernel.py", "task.py")}
    inside = {f"task/{name}": text for name, text in task.items()}
    add_submodule(root, "kernels", inside | {"task/task.toml": SCALE_TOML})
    there = f"kernels, which has commits of its own: work there, with `cd {root}/kernels`"

    async def from_above(loop: Loop) -> None:
        for refused in (lambda: start(loop, "kernels/task"), lambda: start(loop, "kernels/task/task.toml")):
            with pytest.raises(UsageError, match=f"{there}; an MCP server"):
                await refused()
        with pytest.raises(UsageError, match=there):
            loop.task_of("kernels/task")
        with pytest.raises(UsageError, match=there):
            await start(loop)

    play(root, from_above)

    async def there_itself(loop: Loop) -> None:
        assert (await start(loop)).phase == "ready"

    play(root / "kernels", there_itself)

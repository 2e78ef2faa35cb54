"""The package's layers: a lower one never imports a higher one, and the server's process stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "server" / "tilewright"

# fmt: off
LAYERS = [
    {
        "__init__", "__main__", "api", "attach", "cli", "clients", "demo", "doctor", "interface",
    },
    {"tools"},
    {"autotune", "profile"},
    {"session", "policy"},
    {"harness"},
    {"evaluation", "referee", "worker"},
    {"replay"},
    {"frontends"},
    {"compiler", "interpreter", "roofline"},
    {"programs"},
    {"isolation", "gpu", "ledger"},
    {"wire", "repository", "knobs"},
    {"task", "cases", "commandtask", "configuration", "taskerrors", "bundled", "rules", "skillpack"},
    {"errors", "files", "text"},
]
# fmt: on


def layer(module: str) -> int:
    part = module.split(".")[1] if "." in module else "__init__"
    return next((number for number, names in enumerate(LAYERS) if part in names), len(LAYERS))


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in found if name.startswith("tilewright.")]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_a_higher_layer(path: Path) -> None:
    module = "tilewright." + path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for imported in imports(path):
        assert layer(imported) >= layer(module), f"{module} imports {imported}"


@pytest.mark.parametrize(("language", "other"), [("cutile", "triton"), ("triton", "cutile")])
def test_languages_of_kernels_do_not_know_each_other(language: str, other: str) -> None:
    paths = (PACKAGE / "frontends" / language).rglob("*.py")
    assert not [path for path in paths if any(f"frontends.{other}" in imported for imported in imports(path))]


def test_every_module_has_its_place() -> None:
    parts = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir()} - {
        "__init__",
        "__pycache__",
        "py",
    }
    assert parts - {"bundled"} <= set().union(*LAYERS)


APART = {"replay": ("evaluation", "frontends", "worker", "referee"), "referee": ("worker", "replay")}
"""Rooms whose code runs in processes of their own, and what they may not import even though it lies lower or beside."""


@pytest.mark.parametrize("room", APART)
def test_the_code_of_one_process_is_not_imported_by_anothers(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        parts = {name.split(".")[1] for name in imports(path)}
        assert not parts & set(APART[room]), path


@pytest.mark.parametrize(
    "module",
    [
        "tilewright.interface.mcp",
        "tilewright.session.loop",
        "tilewright.session.dumping",
        "tilewright.autotune.tuner",
        "tilewright.profile.profiler",
    ],
)
def test_the_servers_process_imports_no_torch(module: str) -> None:
    heavy = ("torch", "cuda.tile", "numpy")
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_server_starts_without_what_only_a_call_needs() -> None:
    heavy = ("git", "typer", "tomlkit", "tilewright.session.loop", "tilewright.autotune.tuner", "tilewright.api")
    program = (
        "import sys, tilewright.interface.mcp as mcp; mcp.table()\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_replayer_imports_no_torch() -> None:
    program = "import sys, tilewright.replay.process; print('torch' in sys.modules or 'cuda.tile' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

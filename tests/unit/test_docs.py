"""What the documents show is run; what they name exists; what the manifests say agrees."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.pages import reference
from tests.redteam.harness import STOPPED, SURVIVE
from tilewright import __version__
from tilewright.clients import VARIABLES
from tilewright.task import Backend, load_task

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "skills/perf-loop/SKILL.md")]
TASK_PAGE = ROOT / "docs" / "reference" / "task.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TASK_PAGE.read_text(), re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) < 1000


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    zensical = Path(sys.executable).parent / "zensical"
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    built = subprocess.run([zensical, "build", "--strict"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    nav = (ROOT / "zensical.toml").read_text()
    assert not [str(page) for page in pages if f'"{page}"' not in nav]
    assert len([*(tmp_path / "build" / "docs").rglob("index.html")]) == len(pages)


def test_the_reference_is_generated() -> None:
    for page in sorted(reference.FOLDER.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert reference.PART.search(text), page.name
        assert text == reference.generated(text), "run `python -m tests.pages.reference`"


def test_the_task_of_the_reference_is_the_first_example(tmp_path: Path) -> None:
    from tilewright.evaluation.taskcode import TaskCode

    (toml, *_), (python,) = blocks("toml"), blocks("python")
    (tmp_path / "task.toml").write_text(toml)
    (tmp_path / "task.py").write_text(python)
    (tmp_path / "fixed_launch.py").write_text("")
    task = load_task(tmp_path)
    code = TaskCode(task, Backend.CPU)
    example = TaskCode(load_task(ROOT / "assets/examples/01_rmsnorm_occupancy_only"), Backend.CPU)
    for case in task.correctness_cases(Backend.CPU):
        ours, theirs = code.inputs(case, 7), example.inputs(case, 7)
        assert code.expected(case, ours)[0].equal(example.expected(case, theirs)[0])
        assert code.work(case) == example.work(case)


def test_the_defaults_of_the_reference_can_be_read(tmp_path: Path) -> None:
    from tilewright.configuration import configuration_of

    (example,) = blocks('toml title="pyproject.toml"')
    (tmp_path / "pyproject.toml").write_text(example)
    assert configuration_of(tmp_path).rules.max_iterations == 40


def test_the_repository_task_of_the_reference_is_one() -> None:
    from tilewright.commandtask import parse_command_task

    task = parse_command_task(blocks("toml")[2], TASK_PAGE)
    assert task.benchmark.property == "benchmark"
    assert parse_command_task("".join(blocks("toml")[2:]), TASK_PAGE).rules.accept == 0.1
    through = len(SURVIVE) + 2  # the clock's trick and the memory's
    trust = " ".join((ROOT / "docs" / "trust.md").read_text().split())
    assert f"{len(STOPPED)} are stopped and {through} get through" in trust


def test_every_command_that_is_named_exists() -> None:
    from tilewright.interface.commands import app

    shown = CliRunner().invoke(app, ["--help"]).output
    for document in DOCUMENTS:
        for name in re.findall(r"`?tilewright ([a-z][a-z-]+)\b", document.read_text()):
            if name not in ("tilewright", "serve", "tools", "mcp", "on", "to"):
                assert re.search(rf"\b{name}\b", shown), f"{document.name} names `tilewright {name}`"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_are_named_exist(document: Path) -> None:
    missing = []
    for name in re.findall(r"`([\w./-]+/[\w./-]*)`", document.read_text()):
        places = [ROOT / name, ROOT / "server" / "tilewright" / name]
        generated = name.startswith((".venv/", "sandbox", "refs/", "perf/", "path/"))
        if not generated and not any(place.exists() for place in places):
            missing.append(name)
    assert not missing


def test_manifests_agree_on_version_and_command() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert pyproject["project"]["scripts"] == {"tilewright": "tilewright.cli:main"}
    manifests = {
        name: json.loads((ROOT / name).read_text())
        for name in (
            "plugin.json", "mcp.json", "server.json", "gemini-extension.json", ".claude-plugin/plugin.json",
            ".codex-plugin/plugin.json", ".codex-plugin/mcp.json",
        )
    }  # fmt: skip
    for name, manifest in manifests.items():
        if not name.endswith("mcp.json"):
            assert manifest["version"] == __version__, name
        servers = manifest.get("mcpServers", {})
        if isinstance(servers, str):
            assert (ROOT / servers).is_file(), name
            continue
        for server in servers.values():
            assert (server["command"], server["args"]) == ("tilewright", ["serve"]), name
    (portable,) = manifests["mcp.json"]["mcpServers"].values()
    assert portable.keys() <= {"type", "command", "args", "env", "cwd"}, "clients drop a server with any other field"
    assert manifests[".codex-plugin/mcp.json"]["mcpServers"]["tilewright"]["env_vars"] == [*VARIABLES]
    assert manifests["server.json"]["packages"][0]["version"] == __version__
    assert f"mcp-name: {manifests['server.json']['name']}" in (ROOT / "README.md").read_text()
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_plugin_manifests_say_what_claude_asks_of_them() -> None:
    """`claude plugin validate --strict .` fails where one of these is missing."""
    for name in ("plugin.json", ".claude-plugin/plugin.json", ".codex-plugin/plugin.json"):
        manifest = json.loads((ROOT / name).read_text())
        assert manifest["author"]["name"] and manifest["description"], name
    marketplace = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_text())
    assert marketplace["description"] and marketplace["owner"]["name"]
    assert all(plugin["description"] for plugin in marketplace["plugins"])


def test_pins_cover_every_dependency() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    needed = [*pyproject["dependencies"], *pyproject["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=~! ]", need)[0].lower() for need in needed}
    assert names <= pinned


def test_the_walkthroughs_are_what_the_journals_say() -> None:
    from tests.pages.walkthrough import JOURNALS, walkthrough

    for example in JOURNALS:
        written = (ROOT / "assets" / "examples" / example / "WALKTHROUGH.md").read_text()
        assert written == walkthrough(example), "run `python -m tests.pages.walkthrough`"

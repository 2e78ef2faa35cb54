"""What the documents show is run; what they name exists; what the manifests say agrees."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.redteam.harness import STOPPED, SURVIVE
from tilewright import __version__
from tilewright.task import Backend, load_task

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / name for name in ("README.md", "AGENTS.md", "CHANGELOG.md", "skills/perf-loop/SKILL.md")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_task_of_the_readme_is_the_first_example(tmp_path: Path) -> None:
    from tilewright.evaluation.taskcode import TaskCode

    (toml, _), (python,) = blocks("toml"), blocks("python")
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


def test_the_command_task_of_the_readme_is_one() -> None:
    from tilewright.commandtask import Parser, parse_command_task

    task = parse_command_task(blocks("toml")[1], Path("README.md"))
    assert task.benchmark.select == ["cutile"]
    section = (ROOT / "README.md").read_text().split("## Attach to a repository")[1].split("\n## ")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == [str(parser) for parser in Parser]
    through = len(SURVIVE) + 2  # the clock's trick and the memory's
    assert f"tries, {len(STOPPED)} are stopped and {through} get through" in section


def test_the_tools_of_the_readme_are_those_of_the_server() -> None:
    import asyncio

    from tilewright.mcp_server import Desk, build_server

    listed = asyncio.run(build_server(Desk(ROOT)).list_tools())
    table = (ROOT / "README.md").read_text().split("## The tools")[1].split("## What is measured")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [tool.name for tool in listed]


def test_every_command_that_is_named_exists() -> None:
    from tilewright.commands import app

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
    assert manifests[".codex-plugin/mcp.json"]["mcpServers"]["tilewright"]["env_vars"] == ["PWD"]
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


def test_skills_are_valid_short_and_name_real_tools() -> None:
    validator = pytest.importorskip("skills_ref.validator")
    for folder in (ROOT / "skills").iterdir():
        assert validator.validate(folder) == []
        text = (folder / "SKILL.md").read_text()
        assert len(text.splitlines()) < 500
        assert len(text) < 4 * 5000  # about four characters to a token
        evals = json.loads((folder / "evals" / "evals.json").read_text())
        assert evals["skill_name"] == folder.name
        assert all(case["assertions"] for case in evals["evals"])


def test_pins_cover_every_dependency() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    needed = [*pyproject["dependencies"], *pyproject["optional-dependencies"]["dev"]]
    names = {re.split(r"[\[<>=~! ]", need)[0].lower() for need in needed}
    assert names <= pinned


def test_the_walkthroughs_are_what_the_journals_say() -> None:
    from benchmarks.walkthrough import JOURNALS, walkthrough

    for example in JOURNALS:
        written = (ROOT / "assets" / "examples" / example / "WALKTHROUGH.md").read_text()
        assert written == walkthrough(example), "run `python benchmarks/walkthrough.py`"

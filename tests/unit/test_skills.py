"""The skills: valid and short, installed with all that they link to, and served over MCP as they are installed."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from mcp import Client
from typer.testing import CliRunner

from tests.pages.page import ROOT
from tilewright.errors import UsageError
from tilewright.interface.commands import app
from tilewright.interface.mcp import build_server
from tilewright.skillpack import HOST, install, skills
from tilewright.tools.workspace import Workspace

NAMES = ["autotuning", "perf-loop", "tune"]
PIECE = re.compile(r"[A-Za-z]+|\d{1,3}|[^\w\s]+|_")
PIECES = 2_390
"""Words, groups of digits and signs that a SKILL.md has at most: 2,500 tokens of o200k, of which it has 1.04 to 1.07 a
piece."""


@pytest.mark.parametrize("name", NAMES)
def test_a_skill_is_valid_and_short(name: str) -> None:
    validator = pytest.importorskip("skills_ref.validator")
    parser = pytest.importorskip("skills_ref.parser")
    folder = ROOT / "skills" / name
    assert validator.validate(folder) == []
    text = (folder / "SKILL.md").read_text()
    assert len(text.splitlines()) < 500
    assert len(PIECE.findall(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL))) <= PIECES
    (skill,) = (skill for skill in skills("") if skill.name == name)
    assert skill.description == parser.parse_frontmatter(text)[0]["description"]


@pytest.mark.parametrize("name", NAMES)
def test_its_evals_can_be_judged(name: str) -> None:
    evals = json.loads((ROOT / "skills" / name / "evals" / "evals.json").read_text())
    assert evals["skill_name"] == name
    cases = evals["evals"]
    assert len(cases) >= 8
    assert len({case["id"] for case in cases}) == len(cases)
    for case in cases:
        assert {*case} == {"id", "prompt", "expected_output", "assertions", "files"}, case["id"]
        texts = [case["id"], case["prompt"], case["expected_output"], *case["assertions"]]
        assert all(isinstance(text, str) and text.strip() for text in texts), case["id"]
        assert isinstance(case["assertions"], list) and case["assertions"], case["id"]
        assert all((ROOT / file).is_file() for file in case["files"]), case["id"]


def links(text: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target]


def test_installed_skills_hold_all_they_link_to(tmp_path: Path) -> None:
    written = install(tmp_path)
    assert [folder.name for folder in written] == NAMES
    seen = 0
    for folder in written:
        for path in folder.rglob("*.md"):
            assert "<!--" not in path.read_text()
            for target in links(path.read_text()):
                file, _, _ = target.partition("#")
                linked = (path.parent / file).resolve() if file else path
                assert linked.is_file() and linked.is_relative_to(tmp_path.resolve()), (path, target)
                seen += 1
        assert not (folder / "evals").exists()
    assert seen > 200
    tiles = (tmp_path / "perf-loop" / "references" / "playbook-tiles.md").read_text()
    assert "[^warps]: compiled without a GPU, 2026-11-24, tileiras 13.4.\n" in tiles
    assert "stores 4,728 bytes of spills a thread" in tiles
    assert (tmp_path / "perf-loop" / "assets/examples/02_matmul_full_search/autotuned_launch.py").is_file()
    old = [tmp_path / "tune" / name for name in ("references/gone.md", "assets/examples/gone/kernel.py", "mine.txt")]
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of an older copy, or somebody's")
    install(tmp_path)  # over itself
    assert [path.exists() for path in old] == [False, False, True]


def test_what_is_no_copy_is_left_alone(tmp_path: Path) -> None:
    mine = tmp_path / "tune" / "SKILL.md"
    mine.parent.mkdir()
    mine.write_text("---\nname: my-own\ndescription: mine\n---\n")
    with pytest.raises(UsageError, match="is no copy of the skill; move it away"):
        install(tmp_path)
    assert mine.read_text().startswith("---\nname: my-own")
    assert not (tmp_path / "perf-loop").exists()


def test_the_command_installs(tmp_path: Path) -> None:
    run = CliRunner()
    target = tmp_path / ".claude" / "skills"
    done = run.invoke(app, ["skills", "install", "--to", str(target), "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (
        0,
        {"summary": "; ".join(f"installed {target / name}" for name in NAMES)},
    )
    (target / "tune" / "SKILL.md").rename(target / "tune" / "mine.txt")
    assert run.invoke(app, ["skills", "install", "--to", str(target)]).exit_code == 2


def test_the_server_offers_the_skills_as_they_are_installed_and_each_page_once(tmp_path: Path) -> None:
    install(tmp_path)
    addresses: list[str] = []
    linked: set[str] = set()

    async def scene() -> None:
        async with Client(build_server(Workspace(ROOT))) as client:
            listed = [resource for resource in (await client.list_resources()).resources if "skill://" in resource.uri]
            assert [resource.name for resource in listed if "/" not in resource.name] == NAMES
            for resource in listed:
                installed = (tmp_path / resource.uri.removeprefix("skill://")).read_bytes()
                (content,) = (await client.read_resource(resource.uri)).contents
                served = str(getattr(content, "text", "")).encode()
                addresses.append(resource.uri)
                linked.update(re.findall(r"\]\((skill://[^)#]+)", served.decode()))
                assert served.replace(f"skill://{HOST}/".encode(), f"../{HOST}/".encode()) == installed
            places = [uri.split("/", 3)[3] for uri in addresses]
            assert {name for name in places if places.count(name) > 1} == {"SKILL.md"}
            assert len(linked) > 10
            assert linked <= {*addresses}

    asyncio.run(scene())

"""The configuration of agent clients: written once, merged into what is there, and never over a file that is broken."""

from __future__ import annotations

import ast
import json
import os
import pty
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.conftest import commit_all
from tilewright import clients
from tilewright.clients import CLIENTS, NAME, VARIABLES, Client, server_command, settings, texts, write
from tilewright.errors import UsageError
from tilewright.interface.commands import app
from tilewright.isolation.process import KEPT_VARIABLES
from tilewright.session.runs import UNCONFINED
from tilewright.tools import table

TOOLS = ["session_status", "revert"]
by_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda one: one.name)


def written(root: Path, client: Client, tools: list[str] = TOOLS) -> dict[str, Any]:
    """What the client's files hold, by path, after a set-up."""
    found = texts(root, settings(client, server_command(), tools))
    write(found)
    read = {".toml": tomllib.loads, ".json": json.loads}
    return {str(path.relative_to(root)): read[path.suffix](path.read_text()) for path in found}


def servers(files: dict[str, Any]) -> list[Any]:
    keys = ("mcpServers", "mcp_servers", "mcp")
    return [data[key][NAME] for data in files.values() for key in keys if NAME in data.get(key, {})]


@by_client
def test_the_server_starts_from_this_environment(tmp_path: Path, client: Client) -> None:
    (server,) = servers(written(tmp_path, client))
    command = server["command"]
    words = command if isinstance(command, list) else [command, *server["args"]]
    assert words == server_command()
    assert Path(words[0]).is_absolute()


@by_client
def test_tools_run_unasked_only_if_they_may(tmp_path: Path, client: Client) -> None:
    def said(tools: list[str]) -> str:
        (tmp_path / str(len(tools))).mkdir()
        return json.dumps(written(tmp_path / str(len(tools)), client, tools))

    assert "revert" not in said([])
    asked = said(TOOLS)
    assert all(tool in asked for tool in TOOLS) or '"trust": true' in asked or '"approve"' in asked
    assert '"trust"' not in json.dumps(written(tmp_path / "0", client, []))


@by_client
def test_what_a_file_holds_stays(tmp_path: Path, client: Client) -> None:
    for setting in settings(client, server_command(), TOOLS):
        path = tmp_path / setting.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".toml":
            path.write_text('# mine\nmodel = "x"\n\n[mcp_servers.other]\ncommand = "y"\n')
        else:
            path.write_text(
                '{"mine": 1, "permissions": {"allow": ["Shell(ls)"]}, "mcpServers": {"other": {"command": "y"}}}'
            )
    files = written(tmp_path, client)
    for name, data in files.items():
        if name.endswith(".toml"):
            assert (data["model"], data["mcp_servers"]["other"]) == ("x", {"command": "y"})
            assert (tmp_path / name).read_text().startswith("# mine\n")
        else:
            assert (data["mine"], data["mcpServers"]["other"]) == (1, {"command": "y"})
            assert "Shell(ls)" in data["permissions"]["allow"]
    again = texts(tmp_path, settings(client, server_command(), TOOLS))
    assert all(before == after for before, after in again.values())


@by_client
def test_a_broken_file_is_left_alone(tmp_path: Path, client: Client) -> None:
    path = tmp_path / client.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{ = ]")
    with pytest.raises(UsageError, match="cannot be read"):
        texts(tmp_path, settings(client, server_command(), TOOLS))
    assert path.read_text() == "{ = ]"


def place(root: Path, path: str, text: str | bytes) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def client(name: str) -> Client:
    return next(one for one in CLIENTS if one.name == name)


OF_OTHERS = {"TILEWRIGHT_PASS_FDS", "TILEWRIGHT_FOLDER", "TRITON_CACHE_DIR", "PLUGIN_ROOT"}
"""Set by a parent process of our own, or by the client itself."""


def variables_read() -> set[str]:
    """The environment variables that the package names where it reads its environment."""
    package = Path(clients.__file__).parent
    found = set()
    for node in [node for path in package.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]:
        match node:
            case ast.Call(func=ast.Attribute(value=place, attr="get" | "pop"), args=[name, *_]):
                pass
            case ast.Subscript(value=place, slice=name, ctx=ast.Load()):
                pass
            case _:
                continue
        if ast.unparse(place) in ("os.environ", "environment") and isinstance(name, ast.Constant):
            found.add(name.value)
    return found


def test_clients_that_clear_the_environment_pass_what_the_program_reads(tmp_path: Path) -> None:
    read = variables_read()
    assert read >= {"CUDA_VISIBLE_DEVICES", "PWD", *OF_OTHERS}
    assert read | {*KEPT_VARIABLES, UNCONFINED} <= {*VARIABLES} | OF_OTHERS
    (codex,) = servers(written(tmp_path, client("codex")))
    assert codex["env_vars"] == [*VARIABLES]
    gemini = written(tmp_path, client("gemini"))[".gemini/settings.json"]
    assert gemini["security"]["environmentVariableRedaction"]["allowed"] == [*VARIABLES]


def test_a_list_of_variables_is_extended(tmp_path: Path) -> None:
    head = '[mcp_servers.tilewright]\ncommand = "tilewright"\nargs = ["serve"]\n'
    place(tmp_path, ".codex/config.toml", f'{head}env_vars = [\n  "PWD", # why\n  "MINE",\n]\nenabled = true\n')
    (server,) = servers(written(tmp_path, client("codex")))
    assert server["enabled"]
    assert set(server["env_vars"]) == {"MINE", *VARIABLES}


USERS = {
    "another server, whose token is not shown": (
        "claude-code", ".mcp.json", '{"mcpServers": {"tilewright": {"url": "https://x", "headers": {"a": "secret"}}}}',
    ),
    "a list for a table": ("claude-code", ".mcp.json", '{"mcpServers": [1]}'),
    "not UTF-8": ("claude-code", ".mcp.json", b"\xff\xfe{"),
    "another server of Codex": ("codex", ".codex/config.toml", '[mcp_servers.tilewright]\ncommand = "elsewhere"\n'),
    "a question for each call": (
        "codex", ".codex/config.toml",
        '[mcp_servers.tilewright]\ncommand = "tilewright"\ndefault_tools_approval_mode = "prompt"\n',
    ),
    "no trust": (
        "gemini", ".gemini/settings.json", '{"mcpServers": {"tilewright": {"command": "tilewright", "trust": false}}}',
    ),
    "a rule for all tools": ("opencode", "opencode.json", '{"permission": "ask"}'),
    "a tool that is denied": ("opencode", "opencode.json", '{"permission": {"tilewright_revert": "deny"}}'),
}  # fmt: skip


@pytest.mark.parametrize(("name", "path", "text"), USERS.values(), ids=USERS)
def test_what_the_user_decided_is_not_overwritten(tmp_path: Path, name: str, path: str, text: str | bytes) -> None:
    file = place(tmp_path, path, text)
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"by hand") as refusal:
        write(texts(tmp_path, settings(client(name), server_command(), TOOLS)))
    assert "secret" not in str(refusal.value)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [file]
    assert file.read_bytes() == before
    assert texts(tmp_path, settings(client(name), server_command(), TOOLS), merge=False)


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"tilewright": {"command": "/old/tilewright", "timeout": 9}}}'),
        (
            "opencode", "opencode.json",
            '{"mcp": {"tilewright": {"command": ["/old/bin/python", "-m", "tilewright", "serve"], "timeout": 9}}}',
        ),
        (
            "codex", ".codex/config.toml",
            '# mine\r\n[mcp_servers."tilewright"] # ours\r\ncommand = "/old/bin/tilewright"\r\n'
            'tool_timeout_sec = 9 # why\r\n\r\n[other]\r\ncommand = "y"\r\n',
        ),
    ],
)  # fmt: skip
def test_an_entry_of_another_environment_follows(tmp_path: Path, name: str, path: str, text: str) -> None:
    file = place(tmp_path, path, text)
    (server,) = servers(written(tmp_path, client(name)))
    command = server["command"]
    assert (command if isinstance(command, list) else [command, *server["args"]]) == server_command()
    assert server.get("timeout", server.get("tool_timeout_sec")) == 9
    if name == "codex":
        kept = file.read_bytes()
        for line in ("# mine\r\n", "# ours\r\n", "tool_timeout_sec = 9 # why\r\n", '[other]\r\ncommand = "y"\r\n'):
            assert line.encode() in kept
    again = texts(tmp_path, settings(client(name), server_command(), TOOLS))
    assert all(before == after for before, after in again.values())


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    def setup(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["setup", "--root", str(tmp_path), *arguments])

    assert "give --client, one of claude-code, codex" in setup("--client", "emacs").output
    shown = setup("--client", "gemini", "--print")
    assert '"trust": true' in shown.output
    assert not (tmp_path / ".gemini").exists()
    master, terminal = pty.openpty()
    os.write(master, b"n\n")
    command = [sys.executable, "-m", "tilewright", "setup", "--root", str(tmp_path), "--client", "cursor"]
    asked = subprocess.run(command, stdin=terminal, capture_output=True, text=True, check=True).stdout
    assert "without a question? [Y/n]" in asked
    assert [path.name for path in tmp_path.glob(".cursor/*")] == ["mcp.json"]
    shutil.rmtree(tmp_path / ".cursor")
    nobody = setup("--client", "claude-code")
    assert (nobody.exit_code, list(tmp_path.glob(".*"))) == (2, [])
    assert "without a question?" not in nobody.output
    assert "give --allow-tools, and" in nobody.output
    assert "or --no-allow-tools, and" in nobody.output
    refused = setup("--client", "claude-code", "--no-allow-tools")
    assert ".mcp.json was written: the server" in refused.output
    assert not (tmp_path / ".claude").exists()
    assert f".mcp.json holds a path of this machine, {server_command()[0]}: leave it out of commits" in refused.output
    assert "tilewright skills install --to .claude/skills" in refused.output
    assert "say: Make the kernel in <task folder> faster with Tilewright." in refused.output
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "task.toml").write_text("")
    commit_all(tmp_path)
    gemini = " ".join(setup("--client", "gemini", "--allow-tools").output.split())
    assert "trust the folder when it asks, or by /permissions" in gemini
    assert "say: Make the kernel in perf faster with Tilewright." in gemini
    codex = json.loads(setup("--client", "codex", "--allow-tools", "--json").stdout)
    assert 'trust_level = "trusted"' in codex["next"]
    assert codex["summary"].startswith(".codex/config.toml was written: the server")
    assert "tilewright skills install\n" in codex["next"]
    assert codex["files"] == [{"path": ".codex/config.toml", "written": True, "text": ""}], "it may hold a token"
    (shown,) = json.loads(setup("--client", "codex", "--print", "--json").stdout)["files"]
    assert (shown["written"], tomllib.loads(shown["text"])["mcp_servers"][NAME]["args"]) == (
        False,
        server_command()[1:],
    )
    allowing = setup("--client", "claude-code", "--allow-tools")
    assert ".mcp.json is as it should be" in allowing.output
    allowed = json.loads((tmp_path / ".claude" / "settings.json").read_text())["permissions"]["allow"]
    assert "mcp__tilewright__run_benchmark" in allowed
    assert len(allowed) == len(table())

"""What `tilewright setup` writes: each agent client's configuration, merged into the files that a repository has.

A client is one row of `CLIENTS`. What its files mean is the client's documentation; nothing here starts a server.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.isolation.process import KEPT_VARIABLES
from tilewright.text import cut

NAME = "tilewright"
TIMEOUT_S = 600
"""Of a tool call: a call answers within 240 s by itself, and clients' own limits are shorter."""
VARIABLES = (
    *KEPT_VARIABLES, "PWD", "TMPDIR", "TILEWRIGHT_UNCONFINED",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
"""The environment variables that the server, git and CUDA read. Some clients pass only those that they are told to."""
Table = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One file of a client's, relative to the repository, and what is to be in it."""

    path: str
    holds: str
    addition: Table


@dataclass(frozen=True)
class Client:
    """An agent client: its name, the program that it is, and its files."""

    name: str
    title: str
    program: str
    path: str
    server: Callable[[list[str]], Table]
    """What starts the server by a command."""
    allowed_path: str
    allowed: Callable[[Sequence[str]], Table]
    """What lets the client call the tools without a question."""
    skills: str = ""
    """Where it looks for skills, if that is not where `tilewright skills install` puts them."""
    note: str = ""
    trust: str = ""
    """How its user trusts a folder, where it reads the configuration of trusted ones alone."""


def server_command() -> list[str]:
    """The command that starts the server in this environment: absolute, since a client has no venv on its PATH."""
    script = Path(sys.executable).with_name(NAME)
    return [str(script), "serve"] if script.is_file() else [sys.executable, "-m", NAME, "serve"]


def installed() -> list[Client]:
    """The clients whose program is on the PATH."""
    return [client for client in CLIENTS if shutil.which(client.program)]


def settings(client: Client, command: list[str], tools: Sequence[str]) -> list[Setting]:
    """The files of a client; with `tools`, also its list of tools that run without a question."""
    server = Setting(client.path, f"the server{client.note}", client.server(command))
    allowed = Setting(client.allowed_path, "the tools that run without a question", client.allowed(tools))
    return [server, *([allowed] if tools else [])]


def texts(root: Path, chosen: Sequence[Setting], merge: bool = True) -> dict[Path, tuple[str, str]]:
    """Each file's text before and after; without `merge`, what a new file would hold. Nothing is written.

    Raises `UsageError` if a file cannot be understood, or holds another value where one must go."""
    changed: dict[Path, tuple[str, str]] = {}
    for setting in chosen:
        path = root / setting.path
        try:
            before = path.read_bytes().decode() if merge and path.is_file() else ""
            before, text = changed.get(path, (before, before))
            changed[path] = before, _with(setting, text)
        except ValueError as error:
            raise UsageError(
                f"{setting.path} cannot be read ({error}); fix it, or use --print and add the lines by hand"
            ) from None
    return changed


def write(changed: dict[Path, tuple[str, str]]) -> None:
    """Write each file that changes."""
    for path, (before, after) in changed.items():
        if after != before:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, after)


def what_next(client: Client, task: str) -> str:
    """What to do with the files that were written, and in the client, for the task in the folder `task`."""
    into = f" --to {client.skills}" if client.skills else ""
    return (
        f"{client.path} holds a path of this machine, {server_command()[0]}: leave it out of commits, as by a line in "
        ".git/info/exclude\n"
        f"The server offers its skills over MCP. Where {client.title} does not list them, copy them: tilewright skills "
        f"install{into}\n"
        f"Next: open {client.title} in this folder{client.trust and f', {client.trust}'}, and say: Make the kernel in "
        f"{task} faster with Tilewright."
    )


def _with(setting: Setting, text: str) -> str:
    """The file's text with the addition. All else in it stays, comments too. Raises ValueError and `UsageError`."""
    if setting.path.endswith(".toml"):
        document = tomlkit.parse(text)
        _merge(document, setting.addition, setting.path)
        return tomlkit.dumps(document)
    data = json.loads(text or "{}")
    if not isinstance(data, dict):
        raise UsageError(f"{setting.path} holds no JSON object; fix it, or use --print and add the lines by hand")
    _merge(data, setting.addition, setting.path)
    return text if text and json.loads(text) == data else json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _merge(data: MutableMapping[str, Any], addition: Table, file: str, place: str = "") -> None:
    """Put the addition into `data`. Tables are merged, lists extended. A value of the user's is never replaced.

    An entry that starts this server gets this environment's command, and keeps what the user set in it."""
    is_entry = "command" in addition
    if is_entry and data and not _is_ours(data):
        raise _other(file, place, data)
    for key, value in addition.items():
        at = f"{place}.{key}".lstrip(".")
        if key not in data or (is_entry and key in ("command", "args")):
            data[key] = value
        elif isinstance(value, dict) and isinstance(data[key], MutableMapping):
            _merge(data[key], value, file, at)
        elif isinstance(value, list) and isinstance(data[key], list):
            data[key].extend(one for one in value if one not in data[key])
        elif data[key] != value and not is_entry and key != "$schema":
            raise _other(file, at, data[key])


def _other(file: str, place: str, data: Any) -> UsageError:
    # A table may hold a token, so only plain values are shown.
    value = "of another kind" if isinstance(data, MutableMapping | list) else f"= {cut(json.dumps(data), 100)}"
    return UsageError(
        f"{file} has {place} {value}, which this command does not replace; change it by hand and call this again"
    )


def _is_ours(entry: MutableMapping[str, Any]) -> bool:
    """Whether a client's entry starts this server, perhaps from another environment."""
    command, more = entry.get("command"), entry.get("args", [])
    words = [*(command if isinstance(command, list) else [command]), *(more if isinstance(more, list) else [])]
    return Path(str(words[0] if words else "")).name == NAME or words[1:3] == ["-m", NAME]


def _stdio(command: list[str], **more: Any) -> Table:
    return {"command": command[0], "args": command[1:], **more}


CLIENTS = (
    Client(
        "claude-code", "Claude Code", "claude",
        ".mcp.json",
        lambda command: {"mcpServers": {NAME: _stdio(command, type="stdio", timeout=1000 * TIMEOUT_S)}},
        ".claude/settings.json",
        lambda tools: {
            "permissions": {"allow": [f"mcp__{NAME}__{tool}" for tool in tools]}, "enabledMcpjsonServers": [NAME]
        },
        skills=".claude/skills",
    ),
    Client(
        "codex", "Codex", "codex",
        ".codex/config.toml",  # it clears the environment but for env_vars and a few of its own
        lambda command: {"mcp_servers": {NAME: _stdio(command, tool_timeout_sec=TIMEOUT_S, env_vars=[*VARIABLES])}},
        ".codex/config.toml",
        lambda _: {"mcp_servers": {NAME: {"default_tools_approval_mode": "approve"}}},
        trust="trust the project when it asks (in ~/.codex/config.toml: trust_level = \"trusted\" under "
        "[projects.\"PATH\"]; Codex reads no configuration of other projects)",
    ),
    Client(
        "cursor", "Cursor", "cursor-agent",
        ".cursor/mcp.json",
        lambda command: {"mcpServers": {NAME: _stdio(command, type="stdio")}},
        ".cursor/cli.json",
        lambda tools: {"permissions": {"allow": [f"Mcp({NAME}:{tool})" for tool in tools]}},
        note=" (in the editor, choose its tools that run without a question under Settings, Agents)",
    ),
    Client(
        "gemini", "Gemini CLI", "gemini",
        ".gemini/settings.json",  # in a workflow of GitHub it passes few variables but those that are allowed
        lambda command: {
            "mcpServers": {NAME: _stdio(command, timeout=1000 * TIMEOUT_S)},
            "security": {"environmentVariableRedaction": {"allowed": [*VARIABLES]}},
        },
        ".gemini/settings.json",
        lambda _: {"mcpServers": {NAME: {"trust": True}}},
        trust="trust the folder when it asks, or by /permissions (Gemini CLI reads no settings of other folders)",
    ),
    Client(
        "opencode", "opencode", "opencode",
        "opencode.json",
        lambda command: {
            "$schema": "https://opencode.ai/config.json",
            "mcp": {NAME: {"type": "local", "command": command, "enabled": True, "timeout": 1000 * TIMEOUT_S}},
        },
        "opencode.json",
        lambda tools: {"permission": {f"{NAME}_{tool}": "allow" for tool in tools}},
    ),
)  # fmt: skip

"""What `tilewright setup` writes: each agent client's configuration, merged into the files that a repository has.

A client is one `Client` in `CLIENTS`. What its files mean is the client's documentation; nothing here starts a server.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.isolation.process import KEPT_VARIABLES
from tilewright.text import cut

NAME = "tilewright"
TIMEOUT_S = 600
"""Of a tool call: a call answers within 240 s by itself, and clients' own limits are shorter."""
VARIABLES = (
    *KEPT_VARIABLES, "PWD", "TMPDIR", "TILEWRIGHT_STATE", "TILEWRIGHT_UNCONFINED", "XDG_STATE_HOME",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
"""The environment variables that the server, git and CUDA read. Some clients pass only those that they are told to."""
COMMAND = ("command", "args")
"""The keys of an entry that say how the server starts."""


@dataclass(frozen=True)
class Setting:
    """One file of a client's, relative to the repository, and how its text changes."""

    path: str
    holds: str
    edit: Callable[[str], str]


@dataclass(frozen=True)
class Client:
    """An agent client: its name, the program that it is, and its files."""

    name: str
    title: str
    program: str
    server: Callable[[list[str]], Setting]
    allowed: Callable[[list[str], Sequence[str]], Setting]
    skills: str = ""
    """Where it looks for skills, if that is not where `tilewright skills install` puts them."""


def server_command() -> list[str]:
    """The command that starts the server in this environment: absolute, since a client has no venv on its PATH."""
    script = Path(sys.executable).with_name(NAME)
    return [str(script), "serve"] if script.is_file() else [sys.executable, "-m", NAME, "serve"]


def installed() -> list[Client]:
    """The clients whose program is on the PATH."""
    return [client for client in CLIENTS if shutil.which(client.program)]


def settings(client: Client, command: list[str], tools: Sequence[str]) -> list[Setting]:
    """The files of a client; with `tools`, also its list of tools that run without a question."""
    return [client.server(command), *([client.allowed(command, tools)] if tools else [])]


def texts(root: Path, chosen: Sequence[Setting], merge: bool = True) -> dict[Path, tuple[str, str]]:
    """Each file's text before and after; without `merge`, what a new file would hold. Nothing is written.

    Raises `UsageError` if a file cannot be understood, or holds another value where one must go."""
    found: dict[Path, tuple[str, str]] = {}
    for setting in chosen:
        path = root / setting.path
        try:
            before = path.read_bytes().decode() if merge and path.is_file() else ""
            first, after = found.get(path, (before, before))
            found[path] = (first, setting.edit(after))
        except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{setting.path} cannot be read ({error}); fix it, or use --print and add the lines by hand"
            ) from None
    return found


def write(found: dict[Path, tuple[str, str]]) -> None:
    """Write each file that changes."""
    for path, (before, after) in found.items():
        if after != before:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, after)


def what_next(client: Client) -> str:
    """What to do with the files that were written, and in the client."""
    command = server_command()
    into = f" --to {client.skills}" if client.skills else ""
    return (
        f"{client.server(command).path} holds a path of this machine, {command[0]}: leave it out of commits, as by a "
        "line in .git/info/exclude\n"
        f"The server offers its skills over MCP. Where {client.title} does not list them, copy them: tilewright skills "
        f"install{into}\n"
        f"Next: open {client.title} in this folder, and say: Make the kernel in <task folder> faster with Tilewright."
    )


def _json(path: str, holds: str, addition: dict[str, Any]) -> Setting:
    def edit(text: str) -> str:
        data = json.loads(text) if text.strip() else {}
        if not isinstance(data, dict):
            raise UsageError(f"{path} holds no JSON object; fix it, or use --print and add the lines by hand")
        merged = _merged(path, (), data, addition)
        return text if merged == data and text else json.dumps(merged, indent=2, ensure_ascii=False) + "\n"

    return Setting(path, holds, edit)


def _merged(path: str, place: tuple[str, ...], data: Any, addition: Any) -> Any:
    """`data` with the addition: tables are merged and lists extended. A value of the user's is never replaced.

    An entry of this server's keeps what the user set in it, but its command becomes this environment's, and its list of
    variables is extended."""
    if isinstance(data, dict) and isinstance(addition, dict):
        if "command" in addition:
            if not _is_ours(data):
                raise _other(path, place, data)
            return data | {
                key: _merged(path, (*place, key), data[key], value) if key == "env_vars" and key in data else value
                for key, value in addition.items()
                if key not in data or key in (*COMMAND, "env_vars")
            }
        return data | {
            key: _merged(path, (*place, key), data[key], value) if key in data else value
            for key, value in addition.items()
        }
    if isinstance(data, list) and isinstance(addition, list):
        return data + [one for one in addition if one not in data]
    if data == addition or place == ("$schema",):
        return data
    raise _other(path, place, data)


def _other(path: str, place: Sequence[str], data: Any) -> UsageError:
    # A table may hold a token, so only plain values are shown.
    value = "of another kind" if isinstance(data, dict | list) else f"= {cut(json.dumps(data), 100)}"
    return UsageError(
        f"{path} has {'.'.join(place)} {value}, which this command does not replace; "
        f"change it by hand and call this again"
    )


def _is_ours(entry: dict[str, Any]) -> bool:
    """Whether a client's entry starts this server, perhaps from another environment."""
    command, more = entry.get("command"), entry.get("args", [])
    words = [*(command if isinstance(command, list) else [command]), *(more if isinstance(more, list) else [])]
    return Path(str(words[0] if words else "")).name == NAME or words[1:3] == ["-m", NAME]


def _toml(path: str, holds: str, table: str, values: dict[str, Any]) -> Setting:
    """Lines of a TOML table, which keep the rest of the file as it is, comments too."""

    def edit(text: str) -> str:
        wanted = tomllib.loads(text)
        entry: Any = wanted
        for key in table.split("."):
            if not isinstance(entry, dict):
                break
            entry = entry.setdefault(key, {})
        merged = _merged(path, (table,), entry, values) if entry != {} else values
        missing = {key: value for key, value in merged.items() if entry.get(key) != value}
        if not missing:
            return text
        entry.update(missing)
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in missing.items())
        name = r"\s*\.\s*".join(f"[\"']?{re.escape(key)}[\"']?" for key in table.split("."))
        if head := re.search(rf"^\[\s*{name}\s*\].*\n", text, re.MULTILINE):
            rest = text[head.end() :]
            following = re.search(r"^\s*\[", rest, re.MULTILINE)
            end = following.start() if following else len(rest)
            line = rf"^\s*(?:{'|'.join(missing)})\s*=\s*(?:\[[^\]]*\])?.*\n?"
            kept = re.sub(line, "", rest[:end], flags=re.MULTILINE)
            after = text[: head.end()] + lines + kept + rest[end:]
        else:
            after = f"{text.rstrip()}\n\n[{table}]\n{lines}".lstrip()
        if not _holds(after, wanted):
            raise UsageError(
                f"{path} has [{table}] in a form that cannot be edited; use --print and add the lines by hand"
            )
        return after

    return Setting(path, holds, edit)


def _holds(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == wanted
    except tomllib.TOMLDecodeError:
        return False


def _claude(command: list[str]) -> Setting:
    server = {"type": "stdio", "command": command[0], "args": command[1:], "timeout": 1000 * TIMEOUT_S}
    return _json(".mcp.json", "the server", {"mcpServers": {NAME: server}})


def _claude_allowed(_: list[str], tools: Sequence[str]) -> Setting:
    allow = [f"mcp__{NAME}__{tool}" for tool in tools]
    addition = {"permissions": {"allow": allow}, "enabledMcpjsonServers": [NAME]}
    return _json(".claude/settings.json", "the tools that run without a question", addition)


CODEX = ".codex/config.toml"


def _codex(command: list[str]) -> Setting:
    values = {"command": command[0], "args": command[1:], "tool_timeout_sec": TIMEOUT_S}
    values["env_vars"] = [*VARIABLES]  # it clears the environment but for these and a few of its own
    return _toml(CODEX, "the server (Codex reads it in a trusted project)", f"mcp_servers.{NAME}", values)


def _codex_allowed(_: list[str], __: Sequence[str]) -> Setting:
    return _toml(
        CODEX, "all its tools run without a question", f"mcp_servers.{NAME}", {"default_tools_approval_mode": "approve"}
    )


def _cursor(command: list[str]) -> Setting:
    server = {"type": "stdio", "command": command[0], "args": command[1:]}
    return _json(".cursor/mcp.json", "the server", {"mcpServers": {NAME: server}})


def _cursor_allowed(_: list[str], tools: Sequence[str]) -> Setting:
    allow = [f"Mcp({NAME}:{tool})" for tool in tools]
    holds = "the tools that run without a question in Cursor's CLI; in the editor, choose them under Settings, Agents"
    return _json(".cursor/cli.json", holds, {"permissions": {"allow": allow}})


GEMINI = ".gemini/settings.json"


def _gemini(command: list[str]) -> Setting:
    server = {"command": command[0], "args": command[1:], "timeout": 1000 * TIMEOUT_S}
    passed = {"environmentVariableRedaction": {"allowed": [*VARIABLES]}}  # in a workflow of GitHub it passes few others
    return _json(GEMINI, "the server", {"mcpServers": {NAME: server}, "security": passed})


def _gemini_allowed(_: list[str], __: Sequence[str]) -> Setting:
    return _json(GEMINI, "all its tools run without a question", {"mcpServers": {NAME: {"trust": True}}})


OPENCODE = "opencode.json"


def _opencode(command: list[str]) -> Setting:
    server = {"type": "local", "command": command, "enabled": True, "timeout": 1000 * TIMEOUT_S}
    return _json(OPENCODE, "the server", {"$schema": "https://opencode.ai/config.json", "mcp": {NAME: server}})


def _opencode_allowed(_: list[str], tools: Sequence[str]) -> Setting:
    addition = {"permission": {f"{NAME}_{tool}": "allow" for tool in tools}}
    return _json(OPENCODE, "the tools that run without a question", addition)


CLIENTS = (
    Client("claude-code", "Claude Code", "claude", _claude, _claude_allowed, ".claude/skills"),
    Client("codex", "Codex", "codex", _codex, _codex_allowed),
    Client("cursor", "Cursor", "cursor-agent", _cursor, _cursor_allowed),
    Client("gemini", "Gemini CLI", "gemini", _gemini, _gemini_allowed),
    Client("opencode", "opencode", "opencode", _opencode, _opencode_allowed),
)

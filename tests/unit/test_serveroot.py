"""Which folder the server works in, whatever folder and environment a client starts it with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli import choose_root
from tilewright.errors import UsageError

ROOT = Path(__file__).parents[2]


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return repository(tmp_path / "mine")


@pytest.fixture(params=["a copy", "a checkout", "a link to a checkout"])
def plugin(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A client's cache of this plugin: Codex copies a marketplace's whole folder, `.git` included."""
    folder = tmp_path / "plugins" / "cache" / "tilewright" / "0.1.0"
    if request.param == "a copy":
        folder.mkdir(parents=True)
    elif request.param == "a checkout":
        repository(folder)
    else:
        folder.parent.mkdir(parents=True)
        folder.symlink_to(repository(tmp_path / "checkout"))
    return folder


def test_without_a_plugin_the_current_folder_comes_first(tmp_path: Path, mine: Path) -> None:
    other, nowhere = repository(tmp_path / "other"), tmp_path / "nowhere"
    (mine / "deep").mkdir()
    nowhere.mkdir()
    assert choose_root(None, mine, {"PWD": str(other)}) == mine
    assert choose_root(None, mine / "deep", {}) == mine / "deep"
    assert choose_root(None, nowhere, {"PWD": str(mine)}) == mine
    assert choose_root(other, mine, {"PWD": str(mine)}) == other
    assert choose_root(nowhere, mine, {}) == nowhere, "what is named is taken: the tools say what it lacks"
    with pytest.raises(UsageError, match=r"--root .*gone: no such folder"):
        choose_root(tmp_path / "gone", mine, {"PWD": str(mine)})


def test_a_plugin_works_in_the_folder_where_its_client_was_started(plugin: Path, mine: Path) -> None:
    environment = {"PLUGIN_ROOT": str(plugin), "PWD": str(mine)}
    assert choose_root(None, plugin, environment) == mine
    assert choose_root(None, plugin.resolve(), environment) == mine
    assert choose_root(mine, plugin, environment | {"PWD": ""}) == mine
    other = repository(mine.parent / "other")
    assert choose_root(None, other, environment) == other, "a client that starts it in the repository is right"


@pytest.mark.parametrize("stale", ["unset", "gone", "no repository", "the plugin", "relative"])
def test_a_plugin_that_knows_no_repository_says_how_to_name_one(
    plugin: Path, mine: Path, stale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mine.parent / "plain").mkdir()
    monkeypatch.chdir(mine.parent)
    places = {"gone": "gone", "no repository": "plain", "the plugin": str(plugin)}
    environment = {"PLUGIN_ROOT": str(plugin)}
    if stale != "unset":
        environment["PWD"] = "mine" if stale == "relative" else str(mine.parent / places[stale])
    with pytest.raises(UsageError) as refused:
        choose_root(None, plugin, environment)
    said = str(refused.value)
    assert "the plugin's own folder" in said
    assert "`tilewright serve --root DIR`" in said
    assert "`codex mcp add tilewright -- tilewright serve --root DIR`" in said
    assert environment.get("PWD", "unset") in said
    assert "\n" not in said


def served(here: Path, *arguments: str, **environment: str) -> tuple[list[dict[str, object]], str, int]:
    """What the server answers to a call of session_status and to a read, its standard error and its exit status."""
    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    messages = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "session_status", "arguments": {}}},
        {"id": 3, "method": "resources/read", "params": {"uri": "skill://perf-loop/SKILL.md"}},
    ]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "serve", *arguments], cwd=here, env=kept | environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin and process.stdout and process.stderr
    answers: dict[int, dict[str, object]] = {}
    for message in messages:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        process.stdin.flush()
        if "id" in message:
            answer = json.loads(process.stdout.readline())
            answers[answer["id"]] = answer
    process.stdin.close()
    return [answers[number] for number in (2, 3)], process.stderr.read(), process.wait(timeout=20)


@pytest.mark.parametrize("plugin", ["a checkout"], indirect=True)
def test_the_agent_is_told_that_no_repository_is_known(plugin: Path, mine: Path) -> None:
    """Clients hide a server's standard error and tell the user that it failed to start, no more."""
    (status, page), said, _ = served(plugin, PLUGIN_ROOT=str(plugin))
    assert "`tilewright serve --root DIR`" in said
    assert "`tilewright serve --root DIR`" in json.dumps(status["result"])
    assert '"isError": true' in json.dumps(status["result"])
    assert "result" in page
    (status, *_), said, ended = served(plugin, PLUGIN_ROOT=str(plugin), PWD=str(mine))
    assert "has no commit yet" in json.dumps(status["result"])
    assert str(mine) in json.dumps(status["result"])
    assert (said, ended) == ("", 0)

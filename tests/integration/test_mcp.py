"""The server as clients see it: over real stdio, with progress, cancellation, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from jsonschema import validate
from mcp import Client, StdioServerParameters

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL, SCALE_TOML
from tilewright.isolation.supervisor import descendants

TOOLS = {
    "start_session",
    "session_status",
    "run_iteration",
    "run_correctness",
    "run_benchmark",
    "git_checkpoint",
    "revert",
    "append_result",
    "dump_ir",
    "autotune",
    "profile",
}
SERVE = [sys.executable, "-m", "tilewright", "serve", "--root"]
SLEEPER = SCALE_KERNEL.replace(
    "    out = torch.empty_like(x)", "    import time; time.sleep(3600)\n    out = torch.empty_like(x)"
)
SLOW = SLEEPER.replace("sleep(3600)", "sleep(0.05)")


def client(root: Path) -> Client:
    state = {"TILEWRIGHT_SPARES": os.environ["TILEWRIGHT_SPARES"]}
    return Client(StdioServerParameters(command=SERVE[0], args=[*SERVE[1:], str(root)], env=state))


async def content(connected: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """A tool's answer, which is what its published schema says, and nothing that this does not name."""
    result = await connected.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    (schema,) = (one.output_schema for one in (await connected.list_tools()).tools if one.name == tool)
    assert schema is not None
    validate(result.structured_content, schema)
    assert set(result.structured_content) <= set(schema["properties"])
    assert json.loads(str(getattr(result.content[0], "text", ""))) == result.structured_content
    return result.structured_content


async def refusal(connected: Client, tool: str, **arguments: Any) -> str:
    result = await connected.call_tool(tool, arguments)
    assert result.is_error
    return str(getattr(result.content[0], "text", ""))


def gone(pids: list[int]) -> list[int]:
    """Wait until the processes have ended. Return those that still run after two minutes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and any(alive(pid) for pid in pids):
        time.sleep(0.05)
    return [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_session_over_stdio(make_task: Callable[..., Path]) -> None:
    root = make_task(toml=SCALE_TOML.replace("1048576", "262144"))

    async def scene() -> None:
        async with client(root) as connected:
            listed = (await connected.list_tools()).tools
            assert {tool.name for tool in listed} == TOOLS
            for tool in listed:
                assert tool.output_schema
                assert tool.annotations
                assert tool.description
                properties = tool.input_schema.get("properties", {})
                assert all("description" in spec for spec in properties.values())
            assert (await content(connected, "session_status"))["phase"] == "none"
            assert "call start_session" in await refusal(connected, "run_correctness")
            assert "no such file or folder" in await refusal(connected, "start_session", task="nowhere")
            misspelt = await refusal(connected, "start_session", task="task", rule={})
            assert misspelt == "start_session: rule: unknown key; did you mean 'rules'?"

            seen: list[tuple[float, str | None]] = []

            async def progress(progress: float, total: float | None, message: str | None) -> None:
                seen.append((progress, message))

            begun = await connected.call_tool(
                "start_session", {"task": "task", "backend": "cpu"}, progress_callback=progress
            )
            assert not begun.is_error, begun.content
            counts = [count for count, _ in seen]
            assert counts == sorted(set(counts))
            (root / "task" / "kernel.py").write_text(FASTER_KERNEL)
            assert (await content(connected, "run_correctness"))["status"] == "passed"
            report = await content(connected, "run_benchmark")
            assert report["verdict"]["kind"] == "keep"
            assert report["level"] == "modelled"
            await content(connected, "git_checkpoint")
            row = await content(connected, "append_result", optimization="large tiles")
            assert row["row"].endswith("| PASS | keep |")
            assert "large tiles" in (root / "sandbox" / "perf_results.md").read_text()
            assert [record["kind"] for record in records_of(root)] == [
                "started", "begun", "checked", "begun", "measured", "row",
                "begun", "checked", "begun", "measured", "settled", "row",
            ]  # fmt: skip
            dump = await content(connected, "dump_ir", arch=["sm_80", "sm_100"], stage="tile_ir")
            assert re.findall(r"scale_kernel on (\w+)", dump["summary"]) == ["sm_80", "sm_100"]
            assert len(json.dumps(dump, separators=(",", ":"))) <= 6400
            assert "scale_kernel for sm_100: tile_ir" in (root / dump["file"]).read_text()
            compared = await content(connected, "dump_ir", compare="incumbent")
            assert compared["summary"] == "scale_kernel on sm_90: compiles to the same"
            (root / "task" / "kernel.py").write_text(SCALE_KERNEL)
            compared = await content(connected, "dump_ir", compare="incumbent")
            changed = re.search(r"instructions (\d+ -> \d+)", compared["summary"])
            assert changed is not None
            assert f"instructions: {changed[1]}\n" in compared["text"]
            assert re.search(r"^\+.*Tile\[float32,\(64\)\]", compared["text"], re.MULTILINE)
            assert re.search(r"^-.*Tile\[float32,\(1024\)\]", compared["text"], re.MULTILINE)
            bound = await content(connected, "profile")
            assert bound["cases"][0]["root_cause"] in bound["next"]
            assert bound["modelled"]
            larger = await content(connected, "profile", config={"TILE": 512})
            assert larger["cases"][0]["latency_ms"] != bound["cases"][0]["latency_ms"]
            assert "no tunable parameter 'TILES'" in await refusal(connected, "profile", config={"TILES": 1})
            assert "no tunable parameter 'TILES'" in await refusal(connected, "autotune", space={"TILES": [1]})

    asyncio.run(scene())


PAGE_CHARACTERS = 20_000
"""About 5,000 tokens: what an agent can take in at once without losing sight of its work."""


def test_every_page_can_be_read_at_once(make_task: Callable[..., Path]) -> None:
    root = make_task()

    async def scene() -> None:
        async with client(root) as connected:
            pages = [str(resource.uri) for resource in (await connected.list_resources()).resources]
            assert all(uri.startswith("skill://") for uri in pages)
            assert len(pages) > 20
            sizes = {}
            for uri in pages:
                (content,) = (await connected.read_resource(uri)).contents
                sizes[uri] = len(str(getattr(content, "text", "")))
            assert {uri: size for uri, size in sizes.items() if not 0 < size <= PAGE_CHARACTERS} == {}

    asyncio.run(scene())


def records_of(root: Path) -> list[dict[str, Any]]:
    (journal,) = root.glob("sandbox/*/journal.jsonl")
    return [json.loads(line)["data"] for line in journal.read_text().splitlines()]


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def workers(pid: int) -> list[int]:
    return [child for child in descendants(pid) if name_of(child) == "tw-worker"]


def under_way(root: Path, pid: int) -> bool:
    """Whether a run is on record that has not ended, and a worker below `pid` is there for it."""
    return records_of(root)[-1]["kind"] == "begun" and bool(workers(pid))


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


class RawServer:
    """The server spoken to line by line, as a client of an older protocol revision would."""

    def __init__(self, root: Path, environment: dict[str, str] | None = None, errors: IO[str] | None = None) -> None:
        """`errors`: where its standard error goes; default: to that of the tests."""
        self.process = subprocess.Popen(
            [*SERVE, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        self._number = 0

    def send(self, method: str, **params: Any) -> int:
        assert self.process.stdin is not None
        self._number += 1
        params["_meta"] = {"progressToken": self._number}
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        return self._number

    def notify(self, method: str, **params: Any) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def receive(self, number: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)  # nothing but the protocol is on standard output
            if message.get("id") == number:
                return message
        raise AssertionError("the server closed its output")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result: dict[str, Any] = self.receive(self.send("tools/call", name=tool, arguments=arguments))["result"]
        return result

    def handshake(self, revision: str) -> dict[str, Any]:
        about = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "raw", "version": "0"}}
        result: dict[str, Any] = self.receive(self.send("initialize", **about))["result"]
        self.notify("notifications/initialized")
        return result


@contextlib.contextmanager
def served(root: Path) -> Iterator[RawServer]:
    """A server in a process of its own, which is killed at the end."""
    server = RawServer(root)
    try:
        server.handshake("2025-11-25")
        yield server
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
def test_clients_of_older_revisions_are_served(make_task: Callable[..., Path], revision: str) -> None:
    server = RawServer(make_task())
    try:
        assert server.handshake(revision)["protocolVersion"] == revision
        answer = server.receive(server.send("tools/list"))
        tools = answer["result"]["tools"]
        assert {tool["name"] for tool in tools} == TOOLS
        assert all(tool["outputSchema"]["properties"] for tool in tools if revision >= "2025-06-18")
        tokens = len(json.dumps(answer, separators=(",", ":"), ensure_ascii=False)) / 4
        assert tokens <= 5000, f"tools/list costs {tokens:.0f} tokens"
        status = server.call("session_status")
        assert "no session yet" in status["content"][0]["text"]
        assert server.call("revert")["isError"]
    finally:
        server.process.kill()
        server.process.wait()


@pytest.mark.parametrize(
    ("number", "detached"),
    [
        (signal.SIGKILL, False),
        (None, False),
        *(pytest.param(*how, marks=pytest.mark.slow) for how in ((signal.SIGTERM, True), (None, True))),
        pytest.param(signal.SIGPIPE, False, marks=pytest.mark.slow),
    ],
)
def test_all_ends_with_the_server_and_the_next_one_says_so(
    begun: Path, tmp_path: Path, number: signal.Signals | None, detached: bool
) -> None:
    """SIGPIPE: the client is gone, and the server writes to it."""
    root = begun
    with (tmp_path / "errors").open("w") as errors:
        server = RawServer(root, errors=errors)
    server.handshake("2025-11-25")
    (root / "task" / "kernel.py").write_text(SLEEPER)
    call = server.send("tools/call", name="run_correctness", arguments={})
    while not under_way(root, server.process.pid):
        time.sleep(0.1)
    if detached:
        server.notify("notifications/cancelled", requestId=call)
        time.sleep(0.2)
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "libtorch" not in loaded
    assert "libcuda.so" not in loaded
    children = descendants(server.process.pid)
    folders = {part for pid in children for part in command(pid).split() if part.startswith("/tmp/tilewright-")}
    if number in (None, signal.SIGPIPE):
        assert server.process.stdin is not None
        assert server.process.stdout is not None
        if number is not None:
            server.process.stdout.close()
            server.send("ping")
            time.sleep(1.0)
        server.process.stdin.close()
    else:
        server.process.send_signal(number)
    assert gone([server.process.pid]) == [] or server.process.wait(timeout=1) is not None
    assert gone(children) == []
    time.sleep(0.5)
    assert [folder for folder in folders if Path(folder).exists()] == []
    assert records_of(root)[-1]["kind"] == "begun"
    assert "Traceback" not in (tmp_path / "errors").read_text()

    with served(root) as server:
        status = server.call("session_status")["structuredContent"]
        assert status["state"] == "done"
        assert (status["phase"], status["iteration"], len(status["tried"])) == ("ready", 1, 1)
        assert "the last run (check) was broken off" in status["summary"]
        assert status["next"] == "call run_iteration on the edited files"

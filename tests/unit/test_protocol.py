"""The server does what it says that it does, and refuses the rest with the code of the client's revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.pages.page import ROOT
from tilewright.errors import UsageError
from tilewright.interface.mcp import build_server
from tilewright.tools.workspace import Workspace

MODES = ["legacy", "auto"]
"""With a handshake, and by revision 2026-07-28."""
INVALID_PARAMS = -32602


async def refused(call: Awaitable[Any]) -> MCPError:
    with pytest.raises(MCPError) as error:
        await call
    return error.value


@pytest.mark.parametrize("mode", MODES)
def test_no_updates_are_promised(mode: str) -> None:
    """Nothing subscribes the client, so that a promise would leave it with what it read first."""

    async def scene() -> None:
        async with Client(build_server(Workspace(ROOT)), mode=mode) as client:
            offered = client.server_capabilities
            assert offered.resources and offered.prompts and offered.tools
            assert not offered.resources.subscribe
            assert not any(part.list_changed for part in (offered.resources, offered.prompts, offered.tools))

    asyncio.run(scene())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_unknown_is_refused(mode: str) -> None:
    async def scene() -> None:
        async with Client(build_server(Workspace(ROOT)), mode=mode) as client:
            for call, code, words in (
                (client.get_prompt("nope"), INVALID_PARAMS, "no prompt 'nope'; the prompts are optimise-kernel"),
                (client.get_prompt("optimise-kernel"), INVALID_PARAMS, "lacks the argument task"),
                (client.get_prompt("optimise-kernel", {"goal": "fast"}), INVALID_PARAMS, "lacks the argument task"),
                (
                    client.get_prompt("optimise-kernel", {"task": "t", "gaol": "fast"}), INVALID_PARAMS,
                    "has no argument 'gaol'; it takes task, goal",
                ),
                (client.call_tool("nope", {}), INVALID_PARAMS, "no tool 'nope'; the tools are append_result, "),
                (client.read_resource("tilewright://nope"), INVALID_PARAMS, "tilewright://nope"),
                (client.read_resource("skill://perf-loop/nope.md"), INVALID_PARAMS, "skill://perf-loop/nope.md"),
            ):  # fmt: skip
                error = await refused(call)
                assert (error.code, words in error.message) == (code, True), error
            assert (await client.get_prompt("optimise-kernel", {"task": "t"})).messages
            assert not (await client.call_tool("session_status", {})).is_error

    asyncio.run(scene())


@pytest.mark.parametrize("mode", MODES)
def test_resources_of_a_session_say_why_there_is_none(mode: str, tmp_path: Path) -> None:
    for place, words in ((tmp_path, "is not in a git repository"), (UsageError("name it"), "name it")):

        async def scene(place: Path | UsageError = place, words: str = words) -> None:
            async with Client(build_server(Workspace(place)), mode=mode) as client:
                for name in ("results", "journal"):
                    error = await refused(client.read_resource(f"tilewright://{name}"))
                    assert error.code == INVALID_PARAMS
                    assert words in error.message

        asyncio.run(scene())

"""The server does what it says that it does, and refuses the rest with the code of the client's revision."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from mcp import Client, MCPError

from tests.pages.page import ROOT
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
            assert offered.resources and offered.tools
            assert not offered.resources.subscribe
            assert not any(part.list_changed for part in (offered.resources, offered.tools))

    asyncio.run(scene())


@pytest.mark.parametrize("mode", MODES)
def test_what_is_unknown_is_refused(mode: str) -> None:
    async def scene() -> None:
        async with Client(build_server(Workspace(ROOT)), mode=mode) as client:
            for call, code, words in (
                (client.call_tool("nope", {}), INVALID_PARAMS, "no tool 'nope'; the tools are append_result, "),
                (client.read_resource("tilewright://nope"), INVALID_PARAMS, "tilewright://nope"),
                (client.read_resource("skill://perf-loop/nope.md"), INVALID_PARAMS, "skill://perf-loop/nope.md"),
            ):  # fmt: skip
                error = await refused(call)
                assert (error.code, words in error.message) == (code, True), error
            assert not (await client.call_tool("session_status", {})).is_error

    asyncio.run(scene())

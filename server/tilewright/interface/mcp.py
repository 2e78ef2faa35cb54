"""The tools and the pages of the skills over MCP. Standard output carries the protocol alone.

It imports nothing heavy before a tool is called.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from tilewright import __version__
from tilewright.errors import UsageError
from tilewright.skillpack import HOST, MANIFEST, Skill, skills, uri
from tilewright.tools import table
from tilewright.tools.tool import Effect, Tool, answer_schema, arguments_schema
from tilewright.tools.workspace import Workspace

INSTRUCTIONS = """Tilewright makes a GPU kernel faster, one verified experiment at a time.
The loop: start_session once; then for each iteration edit the editable files (ONE optimization) and call run_iteration,
which checks, measures, keeps or reverts, and logs. Its stages are tools, too: run_correctness, run_benchmark,
git_checkpoint or revert, append_result. session_status always tells what to do next. Every figure in the log is the
server's own measurement. In answers, `state` running means: make the same call again to wait; `status` is passed, or
how the candidate failed; a field without a value is left out. A cancelled or timed-out call leaves its work running:
the same call again waits for it and gets its result. Work that no call waits for ends after two minutes, or when
another call needs the machine."""

Context = ServerRequestContext[Any, Any]
logger = logging.getLogger(__name__)


def build_server(workspace: Workspace) -> Server[None]:
    """The server whose tools work at `workspace`."""

    @asynccontextmanager
    async def lifespan(_: Server[None]) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            with anyio.CancelScope(shield=True):  # a client that closed its end cancels all that is outside
                await workspace.close()

    handlers = Handlers(workspace)
    return Server(
        "tilewright", title="Tilewright", version=__version__, instructions=INSTRUCTIONS, lifespan=lifespan,
        on_list_tools=handlers.list_tools, on_call_tool=handlers.call_tool, on_list_resources=handlers.list_resources,
        on_read_resource=handlers.read_resource,
    )  # fmt: skip


class Handlers:
    """What the server answers to each kind of request."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._tools = table()

    async def list_tools(self, _: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_listed(tool) for tool in self._tools.values()])

    async def call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            names = ", ".join(sorted(self._tools))
            raise MCPError(types.INVALID_PARAMS, f"no tool {params.name!r}; the tools are {names}")
        count = 0

        async def tell(text: str) -> None:
            nonlocal count
            count += 1
            await context.session.report_progress(count, None, text)

        try:
            report = await tool.work(self._workspace, tool.parse(params.arguments or {}), tell)
        except (UsageError, OSError) as error:
            return _refused(str(error))
        except Exception as error:
            logger.exception("%s failed", tool.name)
            return _refused(f"{tool.name} failed, which is a defect of Tilewright: {type(error).__name__}: {error}")
        answer = report.model_dump(mode="json", exclude_none=True)
        text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], structured_content=answer)

    async def list_resources(self, _: Context, params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[_resource(skill, place) for skill in skills(uri(HOST, "")) for place in skill.files]
        )

    async def read_resource(self, _: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        address = str(params.uri)
        for skill in skills(uri(HOST, "")):
            for place, data in skill.files.items():
                if address == uri(skill.name, place):
                    text = types.TextResourceContents(uri=address, mime_type=_kind(place), text=data.decode())
                    return types.ReadResourceResult(contents=[text])
        raise MCPError(types.INVALID_PARAMS, f"no resource {address}", {"uri": address})


def _resource(skill: Skill, place: str) -> types.Resource:
    is_manifest = place == MANIFEST
    return types.Resource(
        uri=uri(skill.name, place),
        name=skill.name if is_manifest else f"{skill.name}/{place}",
        description=skill.description if is_manifest else f"part of the skill {skill.name}",
        mime_type=_kind(place),
    )


def _kind(place: str) -> str:
    return "text/markdown" if place.endswith(".md") else "text/plain"


def _refused(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


def _listed(tool: Tool[Any, Any]) -> types.Tool:
    """The tool as a client sees it. No tool reaches out of the machine."""
    annotations = types.ToolAnnotations(
        read_only_hint=tool.effect is Effect.READS,
        destructive_hint=tool.effect in (Effect.OVERWRITES, Effect.DISCARDS),
        idempotent_hint=tool.effect in (Effect.READS, Effect.REPEATS, Effect.DISCARDS),
        open_world_hint=False,
    )
    return types.Tool(
        name=tool.name, title=tool.title, description=tool.description, annotations=annotations,
        input_schema=arguments_schema(tool.params), output_schema=answer_schema(tool.report),
    )  # fmt: skip


def serve(root: Path | UsageError) -> None:
    """Run on standard input and output until the client leaves or the process is told to stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    workspace = Workspace(root)
    ending: list[asyncio.Task[None]] = []

    async def leave() -> None:
        try:
            await workspace.close()
        finally:
            os._exit(0)  # the thread that reads standard input cannot be woken; every record is on disk already

    async def run() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: ending.append(asyncio.ensure_future(leave())) if not ending else None
            )
        server = build_server(workspace)
        try:
            async with stdio_server() as (reading, writing):
                await server.run(reading, writing, server.create_initialization_options())
        except* BrokenPipeError:  # the client was killed
            await leave()

    asyncio.run(run())

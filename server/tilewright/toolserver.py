"""An MCP server all of whose tools publish brief schemas and refuse wrong arguments in one sentence.

Which tools there are, and what they do, is `mcp_server.py`'s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp_types import CallToolResult, Icon, InputRequiredResult, TextContent, ToolAnnotations
from pydantic import ValidationError

from tilewright import toolschemas


class ToolServer(MCPServer[None]):
    """The SDK's server, with our words for what is wrong with a call."""

    def add_tool(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
    ) -> None:
        """Add a tool. A misspelt argument of it is an error: the SDK would drop it, and a user's limit with it."""
        super().add_tool(fn, name, title, description, annotations, icons, meta, structured_output)
        tool = self._tool_manager.get_tool(name or fn.__name__)
        assert tool is not None
        about = tool.fn_metadata
        about.arg_model.model_config["extra"] = "forbid"
        about.arg_model.model_rebuild(force=True)
        tool.parameters = toolschemas.of_arguments(tool.parameters)
        if about.output_schema is not None:
            about.output_schema = toolschemas.of_answer(about.output_schema)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[None, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; what is wrong with its arguments, or with calling it now, is a `ToolError` in our words."""
        tool = self._tool_manager.get_tool(name)
        if tool is not None:
            schema = tool.fn_metadata.arg_model.model_json_schema()
            arguments = toolschemas.without_unset(schema, tool.fn_metadata.pre_parse_json(arguments))
        if text := toolschemas.unwritable(arguments):
            raise ToolError(text)
        try:
            result = await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            cause = error.__cause__
            if tool is None:
                raise
            if isinstance(cause, ValidationError):
                raise ToolError(toolschemas.complaint(name, schema, arguments, cause)) from None
            raise ToolError(str(cause)) from None  # without the name of the tool, which the caller knows
        if isinstance(result, CallToolResult) and result.structured_content is not None:
            answer = toolschemas.without_nulls(result.structured_content)
            text = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
            return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)
        return result

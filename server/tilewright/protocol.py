"""Requests for what the server does not have, refused with the code that the client's protocol revision gives them.

The SDK answers an unknown prompt, or a prompt without its arguments, as a fault of the server's own, and an unknown
tool as a result of that tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mcp.server import MCPServer, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, Prompt
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

RESOURCE_NOT_FOUND = -32002
"""What an unknown resource was before revision 2026-07-28, which has it as invalid parameters."""


def refusals(mcp: MCPServer[Any]) -> ServerMiddleware[Any]:
    """Return the middleware that refuses what `mcp` does not have."""

    async def refuse(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        params = ctx.params or {}
        if ctx.method == "tools/call":
            _chosen("tool", params, {tool.name for tool in await mcp.list_tools()})
        if ctx.method == "prompts/get":
            prompts = {prompt.name: prompt for prompt in await mcp.list_prompts()}
            if name := _chosen("prompt", params, prompts):
                _check_arguments(prompts[name], params.get("arguments"))
        try:
            return await call_next(ctx)
        except MCPError as error:
            missing = error.code == INVALID_PARAMS and error.data == {"uri": params.get("uri")}
            if ctx.method == "resources/read" and missing and ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                raise MCPError(RESOURCE_NOT_FOUND, error.message, error.data) from None
            raise

    return refuse


def _chosen(kind: str, params: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the name that the request gives, empty where it is no text: then the SDK refuses the request's form."""
    name = params.get("name")
    if not isinstance(name, str):
        return ""
    if name not in names:
        raise MCPError(INVALID_PARAMS, f"no {kind} {name!r}; the {kind}s are {', '.join(sorted(names))}")
    return name


def _check_arguments(prompt: Prompt, given: Any) -> None:
    arguments = prompt.arguments or []
    if not isinstance(given, Mapping | None):
        return
    missing = [one.name for one in arguments if one.required and one.name not in (given or {})]
    if missing:
        raise MCPError(INVALID_PARAMS, f"the prompt {prompt.name} lacks the argument {missing[0]}")
    known = [one.name for one in arguments]
    strange = sorted(set(given or {}) - {*known})
    if strange:
        message = f"the prompt {prompt.name} has no argument {strange[0]!r}; it takes {', '.join(known)}"
        raise MCPError(INVALID_PARAMS, message)

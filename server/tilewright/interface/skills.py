"""The skills over MCP, by the extension `io.modelcontextprotocol/skills` (SEP-2640): listed, got, read as resources."""

from __future__ import annotations

import hashlib
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, RequestParams, Resource

from tilewright.errors import UsageError
from tilewright.skillpack import HOST, MANIFEST, Skill, load_skill, served_skills, uri

EXTENSION = "io.modelcontextprotocol/skills"
CACHED = {"ttlMs": 3_600_000, "cacheScope": "public"}
"""The skills of a running server do not change."""


class ListParams(RequestParams):
    """Of `skills/list`; there is one page, so that no cursor is ever handed out."""

    cursor: str | None = None


class GetParams(RequestParams):
    """Of `skills/get`."""

    uri: str


def add_to(server: Server[Any]) -> None:
    """Let the server answer the extension's requests."""
    server.extensions[EXTENSION] = {}
    server.add_request_handler("skills/list", ListParams, _list)
    server.add_request_handler("skills/get", GetParams, _get)


def resources() -> list[Resource]:
    """Every page of the skills."""
    return [_resource(skill, place) for skill in served_skills() for place in skill.files]


def page(address: str) -> tuple[str, str]:
    """The type and the text of a page, as it is, line ends included, so that its digest holds. Raises `UsageError`."""
    for skill in served_skills():
        for place, data in skill.files.items():
            if address == uri(skill.name, place):
                return _kind(place), data.decode()
    raise UsageError(f"no resource {address}")


def rules_of_the_loop() -> str:
    """The text of the skill perf-loop."""
    return load_skill(HOST).files[MANIFEST].decode().split("---\n", 2)[2]


def _entry(skill: Skill) -> dict[str, Any]:
    files = [
        {"uri": uri(skill.name, place), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
        for place, data in skill.files.items()
    ]
    return {"uri": uri(skill.name, MANIFEST), "frontmatter": skill.frontmatter, "resources": files}


async def _list(_: Any, params: ListParams) -> dict[str, Any]:
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "skills/list has one page; call it without a cursor")
    return {"skills": [_entry(skill) for skill in served_skills()], **CACHED}


async def _get(_: Any, params: GetParams) -> dict[str, Any]:
    for skill in served_skills():
        if params.uri == uri(skill.name, MANIFEST):
            return {"skill": _entry(skill), **CACHED}
    raise MCPError(INVALID_PARAMS, f"no skill {params.uri}; skills/list names those there are")


def _resource(skill: Skill, place: str) -> Resource:
    is_manifest = place == MANIFEST
    return Resource(
        uri=uri(skill.name, place),
        name=skill.name if is_manifest else f"{skill.name}/{place}",
        description=skill.frontmatter["description"] if is_manifest else f"part of the skill {skill.name}",
        mime_type=_kind(place),
    )


def _kind(place: str) -> str:
    return "text/markdown" if place.endswith(".md") else "text/plain"

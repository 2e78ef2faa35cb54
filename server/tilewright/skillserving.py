"""The skills over MCP, by the extension `io.modelcontextprotocol/skills` (SEP-2640): listed, got, read as resources.

Which skill a page is served with is `skillpack.served_skills`'s to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from mcp.server.extension import Extension, MethodBinding, ResourceBinding
from mcp.server.mcpserver.resources import TextResource
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, RequestParams

from tilewright.skillpack import MANIFEST, Skill, served_skills, uri

CACHED = {"ttlMs": 3_600_000, "cacheScope": "public"}
"""The skills of a running server do not change."""


class ListParams(RequestParams):
    """Of `skills/list`; there is one page, so that no cursor is ever handed out."""

    cursor: str | None = None


class GetParams(RequestParams):
    """Of `skills/get`."""

    uri: str


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


class SkillsExtension(Extension):
    """The skill pack of this installation."""

    identifier = "io.modelcontextprotocol/skills"

    def methods(self) -> Sequence[MethodBinding]:
        return (MethodBinding("skills/list", ListParams, _list), MethodBinding("skills/get", GetParams, _get))

    def resources(self) -> Sequence[ResourceBinding]:
        return tuple(ResourceBinding(_resource(skill, place)) for skill in served_skills() for place in skill.files)


def _resource(skill: Skill, place: str) -> TextResource:
    """A file of a skill. Its text is passed on as it is, line ends included, so that the digest holds."""
    is_manifest = place == MANIFEST
    return TextResource(
        uri=uri(skill.name, place),
        name=skill.name if is_manifest else f"{skill.name}/{place}",
        description=skill.frontmatter["description"] if is_manifest else f"part of the skill {skill.name}",
        mime_type="text/markdown" if place.endswith(".md") else "text/plain",
        text=skill.files[place].decode(),
    )

"""The skills over MCP: each page is a resource."""

from __future__ import annotations

from mcp_types import Resource

from tilewright.errors import UsageError
from tilewright.skillpack import MANIFEST, Skill, served_skills, uri


def resources() -> list[Resource]:
    """Every page of the skills."""
    return [_resource(skill, place) for skill in served_skills() for place in skill.files]


def page(address: str) -> tuple[str, str]:
    """The type and the text of a page. Raises `UsageError`."""
    for skill in served_skills():
        for place, data in skill.files.items():
            if address == uri(skill.name, place):
                return _kind(place), data.decode()
    raise UsageError(f"no resource {address}")


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

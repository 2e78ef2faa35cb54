"""The skills as agents get them. One of them holds the pages and examples; the others link to its folder."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright import bundled
from tilewright.errors import UsageError

MANIFEST = "SKILL.md"
HOST = "perf-loop"
"""The skill that holds the pages and the examples."""
_ROOT = "](../../"
"""How a link to a page or an example begins in a manifest of the source tree."""
_EXAMPLE = re.compile(r"\]\(\.\./assets/examples/([^)#]+)")
_CHECK = re.compile(r"^<!-- (?:run|refused|with)\b.*?-->\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Skill:
    """One skill: its description, and its files by their place in the skill's folder, `SKILL.md` first."""

    name: str
    description: str
    files: dict[str, bytes]


@cache
def skills(host: str) -> tuple[Skill, ...]:
    """The skills that this installation holds. `host`: how a link to the folder of `HOST` begins in the others."""
    found = []
    for folder in sorted(path.parent for path in bundled.skills().glob(f"*/{MANIFEST}")):
        text, is_host = _text(folder / MANIFEST), folder.name == HOST
        manifest = text.replace(_ROOT, "](" if is_host else f"]({host}").encode()
        files = {MANIFEST: manifest} | (pages() if is_host else {})
        found.append(Skill(folder.name, text.partition("\ndescription: ")[2].partition("\n")[0], files))
    return tuple(found)


@cache
def pages() -> dict[str, bytes]:
    """The pages, without what only their checks read, and the examples that they link to."""
    texts = {path.name: _text(path) for path in sorted(bundled.references().glob("*.md"))}
    examples = sorted(set(_EXAMPLE.findall("".join(texts.values()))))
    return {f"references/{name}": text.encode() for name, text in texts.items()} | {
        f"assets/examples/{place}": (bundled.examples() / place).read_bytes() for place in examples
    }


def install(target: Path) -> list[Path]:
    """Write the skills into folders of their names under `target`, in place of older copies of themselves.

    Raises `UsageError`, before anything is written, where such a folder holds something else.
    """
    chosen = skills(f"../{HOST}/")
    for folder in (target / skill.name for skill in chosen):
        if folder.is_symlink() or (folder.exists() and not _is_copy(folder)):
            raise UsageError(f"{folder} is there and is no copy of the skill; move it away, or give another --to")
    for skill in chosen:
        for kept in {Path(place).parts[0] for place in pages()}:
            shutil.rmtree(target / skill.name / kept, ignore_errors=True)
        for place, data in skill.files.items():
            path = target / skill.name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return [target / skill.name for skill in chosen]


def uri(name: str, place: str) -> str:
    """Return the address of a skill's file as an MCP resource."""
    return f"skill://{name}/{place}"


@cache
def treatment_pages() -> dict[str, str]:
    """Return the address of the page that explains each treatment, by the treatment's name."""
    return {
        name: uri(HOST, place)
        for place, data in pages().items()
        if place.startswith("references/playbook-")
        for name in re.findall(r"^## (\S+)$", data.decode(), re.MULTILINE)
    }


def _text(path: Path) -> str:
    return _CHECK.sub("", path.read_text(encoding="utf-8"))


def _is_copy(folder: Path) -> bool:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return folder.is_dir() and not any(folder.iterdir())
    return manifest.read_text(encoding="utf-8", errors="replace").startswith(f"---\nname: {folder.name}\n")

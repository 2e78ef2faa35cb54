"""The skills as agents get them: each a folder that holds every page and example it links to."""

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
"""The skill that the server offers whole; the manifests of the others link to its pages."""
_ROOT = "](../../"
"""How a link to a page or an example begins in a manifest of the source tree."""
_EXAMPLE = re.compile(r"\]\(\.\./assets/examples/([^)#]+)")
_CHECK = re.compile(r"^<!-- (?:run|refused|with)\b.*?-->\n", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Skill:
    """One skill: its frontmatter, and its files by their place in the skill's folder, `SKILL.md` first."""

    name: str
    frontmatter: dict[str, str]
    files: dict[str, bytes]


def skill_names() -> list[str]:
    """The names of the skills that this installation holds."""
    return sorted(folder.name for folder in bundled.skills().iterdir() if (folder / MANIFEST).is_file())


def load_skill(name: str) -> Skill:
    """The skill of that name, self-contained. Raises `UsageError` where there is none."""
    if name not in skill_names():
        raise UsageError(f"no skill {name!r}; there are {', '.join(skill_names())}")
    return Skill(
        name, frontmatter(_manifest(name)), {MANIFEST: _manifest(name).replace(_ROOT, "](").encode()} | pages()
    )


def frontmatter(text: str) -> dict[str, str]:
    """The fields between the first two `---` lines, each `key: value` on one line."""
    _, block, _ = text.split("---\n", 2)
    return {key: value.strip() for key, _, value in (line.partition(": ") for line in block.splitlines())}


@cache
def pages() -> dict[str, bytes]:
    """The pages that every skill holds, without what only their checks read, and the examples that they link to."""
    texts = {path.name: _text(path) for path in sorted(bundled.references().glob("*.md"))}
    examples = sorted(set(_EXAMPLE.findall("".join(texts.values()))))
    return {f"references/{name}": text.encode() for name, text in texts.items()} | {
        f"assets/examples/{place}": (bundled.examples() / place).read_bytes() for place in examples
    }


def install(names: list[str], target: Path) -> list[Path]:
    """Write the skills into folders of their names under `target`, in place of older copies of themselves.

    Raises `UsageError`, before anything is written, where such a folder holds something else.
    """
    skills = [load_skill(name) for name in names or skill_names()]
    for skill in skills:
        folder = target / skill.name
        if folder.is_symlink() or (folder.exists() and not _is_copy(folder, skill.name)):
            raise UsageError(f"{folder} is there and is no copy of the skill; move it away, or give another --to")
    for skill in skills:
        for kept in {Path(place).parts[0] for place in pages()}:
            shutil.rmtree(target / skill.name / kept, ignore_errors=True)
        for place, data in skill.files.items():
            path = target / skill.name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return [target / skill.name for skill in skills]


def uri(name: str, place: str) -> str:
    """Return the address of a skill's file as an MCP resource."""
    return f"skill://{name}/{place}"


@cache
def served_skills() -> tuple[Skill, ...]:
    """Return the skills as the server offers them: the pages are in one of them, and the others link to it."""
    hosted = load_skill(HOST)
    linked = {name: _manifest(name).replace(_ROOT, f"]({uri(HOST, '')}").encode() for name in skill_names()}
    return tuple(
        hosted if name == HOST else Skill(name, frontmatter(text.decode()), {MANIFEST: text})
        for name, text in linked.items()
    )


@cache
def treatment_pages() -> dict[str, str]:
    """Return the address of the page that explains each treatment, by the treatment's name."""
    return {
        name: uri(HOST, place)
        for place, data in pages().items()
        if place.startswith("references/playbook-")
        for name in re.findall(r"^## (\S+)$", data.decode(), re.MULTILINE)
    }


def _manifest(name: str) -> str:
    return _text(bundled.skills() / name / MANIFEST)


def _text(path: Path) -> str:
    return _CHECK.sub("", path.read_text(encoding="utf-8"))


def _is_copy(folder: Path, name: str) -> bool:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return folder.is_dir() and not any(folder.iterdir())
    return manifest.read_text(encoding="utf-8", errors="replace").startswith(f"---\nname: {name}\n")

"""The skills as agents get them: each a folder that holds every page and example it links to, its links made to fit."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath

from tilewright import bundled
from tilewright.errors import UsageError
from tilewright.files import write_atomically

MANIFEST = "SKILL.md"
SHARED = ("references", "assets")
"""The folders of a skill whose files other skills may hold too."""
HOST = "perf-loop"
"""The skill that the server offers whole; other skills link to its files."""
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
_CHECK = re.compile(r"^<!-- (?:run|refused|with)\b.*?-->\n", re.DOTALL | re.MULTILINE)


class SkillError(UsageError):
    """What was asked of the skills cannot be done; the text says what can."""


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
    """The skill of that name, self-contained. Raises `SkillError` where there is none."""
    if name not in skill_names():
        raise SkillError(f"no skill {name!r}; there are {', '.join(skill_names())}")
    home = f"skills/{name}"
    files: dict[str, bytes] = {}
    waiting = [f"{home}/{MANIFEST}"]
    while waiting:
        source = waiting.pop(0)
        data = _real(source).read_bytes()
        if source.endswith(".md"):
            text, linked = _rewritten(data.decode(), source, home)
            data = text.encode()
            waiting += [one for one in linked if _place(one, home) not in files and one not in waiting]
        files[_place(source, home)] = data
    return Skill(name, frontmatter(files[MANIFEST].decode()), files)


def frontmatter(text: str) -> dict[str, str]:
    """The fields between the first two `---` lines, each `key: value` on one line."""
    _, block, _ = text.split("---\n", 2)
    return {key: value.strip() for key, _, value in (line.partition(": ") for line in block.splitlines())}


def install(names: list[str], target: Path) -> list[Path]:
    """Write the skills into folders of their names under `target`, over older copies of themselves, of whose pages and
    examples none stays that is no longer there.

    Raises `SkillError`, before anything is written, where such a folder holds something else.
    """
    skills = [load_skill(name) for name in names or skill_names()]
    for skill in skills:
        folder = target / skill.name
        if folder.is_symlink() or (folder.exists() and not _is_copy(folder, skill.name)):
            raise SkillError(f"{folder} is there and is no copy of the skill; move it away, or give another --to")
    for skill in skills:
        home = target / skill.name
        old = [path for kept in SHARED for path in (home / kept).rglob("*") if path.is_file()]
        for path in old:
            if path.relative_to(home).as_posix() not in skill.files:
                path.unlink()
        for place, data in skill.files.items():
            path = home / place
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, data)
    return [target / skill.name for skill in skills]


def uri(name: str, place: str) -> str:
    """Return the address of a skill's file as an MCP resource."""
    return f"skill://{name}/{place}"


@cache
def served_skills() -> tuple[Skill, ...]:
    """Return the skills as the server offers them: what several hold is in one of them, and the others link to it."""
    owners: dict[str, str] = {}
    served = []
    for name in sorted(skill_names(), key=lambda name: (name != HOST, name)):
        skill = load_skill(name)
        for place in skill.files:
            if place.partition("/")[0] in SHARED:
                owners.setdefault(place, name)
        files = {
            place: _pointing(data, place, name, owners) if place.endswith(".md") else data
            for place, data in skill.files.items()
            if owners.get(place, name) == name
        }
        served.append(replace(skill, files=files))
    return tuple(sorted(served, key=lambda skill: skill.name))


@cache
def treatment_pages() -> dict[str, str]:
    """Return the address of the page that explains each treatment, by the treatment's name."""
    pages = [(uri(skill.name, place), data) for skill in served_skills() for place, data in skill.files.items()]
    return {
        name: address
        for address, data in pages
        if PurePosixPath(address).name.startswith("playbook-")
        for name in re.findall(r"^## (\S+)$", data.decode(), re.MULTILINE)
    }


def _pointing(data: bytes, place: str, name: str, owners: dict[str, str]) -> bytes:
    """Return the page `place` of a skill, its links to files of other skills made addresses."""

    def point(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, hash_, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        owner = owners.get(wanted, name) if path else name
        return match.group(0) if owner == name else f"[{label}]({uri(owner, wanted)}{hash_}{anchor})"

    return _LINK.sub(point, data.decode()).encode()


def _is_copy(folder: Path, name: str) -> bool:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return folder.is_dir() and not any(folder.iterdir())
    text = manifest.read_text(encoding="utf-8", errors="replace")
    return text.startswith(f"---\nname: {name}\n")


def _real(source: str) -> Path:
    """The file behind a path of the source tree, which a wheel lays out in its own way."""
    for prefix, folder in (("skills/", bundled.skills), ("references/", bundled.references)):
        if source.startswith(prefix):
            return folder() / source.removeprefix(prefix)
    return bundled.examples() / source.removeprefix("assets/examples/")


def _place(source: str, home: str) -> str:
    """Where a file of the source tree lies in the skill's folder."""
    return posixpath.relpath(source, home) if source.startswith(f"{home}/") else source


def _rewritten(text: str, source: str, home: str) -> tuple[str, list[str]]:
    """A page with its links as they are in the skill's folder, without what only its checks read, and the files that
    it links to."""
    linked: list[str] = []

    def fit(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return match.group(0)
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if wanted.startswith("skills/") and not wanted.startswith(f"{home}/"):
            return label  # another skill, which may not be there
        linked.append(wanted)
        start = PurePosixPath(_place(source, home)).parent
        link = posixpath.relpath(_place(wanted, home), start.as_posix())
        return f"[{label}]({link}{'#' + anchor if anchor else ''})"

    return _LINK.sub(fit, _CHECK.sub("", text)), linked

"""A Markdown page taken apart: what is prose, what is code, what is a footnote, and on which lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^(\s*)```(\w*)(?: [^`]*)?$")
NOTE = re.compile(r"^\[\^([\w-]+)\]: (.*)$")
CITED = re.compile(r"\[\^([\w-]+)\]")
TITLE = re.compile(r'title="([\w-]+)"')
BORROWED = re.compile(r"^<!-- with ([\w, ]+) of ([\w.-]+) -->$", re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(~~)?`([^`\n]+)`(~~)?")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a page, and where."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Block:
    """A paragraph, a list item or a row of a table; `head` is the table's header row, `section` the anchor above."""

    line: int
    text: str
    head: str = ""
    section: str = ""


@dataclass(frozen=True)
class Fence:
    """A block of code, and the comment after it that says how it is run."""

    line: int
    language: str
    text: str
    check: str = ""


@dataclass
class Page:
    """One page under `skills/` or `references/`."""

    path: Path
    blocks: list[Block] = field(default_factory=list)
    fences: list[Fence] = field(default_factory=list)
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)
    sections: dict[str, list[str]] = field(default_factory=dict)
    """The notes in `evidence` blocks, by the anchor of the heading above them. A note is called after the anchor, and
    after the block's title or its number: `rules-of-the-loop.1`."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else self.path.name

    @property
    def claims(self) -> bool:
        """Whether its figures need evidence: those of a reference page are defaults."""
        return self.path.parent.name != "reference"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def borrowed(self) -> dict[str, Path]:
        """What the page's code takes from the code of other pages: the page that defines each name."""
        found = BORROWED.findall(self.text)
        return {name: self.path.parent / other for names, other in found for name in names.split(", ")}

    @cached_property
    def headings(self) -> list[str]:
        return re.findall(r"^#+ (.+)$", "\n".join(block.text for block in self.blocks), re.MULTILINE)

    @cached_property
    def anchors(self) -> set[str]:
        return {anchor(heading) for heading in self.headings}

    def problem(self, line: int, text: str) -> Problem:
        return Problem(self.name, line, text)


def anchor(heading: str) -> str:
    """The anchor that GitHub and Zensical give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def read(path: Path) -> Page:
    """The page at `path`."""
    page = Page(path)
    lines = page.text.splitlines()
    at = 0
    if lines and lines[0] == "---":  # frontmatter, whose description agents read first of all
        at = lines.index("---", 1) + 1
        said = [line for line in lines[1 : at - 1] if line.partition(":")[0] in ("description", "compatibility")]
        page.blocks.append(Block(2, "\n".join(said)))
    held: list[str] = []
    start, head, section = 0, "", ""

    def close() -> None:
        if text := COMMENT.sub("", "\n".join(held)).strip():
            page.blocks.append(Block(start + 1, text, head if text.startswith("|") else "", section))
        held.clear()

    while at < len(lines):
        line = lines[at]
        if opened := FENCE.match(line):
            close()
            end = next(i for i in range(at + 1, len(lines)) if lines[i].strip() == "```")
            if opened[2] == "evidence":
                listed, title = page.sections.setdefault(section, []), TITLE.search(line)
                name = f"{section}.{title[1] if title else len(listed) + 1}"
                listed.append(name)
                page.notes[name] = (at + 1, " ".join(lines[at + 1 : end]))
                at = end + 1
                continue
            if not opened[2]:  # a diagram or an example of output, whose figures are claims too
                page.blocks.append(Block(at + 1, "\n".join(lines[at + 1 : end])))
            check, after = _check(lines, end + 1)
            page.fences.append(Fence(at + 1, opened[2], "\n".join(lines[at + 1 : end]), check))
            at = after
            continue
        if note := NOTE.match(line):
            close()
            page.notes[note[1]] = (at + 1, note[2])
        elif not line.strip():
            close()
            head = ""
        elif line.startswith("|"):
            first = held[0] if held and held[0].startswith("|") and not head else ""
            close()
            head = head or first
            start, held = at, [] if re.fullmatch(r"[|:\- ]+", line) else [line]
        else:
            if re.match(r"\s*(?:[-*]|\d+\.) |#", line):
                close()
            if not held:
                start = at
            held.append(line)
        if line.startswith("#"):
            close()
            section = anchor(line.lstrip("# "))
        at += 1
    close()
    return page


def _check(lines: list[str], at: int) -> tuple[str, int]:
    """The comment that begins on line `at`, without its marks, and the line after it."""
    if at >= len(lines) or not lines[at].startswith("<!--"):
        return "", at
    end = next(i for i in range(at, len(lines)) if lines[i].rstrip().endswith("-->"))
    return "\n".join(lines[at : end + 1]).removeprefix("<!--").rstrip().removesuffix("-->").strip(), end + 1


def documents(root: Path = ROOT) -> list[Page]:
    """Every page for people that is written by hand or generated, but for the walkthroughs."""
    return [read(path) for path in (root / "README.md", root / "CONTRIBUTING.md", *sorted(root.glob("docs/**/*.md")))]


def pages(root: Path = ROOT) -> list[Page]:
    """Every page that agents read."""
    found = [*sorted(root.glob("skills/*/*.md")), *sorted(root.glob("references/*.md"))]
    return [read(path) for path in found]

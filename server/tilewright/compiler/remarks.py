"""What the compiler says of its own choices: tileiras' remarks."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic import Field

from tilewright.wire.record import Record

_PLACE = re.compile(r"File: '?([^',]*)'?, Line: (\d+)")
_FIELD = re.compile(r"^(?:  - )?(\w+):\s+(.*)$")
_LOCATED = re.compile(r'^loc\("[^"]*":\d+:\d+\): ')


class Remark(Record):
    """One choice that the compiler made, and why."""

    good: bool = Field(description="the choice that one would wish for")
    category: str = Field(description="memory or tensor-core")
    file: str = ""
    line: int = 0
    text: str
    instruction: str = ""
    shape: str = ""
    reasons: list[str] = Field(default_factory=list, description="why the better choice was impossible")

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.line else ""

    def __str__(self) -> str:
        chosen = f" ({' '.join(filter(None, (self.instruction, self.shape)))})" if self.instruction else ""
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        mark = "+" if self.good else "-"
        return f"{mark} {self.where or '(no line)'} {self.text}{chosen}{why}"


def parse_remarks(text: str) -> list[Remark]:
    """The remarks of a `--remark-format=yaml` file, each once, by source line. What has another form is left out."""
    found: dict[str, Remark] = {}
    for document in re.split(r"^\.\.\.\s*$", text, flags=re.MULTILINE):
        if "--- !" in document and (remark := _remark(document)) is not None:
            found.setdefault(remark.model_dump_json(), remark)
    return sorted(found.values(), key=lambda one: (one.file, one.line, one.good))


def _remark(document: str) -> Remark | None:
    fields: dict[str, str] = {}
    reasons: list[str] = []
    for row in document.splitlines():
        if not (match := _FIELD.match(row)):
            continue
        value = match[2].strip()
        value = value[1:-1].replace("''", "'") if value[:1] == value[-1:] == "'" else value
        if match[1] == "Reason":
            value = _LOCATED.sub("", value)
            if value not in reasons:
                reasons.append(value)
        else:
            fields[match[1]] = value
    if "Remark" not in fields:
        return None
    place = _PLACE.search(fields.get("DebugLoc", ""))
    return Remark(
        good="--- !Passed" in document,
        category=fields.get("Pass", "").lower(),
        file=PurePosixPath(place[1]).name if place else "",
        line=int(place[2]) if place else 0,
        text=fields["Remark"],
        instruction=fields.get("Instruction", "").removesuffix(" instruction"),
        shape=fields.get("Shape", ""),
        reasons=reasons,
    )

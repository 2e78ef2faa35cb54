"""The base of every value that travels between processes or into the journal, and how files are put on disk."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from pydantic import BaseModel, ConfigDict

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


class Record(BaseModel):
    """Immutable, strict about its fields, and free of NaN and infinity, so that it is always valid JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def printable(text: str) -> str:
    """A text without what moves a terminal's cursor, turns the direction of writing, shows nothing, or is no character:
    `?` stands there. Line ends and tabs stay."""
    return "".join("?" if unicodedata.category(one) in _UNSEEN and one not in "\n\t" else one for one in text)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, cut between words, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 2].rsplit(None, 1)[0]} …"


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content at once: a reader sees the old text or the new, also after a crash."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

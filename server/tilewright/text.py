"""Text that people read: made safe to print, cut to size, and the lines that say how things stand."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

_UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn"}


def printable(text: str) -> str:
    """A text without what moves a terminal's cursor, turns the direction of writing, shows nothing, or is no character:
    `?` stands there. Line ends and tabs stay."""
    return "".join("?" if unicodedata.category(one) in _UNSEEN and one not in "\n\t" else one for one in text)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, cut between words, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 2].rsplit(None, 1)[0]} …"


def few(names: Sequence[str], most: int = 5) -> str:
    """Names in a list, of which no more than `most` are written out and the others counted."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


class Mark(StrEnum):
    """How one thing that was checked stands."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Line:
    """One thing that was checked."""

    what: str
    mark: Mark
    detail: str
    remedy: str = ""


def own_name(symbol: str) -> str:
    """The name of a kernel in its source: cuTile appends the signature to it."""
    return symbol.partition("_Kt")[0].partition("(")[0]

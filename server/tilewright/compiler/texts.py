"""Texts that compilers leave: read whatever they hold, cut to a limit, without the folders of source files."""

from __future__ import annotations

import re
from pathlib import Path

TEXT_LIMIT = 8_000_000


def tidy(text: str) -> str:
    """A text with the folders of source files left out, cut to the limit."""
    return re.sub(r'(?<=")/[^"\n]*/(?=[^"/\n]+\.py")', "", text)[:TEXT_LIMIT]


def read_text(path: Path) -> str:
    """A file's text; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""

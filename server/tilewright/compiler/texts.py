"""Texts that compilers leave: read whatever they hold, cut to a limit, without the folders of source files; and what
they raise."""

from __future__ import annotations

import re
from pathlib import Path

TEXT_LIMIT = 8_000_000


def tidy(text: str) -> str:
    """A text with the folders of source files left out, cut to the limit."""
    return re.sub(r'(?<=")/[^"\n]*/(?=[^"/\n]+\.py")', "", text)[:TEXT_LIMIT]


def read_text(path: Path) -> str:
    """A file's text; empty where there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def raised(error: BaseException) -> str:
    """An exception in words whose first line says what is wrong: Triton's begin with a place, quote the source down to
    it, and name the mistake at the end, or leave that to their cause."""
    name, said = type(error).__name__, str(error)
    if not hasattr(error, "error_message"):
        return f"{name}: {said}"
    inner: BaseException = error
    while inner.__cause__ is not None and not getattr(inner, "error_message", None):
        inner = inner.__cause__
    wrong = str(getattr(inner, "error_message", None) or inner).strip()
    first = wrong.splitlines()[0] if wrong else ""
    return f"{name}: {first}, {said}" if first and not said.startswith(first) else f"{name}: {said}"

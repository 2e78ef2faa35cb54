"""Texts for users use the field's words: in messages, help, tool descriptions and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.page import CODE, ROOT, documents, pages

OLD = {
    r"knobs?": "tunable parameter",
    r"mend(s|ed|ing)?": "fix",
    r"hopeless": "say what is slow",
    r"borne out": "confirmed",
    r"tells? apart|told apart": "distinguish",
    r"command tasks?": "repository task",
    r"ledger": "journal",
    r"matrix products?": "matmul",
}
SERVER = ROOT / "server" / "tilewright"
FRONTS = ("interface", "tools")
"""The docstrings of these rooms are descriptions and help."""
INSIDE = ("hopeless",)
"""Keys of messages between processes."""


def old_words(text: str) -> list[str]:
    return [
        match[0] for pattern in OLD for match in re.finditer(rf"(?<![\w-])(?:{pattern})(?![\w-])", text, re.IGNORECASE)
    ]


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that a user may read."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    comments = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    helps = path.parent.name in FRONTS
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (helps or id(node) not in comments):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", sorted(SERVER.rglob("*.py")), ids=lambda path: str(path.relative_to(SERVER)))
def test_messages_use_the_fields_words(path: Path) -> None:
    found = [(line, text) for line, text in texts_of(path) if text not in INSIDE and old_words(text)]
    assert not found


def test_pages_use_the_fields_words() -> None:
    found = [
        (page.name, block.line, word)
        for page in [*pages(), *documents()]
        for block in page.blocks
        for word in old_words(CODE.sub("", re.sub(r"\[perf-knobs-catalog\]|\]\([^)]*\)", "", block.text)))
    ]
    assert not found


def test_an_old_word_is_found() -> None:
    assert old_words("Each knob; a hopeless config, mended.") == ["knob", "mended", "hopeless"]
    assert not old_words("amend the commit; see perf-knobs-catalog")

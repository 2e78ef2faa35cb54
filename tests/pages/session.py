"""A page of commands is run: files are written, commands are called, and their output is what the page shows.

A `python title="FILE"` block is a file. In a `console` block, a line after `$ ` is a command, and the lines
below it are its output. `...` stands for any lines or any rest of a line, and digits for any digits. A block without
`$ ` holds only commands.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.pages.page import Page

TITLE = re.compile(r'^\s*```python title="([^"]+)"$')


@dataclass(frozen=True)
class Step:
    """A command of a page and the output that the page shows, or None if it shows none."""

    line: int
    command: str
    shown: list[str] | None


def steps(page: Page) -> list[Step | tuple[str, str]]:
    """The commands of a page, and its files as pairs of name and content, in their order."""
    lines = page.text.splitlines()
    found: list[Step | tuple[str, str]] = []
    for fence in page.fences:
        if title := TITLE.match(lines[fence.line - 1]):
            found.append((title[1], fence.text + "\n"))
        elif fence.language == "console":
            found += _commands(fence.line, [line.strip() for line in fence.text.splitlines() if line.strip()])
    return found


def _commands(line: int, text: list[str]) -> list[Step]:
    if not text[0].startswith("$ "):
        return [Step(line, command, None) for command in text]
    found: list[Step] = []
    for one in text:
        if one.startswith("$ "):
            found.append(Step(line, one.removeprefix("$ "), []))
        else:
            assert found[-1].shown is not None
            found[-1].shown.append(one)
    return found


def play(page: Page, folder: Path, environment: Mapping[str, str], edit: Callable[[str], str] = str) -> int:
    """Run the page in `folder`, each command as `edit` returns it; return how many ran.

    Raises AssertionError with the line of the page.
    """
    count = 0
    with tempfile.NamedTemporaryFile("r") as where:
        for step in steps(page):
            if isinstance(step, tuple):
                (folder / step[0]).write_text(step[1])
                continue
            count += 1
            script = f"{edit(step.command)}\ncode=$?\npwd >{where.name}\nexit $code"
            master, terminal = pty.openpty()  # a person sits there, and says yes
            os.write(master, b"y\n" * 9)
            ran = subprocess.run(
                ["bash", "-c", script], cwd=folder, env=environment, stdin=terminal, capture_output=True, text=True
            )
            os.close(master)
            os.close(terminal)
            folder = Path(Path(where.name).read_text().strip())
            said = [line.strip() for line in (ran.stderr + ran.stdout).splitlines() if line.strip()]
            place = f"{page.name}:{step.line}: {step.command}"
            assert not (ran.returncode and step.shown is None), f"{place} ended with {ran.returncode}: {said[-5:]}"
            if step.shown is not None:
                assert "Traceback" not in "\n".join(said), f"{place}: {said[-5:]}"
                assert matches(step.shown, said), f"{place} printed\n" + "\n".join(said)
    return count


def matches(shown: list[str], said: list[str]) -> bool:
    """Whether the output `said` is what the page shows."""
    pattern = "".join(".*" if line == "..." else f"{_pattern(line)}\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{_plain(line)}\n" for line in said), re.DOTALL) is not None


def _pattern(line: str) -> str:
    return "[^\n]*".join(re.escape(_plain(part)) for part in line.split("..."))


def _plain(line: str) -> str:
    return re.sub(r"[\d.]*\d", "0", re.sub(r" +", " ", line))

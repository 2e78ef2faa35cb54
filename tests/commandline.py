"""The command line, as a person meets it, in this process: an interpreter of its own for each takes seconds."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from typer.testing import CliRunner

from tilewright.interface import terminal
from tilewright.interface.commands import app

ROOT = Path(__file__).parents[1]


def tilewright(*arguments: str, cwd: Path = ROOT, answer: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in the folder `cwd`, with `answer` on its standard input."""
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"})
    terminal.console.width = terminal.errors.width = 200  # they were made before, perhaps in a narrower environment
    with contextlib.chdir(cwd):
        done = runner.invoke(app, arguments, answer, catch_exceptions=False, prog_name="tilewright")
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)

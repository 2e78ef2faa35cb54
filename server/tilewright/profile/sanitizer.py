"""Memory errors and races of a program, by NVIDIA's compute-sanitizer on a replay of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.compiler.tools import find_tool
from tilewright.errors import UsageError
from tilewright.isolation.process import kept_environment
from tilewright.text import cut, printable

TOOLS = ("memcheck", "racecheck", "synccheck")
"""Not initcheck: the replayer poisons all memory, so that nothing is uninitialized."""
LIMIT_S = 600.0
SHOWN = 10
_SUMMARY = re.compile(r"SUMMARY: (\d+) (?:error|hazard)")
_OWN = ("========= COMPUTE-SANITIZER", "isolation:", "counts")


def sanitized(file: Path) -> Iterator[tuple[str, int, str]]:
    """Each tool of compute-sanitizer, how many errors it found in two calls of a program, and what it says of them.
    Raises `UsageError` where it is not there, or gives no answer."""
    sanitizer = find_tool("compute-sanitizer")
    if sanitizer is None:
        raise UsageError(
            "compute-sanitizer is not installed: it is part of the CUDA toolkit (`apt-get install cuda-sanitizer-13-0` "
            "from NVIDIA's repository); put it on PATH"
        )
    for tool in TOOLS:
        with tempfile.TemporaryDirectory(prefix="tilewright-sanitizer-") as folder:
            command = [
                sanitizer, "--tool", tool, "--print-limit", str(SHOWN),
                sys.executable, "-I", "-B", "-m", "tilewright.replay.once", str(file.resolve()),
            ]  # fmt: skip
            environment = kept_environment() | {"TMPDIR": folder, "HOME": folder}
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, errors="replace", cwd=folder, env=environment,
                    timeout=LIMIT_S, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise UsageError(f"{tool} was not done within {LIMIT_S:.0f} s") from None
        text = printable(done.stdout + done.stderr)
        if (summary := _SUMMARY.search(text)) is None:
            raise UsageError(f"{tool} gave no answer: {cut(' '.join(text.split())[-400:] or 'it said nothing', 400)}")
        said = [line for line in text.splitlines() if line.strip(" =") and not line.startswith(_OWN)]
        yield tool, int(summary[1]), "\n".join(said)

"""What a crash leaves of Python's stack (`-X faulthandler`), brought down to what the candidate did."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = f"{Path(__file__).parents[1]}/"
MOST = 3
_FRAME = re.compile(r'  File "([^"]*)", line (\d+) in (.*)')


def trimmed(output: str) -> str:
    """What a process printed without what is not the candidate's in a crash's trace: the list of extension modules, and
    the frames of this package and of `runpy`, which called the candidate."""
    return "".join(line for line in output.splitlines(keepends=True) if not _is_ours(line))


def frames(output: str) -> str:
    """Where a process crashed, the innermost frame first, in a few words; empty where it printed no trace."""
    trace = output.rpartition("Current thread")[2].splitlines()[1:] if "Current thread" in output else []
    known = [_FRAME.fullmatch(line) for line in trace if not _is_ours(line)]
    return ", ".join(f"{one[3]} ({Path(one[1]).name}:{one[2]})" for one in [*filter(None, known)][:MOST])


def _is_ours(line: str) -> bool:
    frame = _FRAME.fullmatch(line.rstrip("\r\n"))
    if frame is None:
        return line.startswith("Extension modules:")
    return frame[1].startswith(PACKAGE) or frame[1] == "<frozen runpy>"

"""The device programs of a session: where their files lie, which are whole, and whether they are what was timed.

A program that a kept row or the baseline was measured with stays whole, so that it can be replayed. One of a candidate
that was reverted keeps its kernels and its layout; held contents, such as packed weights, are dropped.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tilewright.evaluation.results import StoredProgram
from tilewright.programs.format import bare_file, bared, decoded, program_file
from tilewright.programs.identity import identity
from tilewright.programs.model import ProgramError, digest_of
from tilewright.session.history import Entry, Kept, Measured, Reverted, Row
from tilewright.session.integrity import by_iteration
from tilewright.text import few

_FILE = re.compile(r"([0-9a-f]{64})(\.bare)?\.(program|part)")


def programs_folder(sandbox: Path, session: str) -> Path:
    """Where a session's programs lie, each by the SHA-256 of its file."""
    return sandbox / session / "programs"


def program_file(folder: Path, sha256: str) -> Path:
    """Where a program lies among a session's programs, by the SHA-256 of its file."""
    return folder / f"{sha256}.program"

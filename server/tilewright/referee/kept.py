"""Device programs as a session keeps them: each a file by its SHA-256, which the journal names. The incumbent is what
lies there, whatever its Python launches today."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tilewright.evaluation.results import StoredProgram
from tilewright.programs.format import decoded, encoded, program_file
from tilewright.programs.identity import identity
from tilewright.programs.model import Program, ProgramError, digest_of

STORED_BYTES = 2 << 30
"""Of a session's programs together; those that come later are not written."""


class Altered(ProgramError):
    """A file holds something else than what its name says."""


def stored(program: Program, folder: Path | None) -> StoredProgram:
    """What is on record of a program, whose file is written to `folder` unless that holds too much."""
    data = encoded(program)
    found = StoredProgram(identity=identity(program), sha256=digest_of(data), size=len(data))
    if folder is None:
        return found
    with contextlib.suppress(OSError):  # what cannot be written then says so
        folder.mkdir(parents=True, exist_ok=True)
    path = program_file(folder, found.sha256)
    if not path.is_file():
        try:
            if sum(file.stat().st_size for file in folder.glob("*")) + len(data) > STORED_BYTES:
                note = f"not written: the session's programs would take over {STORED_BYTES >> 20} MiB"
                return found.model_copy(update={"note": note})
            path.with_suffix(".part").write_bytes(data)
            path.with_suffix(".part").rename(path)
        except OSError as error:
            return found.model_copy(update={"note": f"not written: {error.strerror}"})
    return found


def read(path: Path) -> Program:
    """The program in a session's file. Raises OSError, `Altered`, and `ProgramError` for what is no program here."""
    data = path.read_bytes()
    if digest_of(data) != path.stem:
        raise Altered(f"{path.name} holds another program than its name says")
    return decoded(data)

"""The device programs of a session, of which all stay: where their files lie, and whether they are what was timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilewright.evaluation.results import BenchmarkResult, StoredProgram
from tilewright.programs.format import program_file
from tilewright.programs.model import digest_of
from tilewright.session.state import State
from tilewright.task import case_label


def programs_folder(sandbox: Path, session: str) -> Path:
    """Where a session's programs lie, each by the SHA-256 of its file."""
    return sandbox / session / "programs"


def named(state: State) -> dict[str, tuple[int, StoredProgram]]:
    """The programs that the journal names, by the SHA-256 of their files; each with the first iteration that was
    measured with it, and as the run has it that wrote it."""
    found: dict[str, tuple[int, StoredProgram]] = {}
    for attempt in state.attempts:
        runs = [attempt.measured.first, attempt.measured.again] if attempt.measured is not None else []
        for one in (one for run in runs if run is not None for case in run.cases for one in case.programs):
            number, known = found.get(one.sha256, (attempt.iteration, one))
            found[one.sha256] = number, one if known.note else known
    return found


def files_of_version(folder: Path, result: BenchmarkResult | None) -> dict[str, list[str]]:
    """By case, where the programs lie that a version was measured with."""
    cases = result.cases if result is not None else []
    return {
        case_label(one.case): [str(program_file(folder, program.sha256)) for program in one.programs]
        for one in cases
        if one.programs
    }


def not_as_timed(folder: Path, programs: dict[str, tuple[int, StoredProgram]]) -> Iterator[tuple[str, bool]]:
    """What is wrong with the files of a session's programs, and whether that was on record when they were timed."""
    for sha256, (iteration, program) in programs.items():
        path, note = program_file(folder, sha256), program.note
        try:
            same = digest_of(path.read_bytes()) == sha256
            text = "" if same else "it was altered: its SHA-256 is not the one on record"
        except FileNotFoundError:
            text = note or "it is gone"
        except OSError as error:
            text = f"it cannot be read: {error.strerror}"
        is_known = bool(note) and text == note
        if text:
            back = "" if is_known else "; put it back from another copy of the session, or from an archive of it"
            yield f"iteration {iteration}: {folder.parent.name}/programs/{path.name}: {text}{back}", is_known

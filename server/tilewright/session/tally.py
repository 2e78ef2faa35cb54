"""How often candidates of a task were wrong, across its sessions and checks. Who tries often enough passes by luck.

The tally lies outside the repository, beside the journals' heads: one file for each repository, which its worktrees
share. Its lines are only added to. A task is known by its folder and by its code: a copy in another folder is the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from tilewright.evaluation.results import CaseRun, Status
from tilewright.heads import state_folders
from tilewright.repository import Repository
from tilewright.task import Backend
from tilewright.wire.record import Record

WRONG_RESULTS = 25
"""Wrong results that a task has room for, unless a person has said another number."""
KNOWN_FAILURES = 12
"""Of the latest wrong results, on how many different draws a later candidate is run as well."""


class TallyLine(Record):
    """What happened to a task."""

    time: str = Field(default_factory=lambda: datetime.now(UTC).isoformat())
    task: str = Field(description="its folder, relative to the repository's root")
    code: str = Field(description="SHA-256 over its task.py, or task.toml where it has no other file")


class Wrong(TallyLine):
    """A candidate's result was wrong."""

    kind: Literal["wrong"] = "wrong"
    where: str = Field(description="the session's name, or `check`")
    backend: Backend
    candidate: str
    status: Status
    failed_on: list[CaseRun] = Field(default_factory=list)


class Allowed(TallyLine):
    """A person has said how many wrong results the task has room for."""

    kind: Literal["allowed"] = "allowed"
    wrong_results: int = Field(ge=1)


_LINE: TypeAdapter[Wrong | Allowed] = TypeAdapter(Annotated[Wrong | Allowed, Field(discriminator="kind")])


def is_wrong(status: Status) -> bool:
    """Whether a check ended with a wrong result: not with a crash, nor with files that were changed."""
    return status.is_incorrect and status is not Status.TAMPERED


class Tally:
    """The tally of one task."""

    def __init__(self, repository: Repository, task: PurePosixPath) -> None:
        """`task` is the task's folder, relative to the repository's root."""
        key = hashlib.sha256(str(repository.common_dir).encode()).hexdigest()[:16]
        self._paths = [folder.with_name("tallies") / f"{key}.jsonl" for folder in state_folders()]
        self._task = str(task)
        files = [repository.root / task / name for name in ("task.py", "task.toml")]
        code = next((file.read_bytes() for file in files if file.is_file()), b"")
        self._code = hashlib.sha256(code).hexdigest()
        self.path: Path = next((path for path in self._paths if path.is_file()), self._paths[0])

    def _lines(self) -> list[Wrong | Allowed]:
        found: list[Wrong | Allowed] = []
        for path in self._paths:  # a shell and an MCP client may have other environments
            with contextlib.suppress(OSError):
                for line in path.read_text(encoding="utf-8").splitlines():
                    with contextlib.suppress(ValidationError):  # a line that a full disk cut off
                        found.append(_LINE.validate_json(line))
        own = [line for line in found if line.task == self._task or line.code == self._code]
        return sorted(own, key=lambda line: line.time)

    def why_unwritable(self) -> str:
        """Why no wrong result could be counted, or nothing."""
        return self._append(b"")

    @property
    def wrong_results(self) -> int:
        """Wrong results so far."""
        return sum(isinstance(line, Wrong) for line in self._lines())

    @property
    def allowed(self) -> int:
        """Wrong results that the task has room for."""
        return next(
            (line.wrong_results for line in reversed(self._lines()) if isinstance(line, Allowed)), WRONG_RESULTS
        )

    @property
    def refusal(self) -> str:
        """Why no further candidate of the task is checked; empty while there is room."""
        return used_up(self.wrong_results, self.allowed)

    def known_failures(self, backend: Backend) -> list[CaseRun]:
        """What earlier candidates failed on with this backend, the latest first."""
        found: dict[str, CaseRun] = {}
        for line in reversed(self._lines()):
            if isinstance(line, Wrong) and line.backend is backend:
                for run in line.failed_on:
                    found.setdefault(run.label, run)
        return list(found.values())[:KNOWN_FAILURES]

    def note(
        self, where: str, backend: Backend, candidate: str, status: Status, failed_on: Sequence[CaseRun] = ()
    ) -> str:
        """Count a result where it is wrong; why that cannot be, or nothing."""
        if not is_wrong(status):
            return ""
        return self._add(
            Wrong(
                task=self._task,
                code=self._code,
                where=where,
                backend=backend,
                candidate=candidate,
                status=status,
                failed_on=[*failed_on],
            )
        )

    def allow(self, wrong_results: int) -> str:
        """Say how many wrong results there is room for; why that cannot be, or nothing."""
        return self._add(Allowed(task=self._task, code=self._code, wrong_results=wrong_results))

    def _add(self, line: Wrong | Allowed) -> str:
        return self._append(b"\n" + line.model_dump_json().encode() + b"\n")

    def _append(self, data: bytes) -> str:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return f"{self.path} cannot be written: {error.strerror or error}"
        return ""


def used_up(wrong_results: int, allowed: int) -> str:
    """Why no further candidate is checked; empty while there is room."""
    if wrong_results < allowed:
        return ""
    return (
        f"{wrong_results} candidates of this task were wrong, and it has room for {allowed}: one more try could pass "
        "by luck alone. Stop, and tell the user, who can look at what was tried and say `tilewright session budget N`"
    )

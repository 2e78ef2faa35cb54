"""How often candidates of an entry point were wrong, by the journals of all worktrees of a repository: whoever tries
often enough passes by luck."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

from tilewright.evaluation.results import CaseRun, CorrectnessResult, Status
from tilewright.repository import SANDBOX, Repository
from tilewright.task import Backend

KNOWN_FAILURES = 12
"""Of the latest wrong results, on how many different draws a later candidate is run as well."""


@dataclass(frozen=True)
class WrongResults:
    """`count`: over all backends. `known`: what candidates failed on with one backend, the latest first."""

    count: int
    known: list[CaseRun]


def is_wrong(status: Status) -> bool:
    """Whether a check ended with a wrong result: not with a crash, nor with files that were changed."""
    return status.is_incorrect and status is not Status.TAMPERED


def wrong_results(repository: Repository, entry: str, backend: Backend) -> WrongResults:
    """The wrong results of an entry point, in the sessions of every worktree. A line that is no record counts for
    nothing here: whoever takes up that session is told."""
    count, failed = 0, list[tuple[str, CaseRun]]()
    for journal in sorted(path for root in repository.worktrees() for path in root.glob(f"{SANDBOX}/*/journal.jsonl")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), journal.open(encoding="utf-8") as file:
            started = json.loads(file.readline())["data"]
            if started["entry"] != entry:
                continue
            for line in file:
                record = json.loads(line)
                for result in _wrong(record["data"]):
                    count += 1
                    if started["backend"] == backend and "cases" in result and "faulty" in result:
                        runs = CorrectnessResult.model_validate(result).failed_on
                        failed += [(record["time"], run) for run in runs]
    latest: dict[str, CaseRun] = {}
    for _, run in sorted(failed, key=lambda one: one[0], reverse=True):
        latest.setdefault(run.label, run)
    return WrongResults(count, list(latest.values())[:KNOWN_FAILURES])


def _wrong(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The wrong results in a record of runs."""
    if data["kind"] not in ("checked", "measured"):
        return []
    results = [data[name] for name in ("result", "first", "sizes", "again") if data.get(name)]
    return [result for result in results if is_wrong(Status(result["status"]))]


def used_up(count: int, allowed: int) -> str:
    """Why no further candidate is checked; empty while there is room."""
    if count < allowed:
        return ""
    return (
        f"{count} candidates of this entry point were wrong, and the rule wrong_results allows {allowed}: one more try "
        "could pass by luck alone. Stop, and tell the user, who can look at what was tried and begin a session with a "
        "larger wrong_results"
    )

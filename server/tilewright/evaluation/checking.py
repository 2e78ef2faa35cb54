"""The worker's side of the checker: one call of the entry point, watched by the interpreter."""

from __future__ import annotations

import dataclasses
from typing import Any

from tilewright.evaluation.candidate import Candidate
from tilewright.interpreter import host

SHOWN = 20


def check_call(candidate: Candidate, arguments: dict[str, Any], empty: list[str]) -> list[dict[str, Any]]:
    """What is wrong with a call, as `Defect`s without their case. `empty` are the arguments that nobody has written."""
    with host.checking() as (checker, launches):
        for name in empty:
            checker.fresh(arguments[name])
        outputs = candidate(arguments)
    if not launches:  # torch alone, which is not interpreted
        return []
    checker.outputs(outputs)
    found = [dataclasses.asdict(finding) for finding in checker.findings.values()]
    for finding in found:
        finding["file"] = finding["file"].removeprefix(f"{candidate.folder}/")
    return found[:SHOWN]

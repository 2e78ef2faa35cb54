"""A trace of a candidate's kernels by CUPTI, as torch.profiler reads it.

What is traced is `tracedriver.py`, with the config fixed and after warm-up, for a diagnosis and never for a verdict.
Where it does not work, a line says why, and the diagnosis goes without.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from tilewright.gpu.lease import GpuBusy
from tilewright.profile.activity import Unreadable, in_calls, read_events
from tilewright.profile.driving import placed, run
from tilewright.profile.tracedriver import FOUND
from tilewright.profile.tracing import CaseTrace, analysed
from tilewright.repository import Files
from tilewright.task import Case
from tilewright.text import cut
from tilewright.wire.record import Record

LIMIT_S = 90.0
MOST_BYTES = 2**26
FIXED = {"DISABLE_AUTOTUNE": "1"}


class Trace(Record):
    """What was traced, in the order of the cases; None where a case's trace says nothing."""

    cases: list[CaseTrace | None] = Field(default_factory=list)
    failed: dict[str, str] = Field(default_factory=dict, description="why the trace, or a case, gave nothing")
    confined: bool = Field(False, description="whether the candidate was confined while it was traced")
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """How the kernels were traced, or why not, in one line."""
        why = "; ".join(f"{name}: {text}" for name, text in self.failed.items())
        if not self.cases:
            return f"none: {why}"
        how = "confined" if self.confined else "with the user's own rights"
        lacking = f" ({why})" if why else ""
        return f"CUPTI through torch.profiler, in {self.seconds:.1f} s, the candidate {how}{lacking}"


class _Called(Record):
    """What the driver wrote down of a case."""

    calls: int
    cached: bool
    events: list[Any]


class _Told(Record):
    """All that it wrote down: the names of the candidate's kernels, and the cases; why it ended, where too early."""

    own: list[str]
    cases: list[_Called]
    why_fewer: str = ""


async def read_trace(
    protected: Files,
    files: Files,
    task_folder: PurePosixPath,
    cases: list[Case],
    work_bytes: Sequence[float],
    own: Collection[str] = (),
    uuid: str = "",
    confined: bool = True,
    limit_s: float = LIMIT_S,
) -> Trace:
    """The trace of each case of the candidate `files` over the committed files `protected`. `own` are its kernels'
    names as far as they are known; the driver adds those that it sees compiled. Never raises for what fails in it.
    The driver confines itself before it starts a thread."""
    began = time.monotonic()
    failed: dict[str, str] = {}
    try:
        async with placed(protected, files, task_folder, cases, uuid, confined) as (folder, job):
            scratch = folder / "scratch"
            scratch.mkdir()
            code, said = await run(_driver(job), scratch, limit_s, "the traced process", FIXED)
            told = _told(scratch, said, code)
        found = _analysed(told, work_bytes, own, failed)
        if len(found) < len(cases):
            failed[f"{len(cases) - len(found)} cases"] = told.why_fewer
        seconds = round(time.monotonic() - began, 2)
        return Trace(cases=found, failed=failed, confined=confined, seconds=seconds)
    except Unreadable as error:
        failed["trace"] = cut(str(error), 200)
    except GpuBusy as busy:
        return Trace(failed={"GPU": str(busy)})
    except Exception as error:  # a trace is an extra: nothing of it may cost the profile
        failed["trace"] = cut(f"{type(error).__name__}: {error}", 200)
    return Trace(failed=failed, confined=confined, seconds=round(time.monotonic() - began, 2))


def _analysed(
    told: _Told,
    work_bytes: Sequence[float],
    own: Collection[str],
    failed: dict[str, str],
) -> list[CaseTrace | None]:
    """Each case's trace; `failed` is told of those that say nothing. Raises `Unreadable` where none says anything."""
    found: list[CaseTrace | None] = []
    why: dict[str, str] = {}
    for number, case in enumerate(told.cases):
        try:
            calls = in_calls(read_events(case.events))
            if len(calls) != case.calls:
                raise Unreadable(f"{len(calls)} of {case.calls} calls can be distinguished in the trace")
            size = work_bytes[number] if number < len(work_bytes) else 0.0
            found.append(analysed(calls, {*own, *told.own}, size, case.cached))
        except Unreadable as error:
            found.append(None)
            why[f"case {number}"] = str(error)
    if not any(found):
        raise Unreadable("; ".join(dict.fromkeys(why.values())) or "no case was traced")
    failed.update(why)
    return found


def _driver(job: dict[str, Any]) -> list[str]:
    return [sys.executable, "-I", "-B", "-m", "tilewright.profile.tracedriver", json.dumps(job)]


def _told(scratch: Path, said: str, code: int | None) -> _Told:
    """What the driver left. Raises `Unreadable` where that is nothing."""
    path = scratch / FOUND
    if not path.is_file() or path.is_symlink():
        raise Unreadable(_reason(said, code))
    if path.stat().st_size > MOST_BYTES:
        raise Unreadable(f"the trace takes {path.stat().st_size >> 20} MiB: a call launches too much")
    try:
        told = _Told.model_validate_json(path.read_text(encoding="utf-8", errors="replace"))
        return told.model_copy(update={"why_fewer": _reason(said, code)})
    except ValueError:
        raise Unreadable("what the traced process wrote down cannot be read") from None


def _reason(said: str, code: int | None) -> str:
    """Why a program left nothing, from the last that it said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("isolation:", "traced"))]
    telling = [line for line in own if re.search(r"error|fail|denied|stopped|cannot", line, re.IGNORECASE)]
    return cut((telling or own)[-1], 200) if own else f"it ended with status {code}, and left nothing"

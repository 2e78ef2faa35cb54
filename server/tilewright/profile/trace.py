"""A trace of a candidate's kernels: by nsys where it is found and works, else by CUPTI as torch.profiler reads it.

What is traced is `tracedriver.py`, with the config fixed and after warm-up, for a diagnosis and never for a verdict.
Where no source works, lines say why, and the diagnosis goes without.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import Field

from tilewright.gpu.lease import GpuBusy
from tilewright.profile.activity import Activity, Unreadable, in_calls, read_csv, read_events
from tilewright.profile.driving import placed, run
from tilewright.profile.tracedriver import FOUND
from tilewright.profile.tracing import CaseTrace, analysed
from tilewright.repository import Files
from tilewright.task import Case
from tilewright.text import cut
from tilewright.wire.record import Record

PLACES = ("/usr/local/cuda/bin/nsys", "/opt/nvidia/nsight-systems/*/bin/nsys")
LIMIT_S = 90.0
"""For each source."""
MOST_BYTES = 2**26
FIXED = {"DISABLE_AUTOTUNE": "1"}
NSYS, CUPTI = "nsys", "torch.profiler"
REPORTS = ("cuda_gpu_trace", "gputrace")
"""What versions of nsys call the table of all that the GPU did."""
ADDS = {
    NSYS: "the host's calls, streams and copies on one time line, by `nsys profile -t cuda,nvtx,osrt`",
    CUPTI: "which torch operation launched which kernel, with the CPU's activities",
}


class Trace(Record):
    """What was traced, in the order of the cases; None where a case's trace says nothing."""

    cases: list[CaseTrace | None] = Field(default_factory=list)
    source: str = Field("", description="nsys or torch.profiler; empty where neither worked")
    failed: dict[str, str] = Field(default_factory=dict, description="why a source, or a case, gave nothing")
    confined: bool = Field(False, description="whether the candidate was confined while it was traced")
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """By what it was traced and what the other source would add, or why not, in one line."""
        why = "; ".join(f"{name}: {text}" for name, text in self.failed.items())
        if not self.source:
            return f"none: {why}"
        other = CUPTI if self.source == NSYS else NSYS
        how = "confined" if self.confined else "with the user's own rights"
        name = self.source if self.source == NSYS else f"CUPTI through {CUPTI}"
        lacking = f" ({why})" if why else ""
        return f"{name}, in {self.seconds:.1f} s, the candidate {how}{lacking}; {other} would add {ADDS[other]}"


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


def find_nsys() -> str | None:
    """Where nsys is: on PATH, else where CUDA or its own installer puts it."""
    placed = [str(path) for place in PLACES for path in sorted(Path("/").glob(place.lstrip("/")), reverse=True)]
    return shutil.which("nsys") or next((place for place in placed if os.access(place, os.X_OK)), None)


def command(nsys: str, output: Path, driver: list[str], nodes: bool) -> list[str]:
    """nsys on a driver that turns it on. `nodes`: kernels of CUDA graphs one by one, which old versions cannot."""
    return [
        nsys, "profile", "-t", "cuda", "--sample=none", "--cpuctxsw=none", "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop", *(["--cuda-graph-trace=node"] if nodes else []), "--force-overwrite=true",
        "-o", str(output), *driver,
    ]  # fmt: skip


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

    For CUPTI the driver confines itself before it starts a thread; under nsys, whose own threads stay outside, before
    it imports the candidate.
    """
    began = time.monotonic()
    failed: dict[str, str] = {}
    try:
        async with placed(protected, files, task_folder, cases, uuid, confined) as (folder, job):
            for source, made in ((NSYS, _by_nsys), (CUPTI, _by_cupti)):
                scratch = folder / f"scratch-{source}"
                scratch.mkdir()
                try:
                    told, by_case = await made(job, scratch, limit_s)
                    found = _analysed(told, by_case, work_bytes, own, failed)
                    if len(found) < len(cases):
                        failed[f"{len(cases) - len(found)} cases"] = told.why_fewer
                except Unreadable as error:
                    failed[source] = cut(str(error), 200)
                    continue
                seconds = round(time.monotonic() - began, 2)
                return Trace(cases=found, source=source, failed=failed, confined=confined, seconds=seconds)
    except GpuBusy as busy:
        return Trace(failed={"GPU": str(busy)})
    except Exception as error:  # a trace is an extra: nothing of it may cost the profile
        failed["trace"] = cut(f"{type(error).__name__}: {error}", 200)
    return Trace(failed=failed, confined=confined, seconds=round(time.monotonic() - began, 2))


def _analysed(
    told: _Told,
    by_case: Sequence[list[list[Activity]]],
    work_bytes: Sequence[float],
    own: Collection[str],
    failed: dict[str, str],
) -> list[CaseTrace | None]:
    """Each case's trace; `failed` is told of those that say nothing. Raises `Unreadable` where none says anything."""
    found: list[CaseTrace | None] = []
    why: dict[str, str] = {}
    for number, (case, calls) in enumerate(zip(told.cases, by_case, strict=True)):
        try:
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


async def _by_nsys(job: dict[str, Any], scratch: Path, limit_s: float) -> tuple[_Told, list[list[list[Activity]]]]:
    nsys = find_nsys()
    if nsys is None:
        raise Unreadable("neither on PATH nor where CUDA puts it")
    deadline = time.monotonic() + limit_s
    output = scratch / "run"
    for nodes in (True, False):
        asked = command(nsys, output, _driver(job, NSYS), nodes)
        code, said = await run(asked, scratch, deadline - time.monotonic(), "nsys", FIXED)
        if not re.search(r"unrecogni[sz]ed|unknown option", said, re.IGNORECASE):
            break
    report = next((path for path in (scratch / "run.nsys-rep", scratch / "run.qdrep") if path.is_file()), None)
    if report is None:
        half = "it recorded, and could not make a report of that: " if (scratch / "run.qdstrm").is_file() else ""
        raise Unreadable(half + _reason(said, code))
    told = _told(scratch, said, code)
    for name in REPORTS:
        asked = [nsys, "stats", "--report", name, "--format", "csv", str(report)]
        code, said = await run(asked, scratch, deadline - time.monotonic(), "nsys stats")
        if activities := read_csv(said):
            return told, _sliced(in_calls(activities), told)
    raise Unreadable(f"its report holds no table of kernels: {_reason(said, code)}")


def _sliced(calls: list[list[Activity]], told: _Told) -> list[list[list[Activity]]]:
    """The calls of all cases, one after the other, by case: each begins with an empty one, the marks' own warm-up."""
    found, first = [], 0
    for case in told.cases:
        found.append(calls[first + 1 : first + 1 + case.calls])
        first += 1 + case.calls
    if first != len(calls):
        raise Unreadable(f"{len(calls)} calls are in the trace, and {first} were made")
    return found


async def _by_cupti(job: dict[str, Any], scratch: Path, limit_s: float) -> tuple[_Told, list[list[list[Activity]]]]:
    code, said = await run(_driver(job, CUPTI), scratch, limit_s, "the traced process", FIXED)
    told = _told(scratch, said, code)
    return told, [_calls(read_events(case.events)) for case in told.cases]


def _calls(activities: list[Activity]) -> list[list[Activity]]:
    """The calls of one case; none where they cannot be told apart."""
    with contextlib.suppress(Unreadable):
        return in_calls(activities)
    return []


def _driver(job: dict[str, Any], source: str) -> list[str]:
    asked = json.dumps(job | {"source": source})
    return [sys.executable, "-I", "-B", "-m", "tilewright.profile.tracedriver", asked]


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
    own = [
        line for line in lines if not line.startswith(("isolation:", "traced", "Generating", "Processing", "NOTICE"))
    ]
    telling = [line for line in own if re.search(r"error|fail|denied|stopped|cannot", line, re.IGNORECASE)]
    return cut((telling or own)[-1], 200) if own else f"it ended with status {code}, and left nothing"

"""Hardware counters of the kernels of programs, by ncu: which are asked for, how ncu is run, how its table is read.

What runs under ncu is `replay/once.py`, one call of each program, and no code of a candidate. Without ncu, or where it
may not read counters, one line says why, and the diagnosis goes without.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import math
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from tilewright.compiler.tools import find_tool
from tilewright.isolation.process import kept_environment
from tilewright.text import cut
from tilewright.wire.record import Record

PERMISSION = (
    "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): root sets NVreg_RestrictProfilingToAdminUsers=0 for "
    "the nvidia kernel module and loads it again, or gives the container CAP_SYS_ADMIN"
)
LIMIT_S = 90.0
KERNELS = 24
"""Launches of a call that are counted; the rest of a longer one is left out."""
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REASONS = (
    "long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "math_pipe_throttle", "barrier", "wait",
    "membar", "not_selected", "dispatch_stall", "no_instruction", "sleeping", "branch_resolving", "gmma",
)  # fmt: skip


def _metric(name: str) -> Any:
    return Field(0.0, description=name)


class KernelCounters(Record):
    """One launch. Each field is the metric of ncu that its description names; percentages are of what the unit
    sustains. `stalls` are warps stalled per issued instruction, by reason."""

    kernel: str
    stalls: dict[str, float] = Field(default_factory=dict)
    time_ns: float = _metric("gpu__time_duration.sum")
    dram_percent: float = _metric("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
    dram_read: float = _metric("dram__bytes_read.sum")
    dram_write: float = _metric("dram__bytes_write.sum")
    l2_percent: float = _metric("lts__throughput.avg.pct_of_peak_sustained_elapsed")
    l1_percent: float = _metric("l1tex__throughput.avg.pct_of_peak_sustained_active")
    shared_wavefronts: float = _metric("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    shared_percent: float = _metric("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed")
    load_conflicts: float = _metric("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum")
    store_conflicts: float = _metric("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum")
    load_sectors: float = _metric("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    load_requests: float = _metric("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    local_sectors: float = _metric("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum")
    tensor_percent: float = _metric("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active")
    fma_percent: float = _metric("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active")
    special_percent: float = _metric("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active")
    issue_percent: float = _metric("smsp__issue_active.avg.pct_of_peak_sustained_active")
    occupancy_percent: float = _metric("sm__warps_active.avg.pct_of_peak_sustained_active")
    busy_cycles: float = _metric("sm__cycles_active.avg")
    elapsed_cycles: float = _metric("sm__cycles_elapsed.max")

    @property
    def conflicts(self) -> float:
        """Shared-memory wavefronts that bank conflicts add, over all of them."""
        return (self.load_conflicts + self.store_conflicts) / max(self.shared_wavefronts, 1.0)

    @property
    def sectors_a_request(self) -> float:
        """32-byte sectors that one warp's global load touches: 4 where 4-byte loads are coalesced, 16 with 16 bytes."""
        return self.load_sectors / max(self.load_requests, 1.0)

    @property
    def worst_stall(self) -> str:
        waiting = {name: value for name, value in self.stalls.items() if name not in ("not_selected", "wait")}
        return max(waiting, key=lambda name: waiting[name], default="")


METRICS = {name: str(field.description) for name, field in KernelCounters.model_fields.items() if field.description}
METRICS |= {reason: STALL.format(reason) for reason in REASONS}


class Counters(Record):
    """What ncu read of one call of each case, in the order of the cases; or why nothing was read."""

    cases: list[list[KernelCounters]] = Field(default_factory=list)
    why_not: str = ""
    summary: str = Field("", description="the ncu that was run, and for how long")


def parse(text: str) -> list[KernelCounters]:
    """The launches in the text of `ncu --csv --page raw`: a line of names, a line of units, a line for each launch."""
    lines = [line for line in text.splitlines() if line and not line.startswith("==")]
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    by_metric = {metric: name for name, metric in METRICS.items()}
    found = []
    for row in csv.DictReader(lines[start:]):
        if not row["ID"] or None in row.values():  # the units, which are base units, and a line that was cut
            continue
        read: dict[str, Any] = {
            by_metric[metric]: number
            for metric, cell in row.items()
            if metric in by_metric and (number := _number(cell)) is not None
        }
        stalls = {name: read.pop(name) for name in REASONS if name in read}
        found.append(KernelCounters(kernel=row["Kernel Name"], stalls=stalls, **read))
    return found


def _number(cell: str) -> float | None:
    """A cell's number; None where ncu wrote `n/a`, or nothing."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def command(ncu: str, log: Path, files: Sequence[Path]) -> list[str]:
    """ncu on what replays programs, and turns the profiler on for one call of each; clocks are left as they are."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--launch-count", str(KERNELS * len(files)), "--log-file", str(log), "--metrics", ",".join(METRICS.values()),
        sys.executable, "-I", "-B", "-m", "tilewright.replay.once", *map(str, files),
    ]  # fmt: skip


def reason(written: str, printed: str, code: int | None) -> str:
    """Why ncu read nothing, from what it has `written` into its log and what it and the driver `printed`."""
    if "ERR_NVGPUCTRPERM" in f"{printed}\n{written}":
        return PERMISSION
    lines = f"{printed}\n{written}".splitlines()
    told = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    own = [
        line for line in printed.splitlines() if line.strip() and not line.startswith(("==", "isolation:", "counts"))
    ]
    return cut("; ".join([*told[:2], *own[-1:]]) or f"ncu ended with status {code}, and counted no kernel", 400)


async def read_counters(programs: Sequence[Path | str], limit_s: float = LIMIT_S) -> Counters:
    """Counters of one call of each program, in their order; a text says why there is no program."""
    files = [path for path in programs if isinstance(path, Path)]
    ncu = find_tool("ncu")
    if ncu is None:
        return Counters(why_not="ncu is neither on PATH nor in /usr/local/cuda/bin")
    if not files:
        return Counters(why_not=cut("; ".join(dict.fromkeys(map(str, programs))), 400))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tilewright-ncu-") as scratch:
        log = Path(scratch) / "ncu.csv"
        code, printed = await run_tool(command(ncu, log, files), Path(scratch), limit_s)
        written = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    kernels = iter(parse(written))
    counts = iter([int(number) for number in re.findall(r"^counts (\d+)$", printed, re.MULTILINE)])
    cases = [
        [one for one in (next(kernels, None) for _ in range(next(counts, 0))) if one] if isinstance(path, Path) else []
        for path in programs
    ]
    if not any(one.time_ns for case in cases for one in case):
        return Counters(why_not=reason(written, printed, code))
    return Counters(cases=cases, summary=f"{ncu}, in {time.monotonic() - began:.1f} s, on replayed programs")


async def run_tool(arguments: Sequence[str], folder: Path, limit_s: float) -> tuple[int | None, str]:
    """Run a tool to its end, or end it after `limit_s`: its status, None in that case, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=folder,
        env=kept_environment() | {"HOME": str(folder), "TMPDIR": str(folder), "CUDA_CACHE_PATH": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            printed, _ = await process.communicate()
        return process.returncode, printed.decode("utf-8", "replace")
    except TimeoutError:
        return None, f"{Path(arguments[0]).name} was stopped after {limit_s:.0f} s"
    finally:
        if process.returncode is None:  # else its number may be another group's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

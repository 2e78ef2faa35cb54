"""Hardware counters of a candidate's kernels, by ncu: which are asked for, how ncu is run, how its table is read.

What runs under ncu is `counterdriver.py`, one call after warm-up, for a diagnosis and never for a verdict: `profile`
gives none. Without ncu, or where it may not read counters, one line says why, and the diagnosis goes without.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path, PurePosixPath

from pydantic import Field

from tilewright.gpu.lease import GpuBusy
from tilewright.profile.activity import MARK
from tilewright.profile.driving import placed, run
from tilewright.repository import Files
from tilewright.task import Case
from tilewright.text import cut
from tilewright.wire.record import Record

PLACES = ("/usr/local/cuda/bin/ncu",)
PERMISSION = (
    "this user may not read the GPU's counters (ERR_NVGPUCTRPERM): root sets NVreg_RestrictProfilingToAdminUsers=0 for "
    "the nvidia kernel module and loads it again, or gives the container CAP_SYS_ADMIN"
)
LIMIT_S = 90.0
TRIES = 3
KERNELS = 24
"""Launches of a call that are counted; the rest of a longer one is left out."""

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
REASONS = (
    "long_scoreboard", "short_scoreboard", "mio_throttle", "lg_throttle", "math_pipe_throttle", "barrier", "wait",
    "membar", "not_selected", "dispatch_stall", "no_instruction", "sleeping", "branch_resolving", "gmma",
)  # fmt: skip
METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "dram_percent": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "l1_percent": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "shared_percent": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "local_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "tensor_percent": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_op_percent": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "fma_percent": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "special_percent": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "busy_cycles": "sm__cycles_active.avg",
    "elapsed_cycles": "sm__cycles_elapsed.max",
    "waves": "launch__waves_per_multiprocessor",
} | {reason: STALL.format(reason) for reason in REASONS}
ESSENTIAL = ("time_ns", "dram_percent", "l2_percent", "l1_percent", "occupancy_percent", "issue_percent")
_SCALES = {
    "": 1.0, "nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
    "byte": 1.0, "kbyte": 1e3, "mbyte": 1e6, "gbyte": 1e9, "tbyte": 1e12,
}  # fmt: skip


class KernelCounters(Record):
    """One launch: percentages of what the unit sustains at most, warps stalled per issued instruction by reason."""

    kernel: str
    time_ns: float = 0.0
    values: dict[str, float] = Field(default_factory=dict, description="by the names of METRICS")
    stalls: dict[str, float] = Field(default_factory=dict)

    def get(self, name: str) -> float:
        """A value, or 0 where it was not read."""
        return self.values.get(name, 0.0)

    @property
    def conflicts(self) -> float:
        """Shared-memory wavefronts that bank conflicts add, over all of them."""
        return (self.get("load_conflicts") + self.get("store_conflicts")) / max(self.get("shared_wavefronts"), 1.0)

    @property
    def sectors_a_request(self) -> float:
        """32-byte sectors that one warp's global load touches: 4 where 4-byte loads are coalesced, 16 with 16 bytes."""
        return self.get("load_sectors") / max(self.get("load_requests"), 1.0)

    @property
    def tensor(self) -> float:
        return max(self.get("tensor_percent"), self.get("tensor_op_percent"))

    @property
    def worst_stall(self) -> str:
        waiting = {name: value for name, value in self.stalls.items() if name not in ("not_selected", "wait")}
        return max(waiting, key=lambda name: waiting[name], default="")


class Counters(Record):
    """What ncu read of one call of each case, in the order of the cases; or why nothing was read."""

    cases: list[list[KernelCounters]] = Field(default_factory=list)
    why_not: str = ""
    tool: str = Field("", description="the ncu that was run")
    confined: bool = Field(False, description="whether the candidate was confined while it was counted")
    missing: list[str] = Field(default_factory=list, description="metrics that this ncu does not know")
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """How they were read, or why not, in one line."""
        if self.why_not:
            return f"none: {self.why_not}"
        how = "confined" if self.confined else "with the user's own rights"
        lacking = f"; {len(self.missing)} metrics that it does not know" if self.missing else ""
        return f"{self.tool}, in {self.seconds:.1f} s, the candidate {how}{lacking}"


def find_ncu() -> str | None:
    """Where ncu is: on PATH, else where CUDA puts it."""
    return shutil.which("ncu") or next((place for place in PLACES if os.access(place, os.X_OK)), None)


def parse(text: str) -> list[KernelCounters]:
    """The launches in the text of `ncu --csv --page raw`: a line of names, a line of units, a line for each launch."""
    lines = [line for line in text.splitlines() if line and not line.startswith("==")]
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = csv.reader(lines[start:])
    names = next(rows)
    units = dict(zip(names, next(rows, []), strict=False))
    by_metric = {metric: name for name, metric in METRICS.items()}
    found = []
    for row in rows:
        if len(row) != len(names):
            continue
        cells = dict(zip(names, row, strict=True))
        read = {
            by_metric[metric]: number
            for metric, cell in cells.items()
            if metric in by_metric and (number := _number(cell, units.get(metric, ""))) is not None
        }
        stalls = {name: read.pop(name) for name in REASONS if name in read}
        time_ns = read.pop("time_ns", 0.0)
        found.append(KernelCounters(kernel=cells.get("Kernel Name", ""), time_ns=time_ns, values=read, stalls=stalls))
    return found


def _number(cell: str, unit: str) -> float | None:
    """A cell in base units (ns, bytes); None where ncu wrote `n/a`, or nothing."""
    try:
        value = float(cell.replace(",", ""))
    except ValueError:
        return None
    if value != value or value in (float("inf"), float("-inf")):
        return None
    return value * _SCALES.get(unit.lower(), 1.0)


def command(ncu: str, log: Path, metrics: list[str], cases: int, driver: list[str]) -> list[str]:
    """ncu on a driver that turns the profiler on around what is to be counted; clocks are left as they are."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--launch-count", str(KERNELS * cases), "--log-file", str(log), "--metrics", ",".join(metrics), *driver,
    ]  # fmt: skip


def refused(text: str, metrics: list[str]) -> list[str]:
    """Those of the metrics that ncu complains of by name."""
    complaints = [line for line in text.splitlines() if line.startswith(("==ERROR==", "==WARNING=="))]
    return [one for one in metrics if any(re.search(rf"(?<!\w){re.escape(one)}", line) for line in complaints)]


def reason(written: str, said: str, code: int | None) -> str:
    """Why ncu read nothing, from what it has `written` into its log and what it and the driver `said`."""
    text = f"{said}\n{written}"
    if "ERR_NVGPUCTRPERM" in text:
        return PERMISSION
    if "nsight-compute-lock" in text:
        return "another user's ncu holds its lock file; TMPDIR was set to a folder of its own, and did not help"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    own = [line for line in said.splitlines() if line.strip() and not line.startswith(("==", "isolation:", "counted"))]
    parts = [*told[:2], *own[-1:]] or [f"ncu ended with status {code}, and counted no kernel"]
    return cut("; ".join(parts), 400)


async def read_counters(
    protected: Files,
    files: Files,
    task_folder: PurePosixPath,
    cases: list[Case],
    uuid: str = "",
    confined: bool = True,
    limit_s: float = LIMIT_S,
) -> Counters:
    """Counters of one call of each case, of the candidate `files` over the committed files `protected`.

    The driver confines itself as a worker does before it imports the candidate, but threads that ncu and CUDA started
    before that stay outside; with `confined` off it runs with the rights of the user who asked for the profile. No seed
    of a verdict, and no reference output that decides one, is in the process.
    """
    ncu = find_ncu()
    if ncu is None:
        return Counters(why_not=f"ncu is neither on PATH nor at {PLACES[0]}")
    try:
        async with placed(protected, files, task_folder, cases, uuid, confined) as (folder, job):
            scratch = folder / "scratch"
            scratch.mkdir()
            driver = [sys.executable, "-I", "-B", "-m", "tilewright.profile.counterdriver", json.dumps(job)]
            return await _counted(ncu, driver, scratch, len(cases), confined, limit_s)
    except GpuBusy as busy:
        return Counters(why_not=str(busy), tool=ncu)


async def _counted(ncu: str, driver: list[str], scratch: Path, cases: int, confined: bool, limit_s: float) -> Counters:
    """Run ncu; once more without the metrics that it does not know."""
    began = time.monotonic()
    log, metrics = scratch / "ncu.csv", list(METRICS.values())
    for _ in range(TRIES):
        log.unlink(missing_ok=True)
        left = limit_s - (time.monotonic() - began)
        code, said = await run(command(ncu, log, metrics, cases, driver), scratch, left, "ncu")
        written = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        found = by_case(parse(written), cases)
        spent = round(time.monotonic() - began, 2)
        if any(one.time_ns for kernels in found for one in kernels):
            known = {name for kernels in found for one in kernels for name in (*one.values, *one.stalls)}
            missing = [metric for name, metric in METRICS.items() if name not in known and name != "time_ns"]
            return Counters(cases=found, tool=ncu, confined=confined, missing=missing, seconds=spent)
        fewer = [one for one in metrics if one not in refused(written + said, metrics)]
        if code is None or not fewer:
            break
        if len(fewer) == len(metrics):
            fewer = [METRICS[name] for name in ESSENTIAL]
        if "metric" not in (written + said).lower() or fewer == metrics:
            break
        metrics = fewer
    return Counters(why_not=reason(written, said, code), tool=ncu, confined=confined, seconds=spent)


def by_case(kernels: list[KernelCounters], cases: int) -> list[list[KernelCounters]]:
    """The launches of each case, which the driver ends with a launch of MARK."""
    found: list[list[KernelCounters]] = [[]]
    for one in kernels:
        if MARK in one.kernel:
            found.append([])
        else:
            found[-1].append(one)
    return (found + [[] for _ in range(cases)])[:cases]

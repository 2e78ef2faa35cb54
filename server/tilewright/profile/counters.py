"""Hardware counters of the kernels of programs, by ncu: which are asked for, how ncu is run, how its table is read.

What runs under ncu is `replay/once.py`, one call of each program, and no code of a candidate. Without ncu, or where it
may not read counters, one line says why, and the diagnosis goes without.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from tilewright.isolation.process import kept_environment
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
    missing: list[str] = Field(default_factory=list, description="metrics that this ncu does not know")
    seconds: float = 0.0

    @property
    def summary(self) -> str:
        """How they were read, or why not, in one line."""
        if self.why_not:
            return f"none: {self.why_not}"
        lacking = f"; {len(self.missing)} metrics that it does not know" if self.missing else ""
        return f"{self.tool}, in {self.seconds:.1f} s, on replayed programs{lacking}"


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


def command(ncu: str, log: Path, metrics: list[str], files: Sequence[Path]) -> list[str]:
    """ncu on what replays programs, and turns the profiler on for one call of each; clocks are left as they are."""
    return [
        ncu, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--profile-from-start", "off", "--target-processes", "application-only",
        "--launch-count", str(KERNELS * len(files)), "--log-file", str(log), "--metrics", ",".join(metrics),
        sys.executable, "-I", "-B", "-m", "tilewright.replay.once", *map(str, files),
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
    own = [line for line in said.splitlines() if line.strip() and not line.startswith(("==", "isolation:", "counts"))]
    parts = [*told[:2], *own[-1:]] or [f"ncu ended with status {code}, and counted no kernel"]
    return cut("; ".join(parts), 400)


async def read_counters(programs: Sequence[Path | str], limit_s: float = LIMIT_S) -> Counters:
    """Counters of one call of each program, in their order; a text says why there is no program."""
    files = [path for path in programs if isinstance(path, Path)]
    ncu = find_ncu()
    if ncu is None:
        return Counters(why_not=f"ncu is neither on PATH nor at {PLACES[0]}")
    if not files:
        return Counters(why_not=cut("; ".join(dict.fromkeys(map(str, programs))), 400))
    with tempfile.TemporaryDirectory(prefix="tilewright-ncu-") as scratch:
        read = await _counted(ncu, files, Path(scratch), limit_s)
    launches = iter(read.cases)
    cases = [next(launches, []) if isinstance(path, Path) else [] for path in programs]
    return read.model_copy(update={"cases": cases if read.cases else []})


async def _counted(ncu: str, files: Sequence[Path], scratch: Path, limit_s: float) -> Counters:
    """Run ncu; once more without the metrics that it does not know."""
    began = time.monotonic()
    log, metrics = scratch / "ncu.csv", list(METRICS.values())
    for _ in range(TRIES):
        log.unlink(missing_ok=True)
        left = limit_s - (time.monotonic() - began)
        code, said = await _run(command(ncu, log, metrics, files), scratch, left)
        written = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        kernels = parse(written)
        spent = round(time.monotonic() - began, 2)
        if any(one.time_ns for one in kernels):
            known = {name for one in kernels for name in (*one.values, *one.stalls)}
            missing = [metric for name, metric in METRICS.items() if name not in known and name != "time_ns"]
            counts = [int(number) for number in re.findall(r"^counts (\d+)$", said, re.MULTILINE)]
            return Counters(cases=by_case(kernels, counts), tool=ncu, missing=missing, seconds=spent)
        fewer = [one for one in metrics if one not in refused(written + said, metrics)]
        if code is None or not fewer:
            break
        if len(fewer) == len(metrics):
            fewer = [METRICS[name] for name in ESSENTIAL]
        if "metric" not in (written + said).lower() or fewer == metrics:
            break
        metrics = fewer
    return Counters(why_not=reason(written, said, code), tool=ncu, seconds=spent)


def by_case(kernels: list[KernelCounters], counts: Sequence[int]) -> list[list[KernelCounters]]:
    """The launches of each program, which launches so many kernels; those of a long one may be cut off."""
    left = iter(kernels)
    return [[one for one in (next(left, None) for _ in range(count)) if one is not None] for count in counts]


async def _run(arguments: list[str], folder: Path, limit_s: float) -> tuple[int | None, str]:
    """Run to its end, or end it and all that it started; its status, and what it wrote."""
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
        async with asyncio.timeout(max(limit_s, 1.0)):
            said, _ = await process.communicate()
        return process.returncode, said.decode("utf-8", "replace")
    except TimeoutError:
        return None, f"ncu was stopped after {limit_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()

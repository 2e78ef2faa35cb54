"""Journals of sessions that were never played, for tests of what is made of a journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.evaluation.results import (
    BenchmarkResult,
    CaseCheck,
    CaseTiming,
    CorrectnessResult,
    Environment,
    KernelUse,
    Level,
    Status,
    Sustained,
)
from tilewright.ledger import Journal
from tilewright.policy import Advice, Reason, Verdict, VerdictKind
from tilewright.roofline.bounds import Ceilings
from tilewright.rules import Rules
from tilewright.session.records import ENTRY, Begun, Checked, Ended, Entry, Measured, Row, Settled, Started
from tilewright.task import Backend, Values

CASE = {"N": 4096, "dtype": "float32"}
WORK_BYTES = 2e9


def started(session: str = "scale-1", **more: Any) -> Started:
    ceilings = Ceilings(copy_bytes_per_s=4e12, flops={"float32": 5e13}, measured=True)
    environment = Environment(
        backend=Backend.CUDA, device="NVIDIA H200", arch="sm_90", torch="2.11", cuda_tile="1.7", compiler="13.4",
        python="3.12", ceilings=ceilings, **more.pop("environment", {}),
    )  # fmt: skip
    values: dict[str, Any] = {
        "session": session, "entry": "kernel:scale", "task": "task", "task_name": "scale",
        "branch": "perf/scale", "base": "b" * 40,
        "baseline": "b" * 40, "editable": ["task/kernel.py"], "backend": Backend.CUDA, "arch": "sm_90",
        "environment": environment, "intensity": 1.0, "intensity_class": "memory-bound", "rules": Rules(),
    }  # fmt: skip
    return Started(**values | more)


def timing(
    ms: float, speedup: float | None = None, width: float = 0.01, registers: int = 32, **more: Any
) -> CaseTiming:
    """A case that takes `ms`; its speedup has an interval of plus and minus `width`."""
    figures: dict[str, Any] = {}
    if speedup is not None:
        ends = {"speedup_low": speedup * (1 - width), "speedup_high": speedup * (1 + width)}
        figures = {"incumbent_ms": ms * speedup, "speedup": speedup, **ends}
    use = KernelUse(name="scale_kernel", registers=registers, stack_bytes=0, shared_bytes=0, warps_per_sm=48)
    known: dict[str, Any] = {"level": Level.REPLAYED, "roofline_percent": 50.0, "bound": "memory", "kernels": [use]}
    known["work_bytes"] = WORK_BYTES
    return CaseTiming(case=CASE, latency_ms=ms, **known | figures | more)


def result(ms: float, speedup: float | None = None, sustained: Sustained | None = None, **more: Any) -> BenchmarkResult:
    case = timing(ms, speedup, sustained=sustained, **more)
    figures = {name: getattr(case, name) for name in ("speedup", "speedup_low", "speedup_high")}
    return BenchmarkResult(status=Status.PASSED, level=case.level, latency_ms=ms, cases=[case], **figures)


def trial(
    number: int,
    name: str,
    measured: BenchmarkResult | None,
    reason: Reason = Reason.GAIN,
    detail: str = "the evidence",
    trust: str = "",
    commit: str = "",
) -> list[Entry]:
    """The records of one iteration."""
    kinds = {Reason.BASELINE: VerdictKind.KEEP, Reason.GAIN: VerdictKind.KEEP, Reason.CRASHED: VerdictKind.CRASH}
    verdict = Verdict(kind=kinds.get(reason, VerdictKind.REVERT), reason=reason, detail=detail)
    identity, commit = f"{number:016x}", commit or f"{number:040x}"
    passed = reason not in (Reason.INCORRECT, Reason.CRASHED)
    runs = [
        CaseCheck(case={"N": size}, hidden=size > 4, status=Status.PASSED, values=values, rel_l2_error=size / 1e9)
        for size in (4, 7, 9)
        for values in (Values.DRAWN, Values.ZEROS)
    ]
    checked = CorrectnessResult(status=Status.PASSED if passed else Status.WRONG_VALUES, cases=runs)
    records: list[Entry] = [
        Begun(run="check", candidate=identity, commit=commit, secret_sha256="0" * 64),
        Checked(candidate=identity, secret="s", result=checked),
    ]
    if measured is not None:
        records.append(Measured(secret="s", first=measured))
    if number > 0:
        records.append(Settled(commit=commit if reason is Reason.GAIN else ""))
    row = Row(
        iteration=number, candidate=identity, optimization=name, latency_ms=measured.latency_ms if measured else None,
        modelled=measured is not None and measured.modelled, passed=passed, verdict=verdict,
        advice=Advice(action="continue", reason="go on"), trust=trust,
    )  # fmt: skip
    return [*records, row]


def session(first: Started | None = None, name: str = "tile of 256") -> list[Entry]:
    """A baseline, a keep called `name`, a slower edit, a wrong one, one that crashed, and a second keep."""
    fast = result(0.5, 2.0, Sustained(speedup=1.8, low=1.7, high=1.9, mhz=1200), registers=64)
    trust = "in-process; sustained +80.00% at 1200 MHz; 12 of 36 hidden sizes, bound 79.2%"
    return [
        first or started(),
        *trial(0, "baseline", result(1.0), Reason.BASELINE, ""),
        *trial(1, name, fast, trust=trust),
        *trial(2, "more warps", result(2.0, 0.25), Reason.REGRESSION),
        *trial(3, "drop a row", None, Reason.INCORRECT, "wrong_values: the first at (0, 1)"),
        *trial(4, "tile of 48", None, Reason.CRASHED, "compile_error: no power of two"),
        *trial(5, "unroll", result(0.4, 1.25, width=0.15)),
    ]


def ended(entries: list[Entry], direct: float) -> list[Entry]:
    """A session whose comparison of the first program with the last gave the speedup `direct`."""
    return [*entries, Ended(reason="done", secret="s", direct=result(1.0 / direct, direct))]


def write(sandbox: Path, entries: list[Entry]) -> Path:
    """The journal of these records in its session's folder."""
    assert isinstance(entries[0], Started)
    path = sandbox / entries[0].session / "journal.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(path, ENTRY)
    for entry in entries:
        journal.append(entry)
    return path

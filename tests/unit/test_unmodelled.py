"""What bounds a Triton kernel, which no model sees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_profile import CEILINGS, H200
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.resources import Resources
from tilewright.profile.counters import KernelCounters
from tilewright.profile.diagnosis import CaseDiagnosis, Facts, diagnose
from tilewright.profile.kernels import CallKernels
from tilewright.roofline.model import CallProfile, Estimate
from tilewright.task import Work

WORK = Work(bytes=2.0**28, flops=2.0**28, dtype="float32")


def compiled(ttir: str = "", **changes: Any) -> Compilation:
    resources: dict[str, Any] = {"registers": 64, "spill_bytes": 0, "shared_bytes": 0, "threads": 128}
    resources |= {"ctas_per_sm": 8, "limited_by": "registers", "max_threads_per_sm": 2048} | changes
    return Compilation(kernel="k", arch="sm_90", frontend="triton", ttir=ttir, resources=Resources(**resources))


def replayed(launches: int, us: float) -> CallKernels:
    return CallKernels(calls=20, launches=launches, us=us)


def counters(**values: float) -> KernelCounters:
    return KernelCounters(kernel="k", time_ns=2e5, values=values)


def diagnosed(
    made: Compilation,
    *seen: KernelCounters,
    latency_ms: float = 0.2,
    kernels: CallKernels | None = None,
    work: Work = WORK,
) -> CaseDiagnosis:
    call, nothing = CallProfile(launches=[]), Estimate(0.0, {})
    facts = Facts("case", work, latency_ms, True, call, nothing, [made], list(seen), kernels)
    return diagnose(facts, H200, CEILINGS, [])


WAITING = counters(occupancy_percent=12.0, dram_percent=30.0)
KINDS: dict[str, tuple[Compilation, list[KernelCounters], str]] = {
    "products without tensor cores": (compiled("tt.dot"), [], "missing tensor cores"),
    "spills": (compiled(spill_bytes=640), [], "spilled registers"),
    "spills, and few warps": (compiled(spill_bytes=640), [WAITING], "spilled registers"),
    "a few spilled bytes, with no counters": (compiled(spill_bytes=4), [], "unexplained"),
    "a few spilled bytes, and few warps": (compiled(spill_bytes=4), [WAITING], "bytes in flight"),
    "few warps by the counters": (compiled(), [WAITING], "bytes in flight"),
    "few warps by the code": (compiled(ctas_per_sm=2), [], "bytes in flight"),
    "conflicts": (
        compiled(),
        [counters(shared_percent=80.0, shared_wavefronts=10.0, load_conflicts=8.0)],
        "bank conflicts",
    ),
    "most by DRAM, which is not full": (
        compiled(),
        [counters(dram_percent=75.0, l2_percent=85.0, tensor_percent=72.0, occupancy_percent=80.0)],
        "DRAM bandwidth",
    ),
    "nothing": (compiled(), [], "unexplained"),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_counters_and_code_name_the_bound(kind: str) -> None:
    made, seen, bound = KINDS[kind]
    found = diagnosed(made, *seen)
    assert found.bound == bound
    assert (found.root_cause == "unknown") == (bound == "unexplained")
    assert not any("modelled" in line or "replace_hints" in line or "num_worker" in line for line in found.evidence)
    assert not any("replace_hints" in line or "num_worker" in line for line in found.treatments)


def test_many_launches_bound_a_short_call() -> None:
    small = Work(bytes=1e6, flops=1e6, dtype="float32")
    assert diagnosed(compiled(), latency_ms=0.01, kernels=replayed(4, 8.0), work=small).bound == "launch overhead"
    assert diagnosed(compiled(), latency_ms=0.2, kernels=replayed(1, 199.0)).bound == "unexplained"


def test_at_the_ceiling_a_triton_kernel_is_done() -> None:
    found = diagnosed(compiled(ctas_per_sm=2), latency_ms=WORK.bytes / CEILINGS.copy_bytes_per_s * 1e3 / 0.97)
    assert found.bound == "DRAM bandwidth"
    assert found.stop.startswith("97% of what the ceilings allow")
    assert not found.treatments

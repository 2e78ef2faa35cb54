"""What a diagnosis says of kernels that were modelled, with a planted bottleneck, and of what ran."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_model import H200, profile
from tests.unit.test_wrapper import loaded
from tilewright.bundled import examples
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.resources import Resources
from tilewright.evaluation.estimation import assumed_ceilings
from tilewright.evaluation.modelling import profile_launch
from tilewright.interpreter import host
from tilewright.knobs import Knobs
from tilewright.profile.counters import KernelCounters
from tilewright.profile.diagnosis import CaseDiagnosis, Facts, diagnose
from tilewright.profile.kernels import CallKernels, KernelTime
from tilewright.roofline.model import CallProfile, HostWork, estimate_call
from tilewright.task import Work
from tilewright.wire.launches import KernelLaunch

MATMUL = "02_matmul_full_search/fixed_launch.py", "matmul"
RMSNORM = "01_rmsnorm_occupancy_only/fixed_launch.py", "rmsnorm"
CEILINGS = assumed_ceilings(H200)
_numbers = itertools.count()


def entry(
    place: tuple[str, str], folder: Path, config: dict[str, Any], old: str = "", new: str = ""
) -> Callable[..., Any]:
    """An example's entry point, its source changed."""
    name, function = place
    source = (examples() / name).read_bytes()
    assert old.encode() in source
    changed = Knobs({"kernel.py": source}, "kernel.py", function).variant(config).get("kernel.py", source)
    path = folder / f"planted_{next(_numbers)}.py"
    path.write_bytes(changed.replace(old.encode(), new.encode()))
    return getattr(loaded(path), function)  # type: ignore[no-any-return]


def sampled(call: Callable[..., Any], *arguments: Any) -> tuple[CallProfile, list[Compilation]]:
    """What a call does, and its compiled kernels."""
    host.install(H200)
    with host.running(host.Mode.SAMPLE) as launches:
        call(*arguments)
    made = CallProfile(launches=[profile_launch(launch, "sm_90") for launch in launches])
    return made, [kernels.compiled(launch.kernel, launch.signature, "sm_90") for launch in launches]


def diagnosed(call: Callable[..., Any], arguments: tuple[Any, ...], work: Work) -> CaseDiagnosis:
    made, compiled = sampled(call, *arguments)
    return diagnose(Facts("case", work, estimate_call(made, H200).ms, made, compiled), H200, CEILINGS)


def product(
    m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16
) -> tuple[tuple[torch.Tensor, torch.Tensor], Work]:
    arguments = torch.zeros(m, k, dtype=dtype), torch.zeros(k, n, dtype=dtype)
    size = arguments[0].element_size()
    name = str(dtype).removeprefix("torch.")
    return arguments, Work(bytes=size * (m * k + k * n + m * n), flops=2 * m * n * k, dtype=name)


def rows(m: int, n: int) -> tuple[tuple[Any, ...], Work]:
    arguments = torch.zeros(m, n, dtype=torch.bfloat16), torch.zeros(n, dtype=torch.bfloat16), 1e-6
    return arguments, Work(bytes=4 * m * n + 2 * n, flops=4 * m * n, dtype="float32")


BIG = {"TILE_M": 128, "TILE_N": 256, "TILE_K": 64}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "place", "config", "case"),
    [
        ("spilled registers", MATMUL, BIG, lambda: product(4096, 4096, 512)),
        ("tensor cores", MATMUL, BIG | {"num_worker_warps": 8}, lambda: product(4096, 8448, 2048)),
        ("L2 bandwidth", MATMUL, {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}, lambda: product(4096, 4224, 512)),
        ("missing tensor cores", MATMUL, {}, lambda: product(2048, 2112, 256, torch.float32)),
        ("tail wave", MATMUL, BIG | {"num_worker_warps": 8}, lambda: product(128 * 12, 256 * 12, 1024)),
        ("bytes in flight", RMSNORM, {}, lambda: rows(16384, 8192)),
        ("DRAM bandwidth", RMSNORM, {"occupancy": 4}, lambda: rows(16896, 8192)),
        ("launch overhead", RMSNORM, {"occupancy": 4}, lambda: rows(264, 256)),
    ],
)
def test_a_planted_bottleneck_is_named(
    bound: str,
    place: tuple[str, str],
    config: dict[str, Any],
    case: Callable[[], tuple[tuple[Any, ...], Work]],
    tmp_path: Path,
) -> None:
    arguments, work = case()
    found = diagnosed(entry(place, tmp_path, config), arguments, work)
    assert found.bound == bound, found
    assert found.treatments or found.stop


@pytest.mark.slow
def test_a_gather_that_tiles_would_do_is_among_what_to_try(tmp_path: Path) -> None:
    host.install(H200)
    path = tmp_path / "gathering.py"
    path.write_text(GATHERING)
    x = torch.zeros(2112, 4096)
    found = diagnosed(loaded(path).columns, (x,), Work(bytes=8 * x.numel(), flops=x.numel(), dtype="float32"))
    assert any("tiles-for-gathers" in one or "wider-access" in one for one in found.treatments), found
    assert ct.launch is not None


GATHERING = """
import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def column_kernel(x, out, T: ct.Constant[int]):
    column = ct.bid(0)
    rows = ct.bid(1) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(out, (rows, column), ct.gather(x, (rows, column)) * 2.0)


def columns(x):
    out = torch.empty_like(x)
    grid = (x.shape[1], ct.cdiv(x.shape[0], TILE))
    ct.launch(torch.cuda.current_stream(), grid, column_kernel, (x, out, TILE))
    return out
"""


def modelled(call: CallProfile, latency_ms: float | None = None, work_bytes: float = 16384 * 32768.0) -> CaseDiagnosis:
    work = Work(bytes=work_bytes, flops=work_bytes / 4, dtype="float32")
    return diagnose(Facts("case", work, latency_ms or estimate_call(call, H200).ms, call), H200, CEILINGS)


def test_at_the_ceiling_there_is_nothing_to_try() -> None:
    call = CallProfile(launches=[profile(ctas_per_sm=32)])
    bound = 16384 * 32768 / CEILINGS.copy_bytes_per_s * 1e3
    found = modelled(call, bound / 0.97)
    assert found.stop.startswith("97% of what the ceilings allow")
    assert not found.treatments
    assert found.evidence[0].startswith("modelled: ")
    over = modelled(call, bound / 1.03)
    assert not over.stop
    assert over.evidence[0].endswith("memory bound, which is too low for this call")
    near = modelled(call, bound / 0.84)
    assert "84% of what the ceilings allow: at most 1.19x is left" in near.stop
    assert near.treatments


def test_traffic_beyond_the_work_is_counted() -> None:
    call = CallProfile(
        launches=[profile(blocks=132 * 128, ctas_per_sm=32, dram_bytes=3e9, bytes_loaded=3e9 / 132 / 128)]
    )
    found = modelled(call, work_bytes=1e9)
    assert found.bound == "DRAM bandwidth"
    assert any("3000.0 MB move, and the work is 1000.0 MB" in one for one in found.evidence)
    assert found.treatments[0].startswith("read each input once")


def test_torch_operations_beside_the_kernels_are_named() -> None:
    work = [HostWork(name=name, bytes=2e9, flops=0.0, dtype="float32") for name in ("mul", "add", "mul")]
    found = modelled(CallProfile(launches=[], host=work), work_bytes=2e9)
    assert found.bound == "torch operations"
    assert "3 torch operations, each through memory (mul, add)" in found.evidence[1]


def test_idle_sms_are_a_tail() -> None:
    found = modelled(CallProfile(launches=[profile(blocks=66, dram_bytes=66 * 3e7, bytes_loaded=3e7)]))
    assert found.bound == "tail wave"
    assert "66 CTAs for 132 SMs, 0.06 waves of 1056" in found.evidence[1]


def test_what_stays_in_the_cache_is_said() -> None:
    call = CallProfile(launches=[profile(blocks=132 * 8, dram_bytes=132 * 8 * 32768.0)])
    assert any("fit in the L2 cache" in one for one in modelled(call, work_bytes=3e7).evidence)
    assert not any("L2 cache" in one for one in modelled(call, work_bytes=3e8).evidence)


@pytest.mark.slow
def test_a_product_whose_tile_is_too_small_is_told_to_take_a_larger_one(tmp_path: Path) -> None:
    """Example 02 as it is."""
    arguments, work = product(8192, 8192, 8192)
    told = diagnosed(entry(MATMUL, tmp_path, {}), arguments, work)
    assert told.bound in ("DRAM bandwidth", "L2 bandwidth")
    assert "an output tile of 64x64" in told.treatments[0]
    assert "-> tile-shape: " in told.treatments[0]
    assert not any("narrower storage" in one for one in told.treatments)


WORK = Work(bytes=2.0**28, flops=2.0**28, dtype="float32")
LAUNCH = KernelLaunch(symbol="k_Kt1_A2f32", grid=(132 * 64, 1, 1))
IDLE = {"ctas_per_sm": 2, "limited_by": "registers"}


def code(frontend: Any = "cutile", **changes: Any) -> Compilation:
    """What is known of machine code: a kernel whose warps fill an SM, but for the changes."""
    resources: dict[str, Any] = {"registers": 64, "spill_bytes": 0, "shared_bytes": 0, "threads": 128}
    resources |= {"ctas_per_sm": 16, "limited_by": "threads", "max_threads_per_sm": 2048} | changes
    return Compilation(kernel="k", arch="sm_90", frontend=frontend, resources=Resources(**resources))


def ran(made: Compilation | None = None, latency_ms: float = 0.2, work: Work = WORK, **facts: Any) -> Facts:
    return Facts("case", work, latency_ms, None, [made or code()], **({"launch": LAUNCH} | facts))


def counted(stalls: dict[str, float] | None = None, **values: Any) -> list[KernelCounters]:
    return [KernelCounters(kernel="k", time_ns=2e5, stalls=stalls or {}, **values)]


WAITING = counted(occupancy_percent=12.0, dram_percent=30.0)
MEASURED: dict[str, tuple[Facts, str]] = {
    "products without tensor cores": (ran(products=frozenset({"k"})), "missing tensor cores"),
    "products on tensor cores": (ran(code(tensor_core={"HGMMA": 9}), products=frozenset({"k"})), "unexplained"),
    "products of another kernel": (ran(products=frozenset({"other"})), "unexplained"),
    "spills": (ran(code(spill_bytes=640)), "spilled registers"),
    "spills, and few warps": (ran(code(spill_bytes=640), counters=WAITING), "spilled registers"),
    "a few spilled bytes, with no counters": (ran(code(spill_bytes=4)), "unexplained"),
    "a few spilled bytes, and few warps": (ran(code(spill_bytes=4), counters=WAITING), "bytes in flight"),
    "few warps by the counters": (ran(counters=WAITING), "bytes in flight"),
    "few warps by the code": (ran(code(**IDLE)), "bytes in flight"),
    "few warps, which tensor cores need not": (ran(code(tensor_core={"HGMMA": 9}, **IDLE)), "unexplained"),
    "half a wave": (ran(launch=LAUNCH.model_copy(update={"grid": (66, 1, 1)})), "tail wave"),
    "conflicts": (
        ran(counters=counted(shared_percent=80.0, shared_wavefronts=10.0, load_conflicts=8.0)), "bank conflicts",
    ),
    "most by DRAM, which is not full": (
        ran(counters=counted(dram_percent=75.0, l2_percent=85.0, tensor_percent=72.0, occupancy_percent=80.0)),
        "DRAM bandwidth",
    ),
    "many launches": (
        ran(latency_ms=0.01, work=Work(bytes=1e6, flops=1e6, dtype="float32"), kernels=CallKernels(4, 8.0, [])),
        "launch overhead",
    ),
    "torch beside it": (
        ran(kernels=CallKernels(3, 190.0, [KernelTime("k", "ours", 1, 40.0), KernelTime("mul", "library", 2, 150.0)])),
        "torch operations",
    ),
    "one library call": (ran(kernels=CallKernels(1, 190.0, [KernelTime("gemm", "library", 1, 190.0)])), "unexplained"),
    "nothing is known": (ran(launch=None), "unexplained"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MEASURED)
def test_what_ran_names_the_bound(kind: str) -> None:
    facts, bound = MEASURED[kind]
    found = diagnose(facts, H200, CEILINGS)
    assert found.bound == bound
    assert (found.root_cause == "unknown") == (bound == "unexplained")
    assert not any("modelled" in line for line in found.evidence)


@pytest.mark.parametrize("kind", ["spills", "few warps by the code"])
def test_remedies_are_in_the_kernels_language(kind: str) -> None:
    facts, _ = MEASURED[kind]
    made = [one.model_copy(update={"frontend": "triton"}) for one in facts.compiled]
    words = [diagnose(facts._replace(compiled=one), H200, CEILINGS).treatments for one in (facts.compiled, made)]
    assert [any("num_worker" in one or "replace_hints" in one for one in told) for told in words] == [True, False]


def test_bytes_beyond_the_work_are_ncus() -> None:
    found = diagnose(ran(counters=counted(dram_percent=90.0, dram_read=9e8, dram_write=1e8)), H200, CEILINGS)
    assert "ncu: 1000.0 MB move, and the work is 268.4 MB" in found.evidence
    assert found.treatments[0].startswith("read each input once")


@pytest.mark.parametrize(
    ("limited_by", "ctas", "first"),
    [
        ("registers", 132 * 64, "raise-occupancy"),
        ("registers and shared memory", 132 * 64, "raise-occupancy"),
        ("shared memory", 132 * 64, "smaller-tiles: halve a tile dimension"),
        ("threads", 132 * 64, "tile-shape: larger tiles"),
        ("CTAs per SM", 132 * 64, "tile-shape: larger tiles"),
        ("registers", 132 * 2, "smaller-tiles: more CTAs, since the SMs hold all 264 at once"),
    ],
)
def test_what_limits_the_ctas_of_an_sm_says_how_to_have_more_in_flight(limited_by: str, ctas: int, first: str) -> None:
    launch = LAUNCH.model_copy(update={"grid": (ctas, 1, 1)})
    found = diagnose(ran(code(ctas_per_sm=2, limited_by=limited_by), launch=launch), H200, CEILINGS)
    assert found.bound == "bytes in flight", found
    assert found.treatments[0].startswith(first)
    assert any(f"limited by {limited_by}" in one for one in found.evidence)

"""What a diagnosis says of kernels with a planted bottleneck, compiled for sm_90 and modelled."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit.test_corpus import _stand_in  # noqa: F401 (the fixture)
from tests.unit.test_model import H200, profile
from tests.unit.test_wrapper import loaded
from tilewright.bundled import examples
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import compile_kernel
from tilewright.compiler.findings import findings
from tilewright.evaluation.estimation import assumed_ceilings
from tilewright.evaluation.modelling import profile_launch
from tilewright.interpreter import host
from tilewright.knobs import Knobs
from tilewright.profile.counters import KernelCounters
from tilewright.profile.diagnosis import CaseDiagnosis, Facts, diagnose
from tilewright.roofline.model import CallProfile, HostWork, estimate_call
from tilewright.task import Work

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
    return made, [compile_kernel(launch.kernel, launch.signature, "sm_90") for launch in launches]


def diagnosed(call: Callable[..., Any], arguments: tuple[Any, ...], work: Work) -> CaseDiagnosis:
    made, compiled = sampled(call, *arguments)
    estimate = estimate_call(made, H200)
    found = [finding for one in compiled for finding in findings(one)]
    return diagnose(Facts("case", work, estimate.ms, False, made, estimate, compiled), H200, CEILINGS, found)


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


KERNELS = Path(__file__).parents[2] / "benchmarks" / "kernels"


@pytest.mark.slow
def test_a_gather_of_whole_rows_is_not() -> None:
    table, bags = torch.zeros(16384, 256), torch.randint(16384, (8192, 128), dtype=torch.int32)
    made, compiled = sampled(loaded(KERNELS / "unseen" / "embedding_bag" / "kernel.py").embedding_bag, table, bags)
    work = Work(bytes=4 * (table.numel() + bags.numel()), flops=bags.numel() * 256, dtype="float32")
    estimate = estimate_call(made, H200)
    found = diagnose(Facts("case", work, 1.1 * estimate.ms, True, made, estimate, compiled), H200, CEILINGS, [])
    assert found.bound == "L2 bandwidth", found


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


def facts(call: CallProfile, latency_ms: float | None = None, work_bytes: float = 16384 * 32768.0) -> Facts:
    estimate = estimate_call(call, H200)
    work = Work(bytes=work_bytes, flops=work_bytes / 4, dtype="float32")
    return Facts("case", work, latency_ms or estimate.ms, latency_ms is not None, call, estimate)


def test_at_the_ceiling_there_is_nothing_to_try() -> None:
    call = CallProfile(launches=[profile(ctas_per_sm=32)])
    bound = 16384 * 32768 / CEILINGS.copy_bytes_per_s * 1e3
    found = diagnose(facts(call, bound / 0.97), H200, CEILINGS, [])
    assert found.stop.startswith("97% of what the ceilings allow")
    assert not found.treatments
    assert found.evidence[0].startswith("measured: ")
    near = diagnose(facts(call, bound / 0.84), H200, CEILINGS, [])
    assert "84% of what the ceilings allow: at most 1.19x is left" in near.stop
    assert near.treatments


def test_a_latency_that_nothing_explains_escalates() -> None:
    call = CallProfile(launches=[profile(blocks=132 * 64, ctas_per_sm=8, dram_bytes=132 * 64 * 32768.0)])
    found = diagnose(facts(call, 40 * estimate_call(call, H200).ms), H200, CEILINGS, [])
    assert found.bound == "unexplained"
    assert found.root_cause == "unknown"
    assert any("ncu" in one for one in found.evidence)


def test_traffic_beyond_the_work_is_counted() -> None:
    call = CallProfile(
        launches=[profile(blocks=132 * 128, ctas_per_sm=32, dram_bytes=3e9, bytes_loaded=3e9 / 132 / 128)]
    )
    found = diagnose(facts(call, work_bytes=1e9), H200, CEILINGS, [])
    assert found.bound == "DRAM bandwidth"
    assert any("3000.0 MB move, and the work is 1000.0 MB" in one for one in found.evidence)
    assert found.treatments[0].startswith("read each input once")


def test_torch_operations_beside_the_kernels_are_named() -> None:
    work = [HostWork(name=name, bytes=2e9, flops=0.0, dtype="float32") for name in ("mul", "add", "mul")]
    found = diagnose(facts(CallProfile(launches=[], host=work), work_bytes=2e9), H200, CEILINGS, [])
    assert found.bound == "torch operations"
    assert "3 torch operations, each through memory (mul, add)" in found.evidence[1]


def test_idle_sms_are_a_tail() -> None:
    found = diagnose(
        facts(CallProfile(launches=[profile(blocks=66, dram_bytes=66 * 3e7, bytes_loaded=3e7)])), H200, CEILINGS, []
    )
    assert found.bound == "tail wave"
    assert "66 CTAs for 132 SMs, 0.06 waves of 1056" in found.evidence[1]


LOOPING = """
import cuda.tile as ct
import torch


@ct.kernel(occupancy=4)
def centred_kernel(x, weight, out, T: ct.Constant[int]):
    row, total, squares = ct.bid(0), ct.zeros((1, T), ct.float32), ct.zeros((1, T), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        total += ct.load(x, index=(row, step), shape=(1, T)).astype(ct.float32)
    mean = ct.sum(total) / x.shape[1]
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        squares += (ct.load(x, index=(row, step), shape=(1, T)).astype(ct.float32) - mean) ** 2
    scale = ct.rsqrt(ct.sum(squares) / x.shape[1] + 1e-5)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        tile = ct.load(x, index=(row, step), shape=(1, T)).astype(ct.float32) - mean
        tile = tile * scale * ct.load(weight, index=(step,), shape=(T,))[None, :]
        ct.store(out, index=(row, step), tile=tile.astype(out.dtype))


def centred(x, weight):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), centred_kernel, (x, weight, out, 1024))
    return out
"""


@pytest.mark.slow
def test_what_a_block_loads_several_times_is_told_with_its_remedy(tmp_path: Path) -> None:
    host.install(H200)
    path = tmp_path / "looping.py"
    path.write_text(LOOPING)
    x = torch.zeros(8448, 4096, dtype=torch.float16)
    found = diagnosed(
        loaded(path).centred, (x, torch.zeros(4096)), Work(bytes=4 * x.numel(), flops=x.numel(), dtype="float32")
    )
    assert "counted: each block of centred_kernel loads x 3.0 times" in found.evidence
    assert found.treatments[0].startswith("one-pass"), found
    arguments, work = product(4096, 4224, 512)
    once = diagnosed(entry(MATMUL, tmp_path, {"TILE_M": 64, "TILE_N": 64, "TILE_K": 32}), arguments, work)
    assert not any("times" in one and "each block" in one for one in once.evidence), once


def test_what_stays_in_the_cache_is_said() -> None:
    call = CallProfile(launches=[profile(blocks=132 * 8, dram_bytes=132 * 8 * 32768.0)])
    assert any(
        "fit in the L2 cache" in one for one in diagnose(facts(call, work_bytes=3e7), H200, CEILINGS, []).evidence
    )
    assert not any("L2 cache" in one for one in diagnose(facts(call, work_bytes=3e8), H200, CEILINGS, []).evidence)


@pytest.mark.slow
@pytest.mark.parametrize("latency_ms", [None, 4.2005])
def test_a_product_whose_tile_is_too_small_is_told_to_take_a_larger_one(
    latency_ms: float | None, tmp_path: Path
) -> None:
    """Example 02 as it is, modelled, and at the latency that an H200 measured."""
    arguments, work = product(8192, 8192, 8192)
    call, compiled = sampled(entry(MATMUL, tmp_path, {}), *arguments)
    estimate = estimate_call(call, H200)
    found = [finding for one in compiled for finding in findings(one, call.launches[0].shapes)]
    case = Facts("case", work, latency_ms or estimate.ms, latency_ms is not None, call, estimate, compiled)
    told = diagnose(case, H200, CEILINGS, found)
    assert told.bound in ("DRAM bandwidth", "L2 bandwidth")
    assert "one of 128x128 does 64" in told.treatments[0]
    assert "-> tile-shape: " in told.treatments[0]
    assert not any("narrower storage" in one for one in told.treatments)
    assert any("MB move, and the work is 402.7 MB" in one for one in told.evidence)


@pytest.mark.parametrize(
    ("limited_by", "blocks", "first"),
    [
        ("registers", 132 * 64, "raise-occupancy"),
        ("registers and shared memory", 132 * 64, "raise-occupancy"),
        ("shared memory", 132 * 64, "smaller-tiles: half a tile dimension"),
        ("threads", 132 * 64, "tile-shape: larger loads a block"),
        ("registers and threads", 132 * 64, "tile-shape: larger loads a block"),
        ("CTAs per SM", 132 * 64, "tile-shape: larger loads a block"),
        ("registers", 132 * 2, "smaller-tiles: more blocks, since the SMs hold all 264 CTAs at once"),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_what_limits_the_ctas_of_an_sm_says_how_to_have_more_in_flight(
    limited_by: str, blocks: int, first: str, counted: bool
) -> None:
    launch = profile(
        blocks=blocks, dram_bytes=blocks * 32768.0, ctas_per_sm=2, instructions=3000, limited_by=limited_by
    )
    call = CallProfile(launches=[launch])
    values = {"occupancy_percent": 20.0, "dram_percent": 30.0}
    counters = [KernelCounters(kernel="k", time_ns=1e5, values=values)] if counted else []
    found = diagnose(
        facts(call, estimate_call(call, H200).ms, blocks * 32768.0)._replace(counters=counters), H200, CEILINGS, []
    )
    assert found.bound == "bytes in flight", found
    assert found.treatments[0].startswith(first)
    assert any("raise-occupancy" in one for one in found.treatments) == first.startswith("raise-occupancy")

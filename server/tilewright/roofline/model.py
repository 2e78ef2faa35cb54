"""A simple model of a kernel's latency from what its blocks do and what it occupies. A guide, not a measurement.

Its constants were fitted to sweeps of five kernels on an H200, 123 configurations of rmsnorm, matmul, rope, attention
and softmax (benchmarks/evidence/sweeps.json.gz; `python -m benchmarks.advice.model compare` sets the two side by side).
The terms were chosen with these sweeps in view. Elsewhere the data sheet's rates take the place of the H200's, and
nothing was checked.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.resources import Resources
from tilewright.gpu.specs import DeviceSpec
from tilewright.wire.record import Record

KERNEL_ERROR = (0.49, 1.28)
"""A kernel's modelled latency over its measured one: the least and the most of the 123 configurations
(benchmarks/evidence/model-ranks.json). Torch operations are taken to reach the full rates; none was compared."""

LAUNCH_MS = 0.002
CLOCK_HZ = 1.755e9
DRAM_EFFICIENCY = 0.88
"""Share of the data sheet's bandwidth that a copy reaches (4.2 of 4.8 TB/s on H200)."""
MATRIX_EFFICIENCY = 0.75
"""Share of the data sheet's matrix rate that long products sustain."""
L2_BYTES_PER_CYCLE_PER_SM = 43.0
LOCAL_BYTES_PER_CYCLE_PER_SM = 30.0
"""Spilled registers: most of them pass the first-level cache, which shared memory leaves little of."""
SPECIAL_PER_CYCLE_PER_SM = 16.0
SCALAR_PER_CYCLE_PER_SM = 128.0
LOAD_CYCLES = 1400.0
"""From asking DRAM for a batch of bytes to having it, or from a block's last stores to its end, on a busy device."""
PIPELINED_ROUNDS = 8
"""Loads of a loop that the compiler keeps ahead of their use, as far as shared memory holds them."""
SCALAR_PER_CYCLE_PER_WARP = 5.3
"""Of the 32 that a scheduler could do: a warp alone waits for its own results."""
CYCLES_PER_INSTRUCTION = 7.5
"""Of one warp in code without a loop or bulk copies, whose loads and address arithmetic wait for each other."""
EXCHANGE_CYCLES = 500.0
"""A reduction whose terms lie in several warps: through shared memory, with barriers."""
PRODUCT_ROWS_PER_WARP = 16
"""Rows of a product's result that one warp holds."""
GROUP_WARPS = 4
"""Warps that issue a product together, and the warps of a CTA that only copy where there are bulk copies."""
LOAD_BYTES_PER_THREAD = 16
OVERLAP = 4.5
"""How sharply the longer of two that overlap hides the other: their norm of this order; 1 would be their sum."""


class LaunchProfile(Record):
    """What one launch does: averages over the sampled blocks, sizes in bytes."""

    kernel: str
    blocks: int = Field(ge=0, le=2**64)
    bytes_loaded: float = Field(ge=0, description="per block, at the tile loads")
    bytes_stored: float = Field(ge=0, description="per block")
    load_rounds: float = Field(ge=0, description="per block: tile loads")
    matrix_flops: dict[str, float] = Field(description="per block, by dtype")
    scalar_flops: float = Field(ge=0)
    special_functions: float = Field(ge=0)
    loop_trips: float = Field(ge=0)
    dram_bytes: float = Field(ge=0, description="of the whole launch, each tensor read and written at most once")
    reductions: dict[int, float] = Field(default_factory=dict, description="per block, by how many results each has")
    resources: Resources = Field(description="what its kernel occupies")


class HostWork(Record):
    """One torch operation of the host code: bytes read and written, flops (0 where torch has no formula), and the
    dtype of its result."""

    name: str
    bytes: float = Field(ge=0)
    flops: float = Field(ge=0)
    dtype: str


class CallProfile(Record):
    """What one call of an entry point does, as the model sees it."""

    launches: list[LaunchProfile]
    host: list[HostWork] = Field(default_factory=list)

    @property
    def flops(self) -> float:
        launched = sum(
            launch.blocks * (sum(launch.matrix_flops.values()) + launch.scalar_flops) for launch in self.launches
        )
        return launched + sum(work.flops for work in self.host)

    @property
    def dram_bytes(self) -> float:
        return sum(launch.dram_bytes for launch in self.launches) + sum(work.bytes for work in self.host)


class Estimate(NamedTuple):
    """A modelled latency in ms, and the ms of each resource that it was made of, by name."""

    ms: float
    terms: dict[str, float]

    @property
    def limit(self) -> str:
        """What the latency is mostly spent on."""
        return max(self.terms, key=lambda name: self.terms[name])


def estimate_launch(profile: LaunchProfile, device: DeviceSpec) -> Estimate:
    """One launch: the slowest unit where blocks fill the device, over what a block takes by itself, divided by those
    that share an SM; by a ragged last wave; plus the traffic of spilled registers, and the launch itself."""
    blocks, resources = profile.blocks, profile.resources
    if not blocks:
        return Estimate(LAUNCH_MS, {"launch": LAUNCH_MS})
    clusters, workers, bulk = resources.cluster_ctas, _workers(resources), _copies_in_bulk(resources)
    ctas = blocks * clusters
    cycles = CLOCK_HZ * min(device.sms, ctas)  # of all SMs with work, in a second
    waves = ctas / (device.sms * max(resources.ctas_per_sm or 1, 1))
    ragged = math.ceil(waves) / waves if waves > 1 else 1.0
    peaks = sum(flops / device.peak_flops(dtype) for dtype, flops in profile.matrix_flops.items()) / MATRIX_EFFICIENCY
    matmuls = peaks * CLOCK_HZ * device.sms
    if not resources.tensor_core:
        matmuls = sum(profile.matrix_flops.values()) / (2 * SCALAR_PER_CYCLE_PER_SM)
    arithmetic = profile.scalar_flops / SCALAR_PER_CYCLE_PER_SM + profile.special_functions / SPECIAL_PER_CYCLE_PER_SM
    moved = (profile.bytes_loaded + profile.bytes_stored) / L2_BYTES_PER_CYCLE_PER_SM
    terms = {
        "DRAM bandwidth": profile.dram_bytes / (device.dram_bytes_per_s * DRAM_EFFICIENCY) * 1e3,
        "L2 bandwidth": blocks * moved / cycles * 1e3,
        "matmuls": blocks * matmuls / cycles * 1e3,
        "arithmetic": blocks * arithmetic / cycles * 1e3,
    }
    terms = {name: ms * ragged for name, ms in terms.items()}
    busiest = max(terms.values())

    fetched = max(profile.dram_bytes / blocks - profile.bytes_stored, 0.0)
    batches = 1.0 if profile.load_rounds else 0.0
    if profile.loop_trips > 1 and profile.load_rounds > 1:
        round_bytes = profile.bytes_loaded / profile.load_rounds
        ahead = PIPELINED_ROUNDS * round_bytes
        if bulk:
            ahead = min(ahead, resources.shared_bytes * clusters)
        batches = max(fetched / max(ahead, round_bytes), 1.0)
    if profile.bytes_stored:  # a block ends when its last store has left
        batches += 1
    # cycles of a block whose CTAs have their SMs to themselves
    waiting = batches * LOAD_CYCLES + (fetched + profile.bytes_stored) / (L2_BYTES_PER_CYCLE_PER_SM * clusters)
    if profile.loop_trips <= 1 and not bulk:  # no other loads are asked for meanwhile
        waiting += resources.instructions * CYCLES_PER_INSTRUCTION
    scalar = profile.scalar_flops / min(workers * SCALAR_PER_CYCLE_PER_WARP, SCALAR_PER_CYCLE_PER_SM)
    special = profile.special_functions / (SPECIAL_PER_CYCLE_PER_SM * min(workers / GROUP_WARPS, 1.0))
    rows = PRODUCT_ROWS_PER_WARP if profile.matrix_flops else 1
    exchanges = sum(count for results, count in profile.reductions.items() if results < rows * workers)
    exchanging = exchanges * EXCHANGE_CYCLES if workers > 1 else 0.0
    turns = blocks / cycles / min(max(resources.ctas_per_sm or 1, 1), max(ctas / device.sms, 1.0)) * ragged * 1e3
    alone = {
        "bytes in flight": waiting * turns,
        "arithmetic": (scalar + special) / clusters * turns,
        "exchanges between warps": exchanging * turns,
    }
    working = alone["arithmetic"] + alone["exchanges between warps"]
    pipelined = bulk and profile.loop_trips > 1
    own = max(alone["bytes in flight"], working) if pipelined else alone["bytes in flight"] + working

    spilled = ctas * resources.local_memory * 4 * 32 * workers * _repeats(profile)
    spills = spilled / (LOCAL_BYTES_PER_CYCLE_PER_SM * cycles) * 1e3
    terms = {name: max(terms.get(name, 0.0), alone.get(name, 0.0)) for name in terms | alone}
    both = (busiest**OVERLAP + own**OVERLAP) ** (1 / OVERLAP)
    return Estimate(both + spills + LAUNCH_MS, terms | {"spills": spills, "launch": LAUNCH_MS})


def _copies_in_bulk(resources: Resources) -> bool:
    """Whether other warps than those that compute fetch what a block reads."""
    return any(name.startswith(("UTMALDG", "UBLKCP")) for name in resources.tma)


def _workers(resources: Resources) -> int:
    """Warps of a CTA that compute."""
    warps = resources.threads // 32
    return warps - GROUP_WARPS if resources.tma and warps > GROUP_WARPS else max(warps, 1)


def _repeats(profile: LaunchProfile) -> float:
    """How often the instructions of a kernel run, on average: a loop's trips, less what it is unrolled, which its plain
    loads show."""
    resources = profile.resources
    trips = max(profile.loop_trips, 1.0)
    if trips <= 1 or not resources.plain_loads or _copies_in_bulk(resources):
        return trips
    threads = 32 * _workers(resources)
    width = min(LOAD_BYTES_PER_THREAD, profile.bytes_loaded / max(profile.load_rounds, 1.0) / threads)
    loads = profile.bytes_loaded / max(threads * width, 1.0)
    return min(loads / resources.plain_loads, trips)


def estimate_call(profile: CallProfile, device: DeviceSpec) -> Estimate:
    """One call: its launches, one after the other, and torch's own operations as the kernels that they are on a GPU."""
    found = [estimate_launch(launch, device) for launch in profile.launches]
    terms: dict[str, float] = {}
    for estimate in found:
        for name, ms in estimate.terms.items():
            terms[name] = terms.get(name, 0.0) + ms
    host = sum(_host_ms(work, device) for work in profile.host)
    if profile.host:
        terms["torch operations beside the kernels" if found else "torch operations"] = host
    return Estimate(sum(estimate.ms for estimate in found) + host, terms)


def _host_ms(work: HostWork, device: DeviceSpec) -> float:
    memory = work.bytes / (device.dram_bytes_per_s * DRAM_EFFICIENCY)
    return max(memory, work.flops / (device.peak_flops(work.dtype) * MATRIX_EFFICIENCY)) * 1e3 + LAUNCH_MS

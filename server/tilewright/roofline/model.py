"""A simple model of a kernel's latency from what its blocks do and what it occupies. A guide, not a measurement.

Its constants were fitted to sweeps of the three example kernels on an H200 (references/evidence/model.json.gz); for
other devices the data sheet's rates take their place, and nothing was checked there.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.resources import Resources
from tilewright.gpu.specs import KIB, DeviceSpec
from tilewright.records import Record

MODEL_RESOLUTION = 0.01
"""Differences below this share are not told apart by the model."""

LAUNCH_MS = 0.002
DRAM_EFFICIENCY = 0.88
"""Share of the data sheet's bandwidth that a copy reaches (4.2 of 4.8 TB/s on H200)."""
MATRIX_EFFICIENCY = 0.75
"""Share of the data sheet's matrix rate that long products sustain."""
L2_BYTES_PER_CYCLE_PER_SM = 43.0
LOCAL_BYTES_PER_CYCLE_PER_SM = 64.0
CLOCK_HZ = 1.755e9
LATENCY_BYTES = 64 * KIB
"""Bytes in flight on an SM at which a kernel draws half of the rate that it would with unlimited ones."""
PIPELINED_ROUNDS = 8
"""Loads of a loop that the compiler keeps ahead of their use, as far as shared memory holds them."""
UNLIMITED_RATE = 1.9
"""That unlimited rate, as a multiple of the device's copy bandwidth."""
SPECIAL_PER_CYCLE_PER_SM = 16.0
SCALAR_PER_CYCLE_PER_SM = 128.0
ISSUES_PER_CYCLE_PER_SM = 4.0
HIDING_WARPS = 32
"""Warps on an SM from which on one's instructions run while others wait for memory."""


class LaunchProfile(Record):
    """One launch as the model sees it: averages over the sampled blocks, sizes in bytes."""

    kernel: str
    blocks: int = Field(ge=0)
    bytes_loaded: float = Field(ge=0, description="per block, at the tile loads")
    bytes_stored: float = Field(ge=0, description="per block")
    load_rounds: float = Field(ge=0, description="per block: tile loads")
    matrix_flops: dict[str, float] = Field(description="per block, by dtype")
    scalar_flops: float = Field(ge=0)
    special_functions: float = Field(ge=0)
    loop_trips: float = Field(ge=0)
    dram_bytes: float = Field(ge=0, description="of the whole launch, each tensor read and written at most once")
    written: list[str] = Field([], description="parameters whose memory the kernel writes")
    overwritten: list[str] = Field([], description="those of them whose memory it reads, too")
    resources: Resources


class HostWork(Record):
    """One torch operation of the host code: bytes read and written, flops (0 where torch has no formula), and the
    dtype of its result."""

    name: str
    bytes: float = Field(ge=0)
    flops: float = Field(ge=0)
    dtype: str


class CallProfile(Record):
    """One call of an entry point, as the model sees it."""

    launches: list[LaunchProfile]
    host: list[HostWork] = Field(default_factory=list)

    @property
    def where(self) -> str:
        """What does the call's work, in words."""
        return "its kernels, as sampled," if self.launches else "its torch operations"

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
    """One launch: the slowest of DRAM, L2, matrix, scalar and special-function work and instruction issue, DRAM thinned
    by too few bytes in flight (Little's law), all by a ragged last wave; plus what too few warps cannot overlap, the
    traffic of spilled registers, and the launch itself."""
    if not profile.blocks:
        return Estimate(LAUNCH_MS, {"launch": LAUNCH_MS})
    resources = profile.resources
    resident = max(resources.ctas_per_sm or 1, 1)
    waves = profile.blocks * resources.cluster_ctas / (device.sms * resident)
    raggedness = -(-waves // 1) / waves if waves > 1 else 1.0
    busy_sms = min(device.sms, profile.blocks * resources.cluster_ctas)
    cycles = CLOCK_HZ * busy_sms
    traffic = profile.blocks * (profile.bytes_loaded + profile.bytes_stored)

    copy_rate = device.dram_bytes_per_s * DRAM_EFFICIENCY
    round_bytes = profile.bytes_loaded / max(profile.load_rounds, 1)
    pipelined = profile.loop_trips > 1 and profile.load_rounds > 1
    if pipelined:
        ahead = max(min(resources.shared_bytes, PIPELINED_ROUNDS * round_bytes), round_bytes)
    else:  # all that a block fetches from DRAM is asked for at once; what it only writes leaves as it comes
        ahead = max(profile.dram_bytes / profile.blocks - profile.bytes_stored, 0.0) or profile.bytes_stored
    in_flight = resident * ahead
    rate = copy_rate * UNLIMITED_RATE * in_flight / (in_flight + LATENCY_BYTES) * busy_sms / device.sms

    if profile.matrix_flops and not resources.tensor_core:
        flops = profile.blocks * sum(profile.matrix_flops.values())
        matrix_s = flops / (2 * SCALAR_PER_CYCLE_PER_SM * cycles)
    else:
        matrix_s = sum(
            profile.blocks * flops / (device.peak_flops(dtype) * MATRIX_EFFICIENCY * busy_sms / device.sms)
            for dtype, flops in profile.matrix_flops.items()
        )
    scalar_s = profile.blocks * profile.scalar_flops / (SCALAR_PER_CYCLE_PER_SM * cycles)
    special_s = profile.blocks * profile.special_functions / (SPECIAL_PER_CYCLE_PER_SM * cycles)
    warps = resources.threads / 32
    straight = profile.loop_trips <= 1 and not resources.tma  # in one instruction stream, each instruction once
    issue_s = profile.blocks * resources.instructions * warps / (ISSUES_PER_CYCLE_PER_SM * cycles) if straight else 0.0
    local_bytes = resources.local_memory * 4 * resources.threads * max(profile.loop_trips, 1)
    overlapping = {
        "DRAM bandwidth": profile.dram_bytes / copy_rate,
        "bytes in flight": profile.dram_bytes / max(rate, 1.0) if rate < copy_rate else 0.0,
        "L2 bandwidth": traffic / (L2_BYTES_PER_CYCLE_PER_SM * cycles),
        "matrix products": matrix_s,
        "arithmetic": scalar_s + special_s,
        "instruction issue": issue_s,
    }
    terms = {name: seconds * raggedness * 1e3 for name, seconds in overlapping.items()}
    memory_ms = max(ms for name, ms in terms.items() if name != "instruction issue")
    exposed_ms = max(1 - resident * warps / HIDING_WARPS, 0.0) * min(terms["instruction issue"], memory_ms)
    spills_ms = profile.blocks * local_bytes / (LOCAL_BYTES_PER_CYCLE_PER_SM * cycles) * 1e3
    added = {"instructions that too few warps hide": exposed_ms, "spills": spills_ms, "launch": LAUNCH_MS}
    return Estimate(max(terms.values()) + sum(added.values()), terms | added)


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

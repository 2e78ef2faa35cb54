"""Data-sheet figures of the GPUs that the `cpu` backend can model and the physics floor is drawn from.

Peaks are dense, without sparsity, at boost clock. A measured ceiling of the device at hand always comes first;
these are what no kernel can pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECTOR_BYTES = 32
"""What memory and caches hand over at least, however little of it is used."""
KIB = 1024
MIB = 1024 * KIB
TERA = 1e12


@dataclass(frozen=True)
class DeviceSpec:
    """One GPU as its vendor describes it: rates in bytes/s and flop/s, sizes in bytes."""

    name: str
    arch: str
    sms: int
    dram_bytes_per_s: float
    l2_bytes: int
    flops: dict[str, float] = field(hash=False)

    @property
    def limits(self) -> SmLimits:
        return SM_LIMITS[self.arch]

    @property
    def compute_capability(self) -> tuple[int, int]:
        digits = self.arch.removeprefix("sm_")
        return int(digits[:-1]), int(digits[-1])

    def peak_flops(self, dtype: str) -> float:
        """Peak rate for arithmetic on `dtype` in flop/s; for a dtype that the table lacks, the highest of all."""
        return self.flops.get(dtype, max(self.flops.values()))

    def limit_flops(self, dtype: str) -> float:
        """A rate that no kernel on `dtype` passes, however it computes: float32 products may run as tfloat32."""
        return max(self.peak_flops(dtype), self.flops["tfloat32"] if dtype == "float32" else 0.0)


def _rates(tf16: float, tf32: float, fp32: float, fp64: float, fp8: float | None = None) -> dict[str, float]:
    rates = {
        "float16": tf16,
        "bfloat16": tf16,
        "tfloat32": tf32,
        "float32": fp32,
        "float64": fp64,
        "int8": 2 * tf16,
        "uint8": 2 * tf16,
    }
    if fp8 is not None:
        rates |= {"float8_e4m3fn": fp8, "float8_e5m2": fp8}
    return {name: rate * TERA for name, rate in rates.items()}


RATES = tuple(_rates(0, 0, 0, 0, 0))
"""The dtypes whose arithmetic rates are told apart."""

# Sources: NVIDIA's A100, H100, H200, L40S and Blackwell data sheets and architecture white papers; limits per
# multiprocessor from the CUDA programming guide's table of compute capabilities.
_SPECS = (
    DeviceSpec("NVIDIA A100-SXM4-80GB", "sm_80", 108, 2.039e12, 40 * MIB, _rates(312, 156, 19.5, 19.5)),
    DeviceSpec("NVIDIA A10", "sm_86", 72, 0.6e12, 6 * MIB, _rates(125, 62.5, 31.2, 0.976)),
    DeviceSpec(
        "NVIDIA L40S", "sm_89", 142, 0.864e12, 96 * MIB, _rates(362, 183, 91.6, 1.43, 733)),
    DeviceSpec(
        "NVIDIA H100 80GB HBM3", "sm_90", 132, 3.35e12, 50 * MIB, _rates(989.4, 494.7, 66.9, 66.9, 1978.9)),
    DeviceSpec("NVIDIA H200", "sm_90", 132, 4.8e12, 60 * MIB, _rates(989.4, 494.7, 66.9, 66.9, 1978.9)),
    DeviceSpec("NVIDIA B200", "sm_100", 148, 8.0e12, 126 * MIB, _rates(2250, 1100, 75, 37, 4500)),
    DeviceSpec("NVIDIA B300", "sm_103", 148, 8.0e12, 126 * MIB, _rates(2250, 1125, 75, 1.25, 4500)),
    DeviceSpec(
        "NVIDIA GeForce RTX 5090", "sm_120", 170, 1.792e12, 96 * MIB, _rates(209.5, 104.8, 104.8, 1.64, 419)),
)  # fmt: skip


@dataclass(frozen=True)
class SmLimits:
    """What one multiprocessor of an architecture holds (CUDA programming guide, table of compute capabilities)."""

    shared_bytes: int
    threads: int
    ctas: int
    registers: int = 65536


SM_LIMITS = {
    "sm_80": SmLimits(164 * KIB, 2048, 32),
    "sm_86": SmLimits(100 * KIB, 1536, 16),
    "sm_87": SmLimits(164 * KIB, 1536, 16),
    "sm_89": SmLimits(100 * KIB, 1536, 24),
    "sm_90": SmLimits(228 * KIB, 2048, 32),
    "sm_100": SmLimits(228 * KIB, 2048, 32),
    "sm_103": SmLimits(228 * KIB, 2048, 32),
    "sm_120": SmLimits(100 * KIB, 1536, 24),
    "sm_121": SmLimits(100 * KIB, 1536, 24),
}
"""Architectures that are missing here compile too; their occupancy is then left out."""

_DEFAULTS = ("NVIDIA A100-SXM4-80GB", "NVIDIA A10", "NVIDIA L40S", "NVIDIA H200", "NVIDIA B200", "NVIDIA B300")
DEFAULT_BY_ARCH = {spec.arch: spec for spec in _SPECS if spec.name in (*_DEFAULTS, "NVIDIA GeForce RTX 5090")}


def spec_by_name(name: str) -> DeviceSpec | None:
    """The data sheet of the device that the driver calls `name`, or None where this table lacks it."""
    return next((spec for spec in _SPECS if spec.name == name), None)


def spec_by_arch(arch: str) -> DeviceSpec:
    """The device that stands for an architecture such as `sm_90`. Raises ValueError for an unknown one."""
    if arch not in DEFAULT_BY_ARCH:
        raise ValueError(f"no device model for {arch!r}; use one of {', '.join(DEFAULT_BY_ARCH)}")
    return DEFAULT_BY_ARCH[arch]

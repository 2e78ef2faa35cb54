"""The CUDA driver: `cuda-bindings`, with an error for a call that fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cuda

from tilewright.text import cut

FATAL = frozenset({
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_CONTAINED", "CUDA_ERROR_TENSOR_MEMORY_LEAK",
})  # fmt: skip
"""Errors after which a context can be used no more ("sticky" in CUDA's manual)."""


class DriverError(RuntimeError):
    """A call of the driver failed, or there is none. `name` is CUDA's, `CUDA_ERROR_OUT_OF_MEMORY` say."""

    def __init__(self, name: str, doing: str) -> None:
        super().__init__(f"{name} while {doing}")
        self.name = name

    @property
    def fatal(self) -> bool:
        """Whether the process can use the GPU no more."""
        return self.name in FATAL


def ok(answer: Sequence[Any], doing: str) -> Any:
    """What a call of the driver gave: nothing, a value, or several. Raises `DriverError`."""
    error, *values = answer
    if int(error):
        raise DriverError(getattr(error, "name", None) or str(error), cut(doing, 200))
    return values[0] if len(values) == 1 else tuple(values)


class Context:
    """A CUDA context of this process on GPU 0 of those that it sees, current in the thread that makes it.

    Raises `DriverError`."""

    def __init__(self) -> None:
        try:
            started = cuda.cuInit(0)
        except RuntimeError:  # the library of the driver is not there
            raise DriverError("no NVIDIA driver", "starting it") from None
        ok(started, "starting the driver")
        self.device = ok(cuda.cuDeviceGet(0), "looking for a GPU")
        self.handle = ok(cuda.cuDevicePrimaryCtxRetain(self.device), "opening a context")
        ok(cuda.cuCtxSetCurrent(self.handle), "opening a context")

    def attribute(self, name: str) -> int:
        """A device's attribute by CUDA's name without its prefix, `L2_CACHE_SIZE` say."""
        which = getattr(cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(ok(cuda.cuDeviceGetAttribute(which, self.device), f"asking for {name}"))

    @property
    def arch(self) -> str:
        """`sm_90` and the like."""
        return f"sm_{self.attribute('COMPUTE_CAPABILITY_MAJOR')}{self.attribute('COMPUTE_CAPABILITY_MINOR')}"

    @property
    def uuid(self) -> str:
        """As nvidia-smi writes it."""
        raw = bytes(ok(cuda.cuDeviceGetUuid(self.device), "asking for the GPU's UUID").bytes).hex()
        return f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}"

    @property
    def driver(self) -> str:
        """The CUDA version that the driver offers, `13.0` say."""
        number = int(ok(cuda.cuDriverGetVersion(), "asking for the driver's version"))
        return f"{number // 1000}.{number % 1000 // 10}"

    def free_bytes(self) -> int:
        """Bytes of the GPU's memory that are free."""
        return int(ok(cuda.cuMemGetInfo(), "asking for free memory")[0])

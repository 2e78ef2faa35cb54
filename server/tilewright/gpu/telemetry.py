"""The state of a GPU while it measures, and which GPU is there at all, read through NVML."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from tilewright.records import Record

_HARMLESS_THROTTLE = 0x1  # idle


class Telemetry(Record):
    """A GPU over the course of a measurement."""

    sm_clock_mhz: tuple[int, int] | None = Field(None, description="lowest and highest seen")
    temperature_c: int | None = None
    power_w: float | None = None
    throttle: str = Field("", description="NVML's throttle reasons seen, as a hexadecimal mask; empty for none")
    foreign_processes: list[int] = Field([], description="compute processes that are not this evaluator's")


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver shows."""

    name: str
    uuid: str
    driver: str
    arch: str


@contextlib.contextmanager
def _nvml() -> Iterator[Any]:
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def find_gpu(uuid: str | None = None) -> Gpu | None:
    """The GPU `uuid`, or the first that the driver shows; None where there is no driver or no such GPU."""
    import pynvml

    try:
        with _nvml() as nvml:
            if not nvml.nvmlDeviceGetCount():
                return None
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else nvml.nvmlDeviceGetHandleByIndex(0)
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            return Gpu(
                str(nvml.nvmlDeviceGetName(handle)),
                str(nvml.nvmlDeviceGetUUID(handle)),
                str(nvml.nvmlSystemGetDriverVersion()),
                f"sm_{major}{minor}",
            )
    except pynvml.NVMLError:
        return None


@dataclass
class Recorder:
    """Samples the GPU `uuid` between measured blocks; a reading that the driver refuses is left out."""

    uuid: str
    own_processes: set[int]
    _clocks: list[int] = field(default_factory=list)
    _last: dict[str, Any] = field(default_factory=dict)
    _foreign: set[int] = field(default_factory=set)
    _throttle: int = 0

    def sample(self) -> None:
        """Read clocks, temperature, power, throttle reasons and compute processes."""
        import pynvml

        refused = contextlib.suppress(pynvml.NVMLError)
        with refused, _nvml() as nvml:
            handle = nvml.nvmlDeviceGetHandleByUUID(self.uuid)
            with refused:
                self._clocks.append(int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)))
            with refused:
                self._last["temperature"] = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            with refused:
                self._last["power"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
            with refused:
                self._throttle |= int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) & ~_HARMLESS_THROTTLE
            with refused:
                running = {int(process.pid) for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
                self._foreign |= running - self.own_processes

    def result(self) -> Telemetry:
        """What was seen so far."""
        return Telemetry(
            sm_clock_mhz=(min(self._clocks), max(self._clocks)) if self._clocks else None,
            temperature_c=self._last.get("temperature"),
            power_w=self._last.get("power"),
            throttle=hex(self._throttle) if self._throttle else "",
            foreign_processes=sorted(self._foreign),
        )

"""The state of a GPU while it measures, and which GPU is there at all, read through NVML."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from tilewright.records import Record

MIN_DRIVER = 580
"""CUDA 13's driver branch, which cuda-tile needs to launch a kernel."""
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

    @property
    def driver_is_recent(self) -> bool:
        """Whether the driver runs what CUDA 13's compilers make."""
        return int(self.driver.partition(".")[0]) >= MIN_DRIVER


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


def torch_cuda() -> str | None:
    """The CUDA version that torch was built for; None for a build without, or no torch. Imports no torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    try:
        text = (Path(found.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    stated = re.search(r"^cuda\b.*?=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return stated[1] if stated else None


def why_unusable() -> str:
    """Why no kernel can be launched on a GPU here; empty where one can, as far as can be told without trying."""
    gpu = find_gpu()
    if gpu is None:
        return "the driver shows no GPU here"
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    if not gpu.driver_is_recent:
        return f"driver {gpu.driver} is too old for cuTile, which needs {MIN_DRIVER}"
    if torch_cuda() is None:
        return "torch is built without CUDA"
    return ""


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

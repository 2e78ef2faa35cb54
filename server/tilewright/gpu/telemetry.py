"""The state of a GPU while it measures, and which GPU is there at all, read through NVML."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MIN_DRIVER = 580
"""CUDA 13's driver branch, which cuda-tile needs to launch a kernel."""
RECENT_US = 3_000_000
THROTTLED = {
    0x8: "hardware slowdown",
    0x20: "thermal slowdown",
    0x40: "thermal slowdown of the hardware",
    0x80: "power brake",
}
"""NVML's reasons for a lower clock, but for the power limit, which a heavy kernel gives any GPU: a gain without a rest
shows what that does. The others, such as an idle GPU, are a setting or no limit."""


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
    """The GPU `uuid`, or the one that CUDA programs here take first; None where there is no driver or no such GPU."""
    import pynvml

    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    uuid = uuid or (first if first.startswith("GPU-") else None)
    index = int(first) if first.isdigit() else 0
    try:
        with _nvml() as nvml:
            if not nvml.nvmlDeviceGetCount():
                return None
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid) if uuid else nvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
            return Gpu(
                str(nvml.nvmlDeviceGetName(handle)),
                str(nvml.nvmlDeviceGetUUID(handle)),
                str(nvml.nvmlSystemGetDriverVersion()),
                f"sm_{major}{minor}",
            )
    except pynvml.NVMLError:
        return None


def device_file(uuid: str) -> Path:
    """The device file of the GPU `uuid`; WSL's, which is of all GPUs, if the driver names none."""
    import pynvml

    with contextlib.suppress(pynvml.NVMLError), _nvml() as nvml:
        return Path(f"/dev/nvidia{nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByUUID(uuid))}")
    return Path("/dev/dxg")


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


def named(pids: Iterable[int]) -> str:
    """Processes by number and name, for people to look for."""

    def name(pid: int) -> str:
        try:
            return str(psutil.Process(pid).name())
        except psutil.Error:
            return "gone"

    return ", ".join(f"{pid} ({name(pid)})" for pid in sorted(pids))


class Recorder:
    """Samples the GPU `uuid` while it measures; a reading that the driver refuses is left out.

    A context manager: the driver's management library stays open within. Processes in `own` are not foreign.
    """

    def __init__(self, uuid: str, own: set[int]) -> None:
        self._uuid = uuid
        self.own = own
        self._throttled = 0
        self._stack = contextlib.ExitStack()
        self._handle: Any = None

    def __enter__(self) -> Recorder:
        import pynvml

        with contextlib.suppress(pynvml.NVMLError):
            nvml = self._stack.enter_context(_nvml())
            self._handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle = None
        self._stack.close()

    def sample(self) -> None:
        """Read why the clock is lowered."""
        self._throttled |= int(self._read("nvmlDeviceGetCurrentClocksThrottleReasons") or 0)

    def joules(self) -> float | None:
        """Energy that the GPU took since the driver was loaded; None where it does not say."""
        millijoules = self._read("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def busy_strangers(self) -> set[int]:
        """Compute processes on the GPU that are not ours, live, and have used it within the last seconds: the driver
        lists one that has ended for a while.

        All that are there, where the driver does not say how much each used it. None where it numbers processes from
        outside a container, so that ours cannot be told from others.
        """
        running = {int(process.pid) for process in self._read("nvmlDeviceGetComputeRunningProcesses") or ()}
        if not running & self.own:
            return set()
        strangers = set(filter(psutil.pid_exists, running - self.own))
        used = self._read("nvmlDeviceGetProcessUtilization", 0) if strangers else None
        if used is None:
            return strangers
        recent = max((int(entry.timeStamp) for entry in used), default=0) - RECENT_US
        return {int(entry.pid) for entry in used if entry.smUtil and entry.timeStamp > recent} & strangers

    def off(self) -> list[str]:
        """What a reader of a figure should know of the GPU so far, in a few words each."""
        said = [f"GPU: {reason}" for bit, reason in THROTTLED.items() if self._throttled & bit]
        errors = self._read("nvmlDeviceGetTotalEccErrors", 1, 0)  # 1: uncorrected, 0: since the driver was loaded
        return [*said, *([f"GPU: {errors} memory errors"] if errors else [])]

    def _read(self, query: str, *arguments: int) -> Any:
        import pynvml

        if self._handle is None:
            return None
        try:
            return getattr(pynvml, query)(self._handle, *arguments)
        except pynvml.NVMLError:
            return None

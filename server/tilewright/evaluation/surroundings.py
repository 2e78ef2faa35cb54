"""Where a referee of native tasks runs."""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform

import torch

from tilewright.evaluation.results import DRAWS, Environment
from tilewright.gpu.specs import spec_by_arch
from tilewright.gpu.telemetry import Gpu, find_gpu
from tilewright.isolation.confinement import Isolation
from tilewright.roofline.bounds import Ceilings
from tilewright.task import Backend


def environment(backend: Backend, arch: str, gpu: Gpu | None, isolation: Isolation, ceilings: Ceilings) -> Environment:
    """The device, the versions, and what the kernel enforces on a worker. Without a GPU, `arch` is modelled."""
    return Environment(
        backend=backend,
        device=gpu.name if gpu else f"{spec_by_arch(arch).name} (modelled)",
        arch=arch,
        device_uuid=gpu.uuid if gpu else "",
        driver=gpu.driver if gpu else "",
        torch=torch.__version__,
        cuda_tile=importlib.metadata.version("cuda-tile"),
        compiler=_version_of("nvidia-cuda-tileiras"),
        python=platform.python_version(),
        isolation=str(isolation),
        confined=isolation.confined,
        unprotected=isolation.unprotected,
        ceilings=ceilings,
        draws=DRAWS,
    )


def gpu_of_torch() -> Gpu:
    """The GPU that torch calls device 0 in this environment, as the driver describes it."""
    found = find_gpu(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    if found is None:
        raise RuntimeError("torch uses a GPU that the driver's management library does not show")
    return found


def _version_of(package: str) -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return "not from a wheel"

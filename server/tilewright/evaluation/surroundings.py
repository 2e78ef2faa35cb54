"""Where a referee runs."""

from __future__ import annotations

import importlib.metadata
import platform

from tilewright.evaluation.results import Environment
from tilewright.gpu.telemetry import Gpu, find_gpu
from tilewright.isolation.confinement import Isolation
from tilewright.roofline.bounds import Ceilings
from tilewright.task import Backend


def environment(
    backend: Backend, device: str, arch: str, gpu: Gpu | None, isolation: Isolation, ceilings: Ceilings
) -> Environment:
    """The versions, and what the kernel enforces on a worker. `device` is the name of what runs or is modelled."""
    return Environment(
        backend=backend,
        device=device,
        arch=arch,
        device_uuid=gpu.uuid if gpu else "",
        driver=gpu.driver if gpu else "",
        torch=_version_of("torch"),
        cuda_tile=_version_of("cuda-tile"),
        compiler=_version_of("nvidia-cuda-tileiras"),
        python=platform.python_version(),
        isolation=str(isolation),
        confined=isolation.confined,
        unprotected=isolation.unprotected,
        ceilings=ceilings,
    )


def gpu_of_torch() -> Gpu:
    """The GPU that torch calls device 0 in this environment, as the driver describes it."""
    import torch

    found = find_gpu(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    if found is None:
        raise RuntimeError("torch uses a GPU that the driver's management library does not show")
    return found


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

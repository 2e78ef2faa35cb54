"""The kernels with a planted bottleneck that `profile` was not written along with: each computes what its task says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.task import Backend, load_task

FOLDERS = sorted(path.parent for path in Path(__file__).parents[2].glob("benchmarks/kernels/unseen/*/task.toml"))


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"unseen_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[made.__name__] = made
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_to_be_profiled_is_right(folder: Path) -> None:
    host.install(spec_by_arch("sm_90"))
    task, code = load_task(folder), module(folder / "task.py")
    (case,) = task.correctness_cases(Backend.CPU)
    inputs = code.make_inputs(case, torch.Generator().manual_seed(1))
    exact = {
        name: one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in inputs.items()
    }
    expected = code.reference(**exact)
    with host.running(host.Mode.RUN) as launches:
        found = getattr(module(folder / "kernel.py"), task.function)(**inputs)
    assert launches
    error = (found.double() - expected).norm() / expected.norm()
    assert error < (1e-4 if found.dtype is torch.float32 else 1e-2)


def test_there_are_ten_of_them() -> None:
    assert len(FOLDERS) == 10

"""The kernels with a planted bottleneck that `profile` was not written along with: each computes what its task says."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.unit.test_wrapper import loaded
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.task import Backend, load_task

FOLDERS = sorted(path.parent for path in Path(__file__).parents[2].glob("benchmarks/kernels/unseen/*/task.toml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_is_to_be_profiled_is_right(folder: Path) -> None:
    host.install(spec_by_arch("sm_90"))
    task, code = load_task(folder), loaded(folder / "task.py")
    (case,) = task.correctness_cases(Backend.CPU)
    inputs = code.make_inputs(case, torch.Generator().manual_seed(1))
    exact = {
        name: one.double() if isinstance(one, torch.Tensor) and one.is_floating_point() else one
        for name, one in inputs.items()
    }
    expected = code.reference(**exact)
    with host.running(host.Mode.RUN) as launches:
        found = getattr(loaded(folder / "kernel.py"), task.function)(**inputs)
    assert launches
    error = (found.double() - expected).norm() / expected.norm()
    assert error < (1e-4 if found.dtype is torch.float32 else 1e-2)


def test_there_are_ten_of_them() -> None:
    assert len(FOLDERS) == 10

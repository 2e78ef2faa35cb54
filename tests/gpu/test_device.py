"""What lies between this package and the driver: shared memory, signatures, presence, the lease."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.gpu


def test_a_buffer_is_shared_with_another_process_and_nothing_beside_it() -> None:
    import torch

    from tilewright.evaluation.tensors import SharedTensor, spec_of

    torch.zeros(1, device="cuda")
    made = torch.randn(6, 10, device="cuda")[:, ::2]
    shared = SharedTensor(spec_of(made))
    shared.fill_from(made)
    assert shared.tensor.equal(made)
    argument = shared.argument("x").model_dump_json()
    program = (
        "import sys, torch\n"
        "from tilewright.evaluation.tensors import Argument, opened\n"
        "torch.zeros(1, device='cuda')\n"
        "tensor = opened(Argument.model_validate_json(sys.argv[1]), [])\n"
        "print(tensor.stride(), float(tensor.sum()))\n"
        "tensor[2, 3] = 7.0\ntorch.cuda.synchronize()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("(10, 2)")
    assert float(done.stdout.split(")")[1]) == pytest.approx(float(made.sum()), abs=1e-4)
    assert shared.tensor[2, 3] == 7.0
    shared.poison()
    assert bool(shared.tensor.isnan().all())


def random_tensor(source: random.Random) -> Any:
    import torch

    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.bool]
    rank = source.choice([0, 1, 2, 3, 4, 5])
    sizes = [source.choice([1, 2, 3, 8, 16, 32, 48, 64, 100] if rank < 4 else [1, 2, 4, 16]) for _ in range(rank)]
    padded = [size + source.choice([0, 1, 8]) for size in sizes]
    tensor = torch.zeros([*padded, 2], device="cuda").to(source.choice(dtypes))[..., source.choice([0, 1])]
    tensor = tensor[tuple(slice(0, size) for size in sizes)]
    if source.random() < 0.5:
        tensor = tensor.contiguous()
    if rank > 1 and source.random() < 0.3:
        tensor = tensor.transpose(0, 1)
    return tensor


def test_signatures_are_those_that_a_launch_would_derive() -> None:
    from cuda.tile.compilation import CallingConvention, KernelSignature

    from tests.unit import kernels
    from tilewright.compiler.signature import signature_of

    source = random.Random(3)
    for _ in range(500):
        arguments = (random_tensor(source), random_tensor(source), source.choice([1, 16, 32]))
        theirs = KernelSignature.from_kernel_args(kernels.casts, arguments, CallingConvention.cutile_python_v1())
        assert signature_of(kernels.casts, arguments) == theirs, arguments[:2]


def hold(uuid: str, ready: Any, release: Any) -> None:
    from tilewright.gpu.lease import lease

    with lease(uuid, 5, lambda _: None):
        ready.set()
        release.wait()


def test_a_leased_gpu_is_waited_for_and_its_holder_is_named() -> None:
    from tilewright.gpu.lease import GpuBusy, lease
    from tilewright.gpu.telemetry import find_gpu

    gpu = find_gpu()
    assert gpu is not None
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(gpu.uuid, ready, release), daemon=True)
    holder.start()
    try:
        assert ready.wait(30)
        told: list[str] = []
        with pytest.raises(GpuBusy, match=f"process {holder.pid}"), lease(gpu.uuid, 1, told.append):
            pass
        assert [line.startswith(f"waiting for the GPU, in use by process {holder.pid}") for line in told] == [True]
    finally:
        release.set()
    with lease(gpu.uuid, 10, told.append):
        pass
    holder.join()

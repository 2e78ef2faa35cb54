"""Host code that moves modules, seeds generators and asks for memory runs unmodified where there is no GPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.utils._device

from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host


@pytest.fixture(autouse=True)
def _running() -> Iterator[None]:
    places = (torch.cuda, torch.cuda.random, torch.cuda.memory, torch.cuda.nvtx)
    saved = [dict(vars(place)) for place in places]
    record = torch.Tensor.record_stream
    generator, context = torch.Generator, torch.utils._device.DeviceContext.__torch_function__
    host.install(spec_by_arch("sm_90"))
    try:
        with host.running(host.Mode.RUN):
            yield
    finally:
        for place, names in zip(places, saved, strict=True):
            for name, value in names.items():
                if not name.startswith("__"):
                    setattr(place, name, value)
        torch.Tensor.record_stream = record  # type: ignore[method-assign]
        torch.Generator = generator  # type: ignore[misc]
        torch.utils._device.DeviceContext.__torch_function__ = context  # type: ignore[method-assign]


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda", 0), 0])
def test_a_module_moves_to_the_device(device: object) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(device)
    assert {parameter.device for parameter in module.parameters()} == {torch.device("cuda", 0)}
    half = copy.deepcopy(module).cuda().to(device, torch.float16, non_blocking=True)
    assert half[0].weight.dtype == torch.float16 and half[1].num_batches_tracked.dtype == torch.int64
    assert half(torch.ones(2, 4, device="cuda", dtype=torch.float16)).is_cuda


@pytest.mark.parametrize(
    "arguments",
    [("cuda",), (torch.device("cuda"), torch.float64), (0, torch.float64, True), (torch.float64,), ("cpu",)],
)
def test_a_tensor_moves_by_every_form_of_to(arguments: tuple[object, ...]) -> None:
    moved = torch.ones(3).to(*arguments, non_blocking=True) if len(arguments) < 3 else torch.ones(3).to(*arguments)
    assert moved.dtype == (torch.float64 if torch.float64 in arguments else torch.float32)


def test_a_default_device_makes_tensors_there() -> None:
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda and torch.nn.Linear(2, 2).weight.is_cuda
    torch.set_default_device("cuda")
    try:
        assert torch.arange(3).is_cuda and torch.get_default_device() == torch.device("cuda", 0)
    finally:
        torch.set_default_device(None)


def test_generators_of_the_device_repeat_their_numbers() -> None:
    generators = [torch.Generator("cuda").manual_seed(3), torch.Generator(device="cuda:0").manual_seed(3)]
    first, second = (torch.randn(8, device="cuda", generator=one) for one in generators)
    assert torch.equal(first, second)
    assert generators[0].device == torch.device("cuda", 0) and torch.Generator().device == torch.device("cpu")
    assert torch.randn(2, generator=torch.Generator().manual_seed(1)).shape == (2,)


def test_seeds_and_states_of_the_device_repeat_its_numbers() -> None:
    found = []
    for seed in (torch.manual_seed, torch.cuda.manual_seed, torch.cuda.manual_seed_all):
        seed(5)
        found.append(torch.rand(4, device="cuda"))
    state = torch.cuda.get_rng_state()
    found_later = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state, "cuda")
    assert torch.equal(found_later, torch.rand(4, device="cuda"))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    with torch.random.fork_rng(devices=[0]):
        torch.rand(1)
    assert torch.cuda.initial_seed() == 5


def test_host_code_asks_for_memory_and_waits_for_streams() -> None:
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.empty_cache()
    assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated("cuda") == 0
    x = torch.ones(4).pin_memory().to("cuda", non_blocking=True)
    y = torch.empty(4, pin_memory=True).copy_(x, non_blocking=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.cuda.device(0):
        y = y * 2
        y.record_stream(side)
        event = torch.cuda.Event(enable_timing=True)
        event.record(side)
    event.synchronize()
    torch.cuda.synchronize()
    assert event.query() and y.tolist() == [2.0] * 4
    assert torch.cuda.is_bf16_supported() and torch.cuda.get_arch_list() == ["sm_90"]

"""torch's CUDA on the CPU: tensors that seem to be on a GPU, and `torch.cuda` as host code calls it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._device
from torch.overrides import TorchFunctionMode

from tilewright.gpu.specs import KIB, DeviceSpec
from tilewright.interpreter.unshown import ORDER, meet

DEVICE = torch.device("cuda", 0)
MEMORY_BYTES = 80 * 2**30

_PRETENDED: dict[Any, Any] = {
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: DEVICE,
    torch.Tensor.get_device: 0,
    torch.Tensor.is_pinned: False,
}

_STAYS = {torch.Tensor.cuda, torch.Tensor.pin_memory}
"""Methods that move a tensor to where all tensors are."""

_TAKE_DEVICES = {torch.Tensor.to, torch._C._nn._parse_to}
"""Functions that take a device among their positional arguments."""

_UNINITIALISED = {
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.empty_permuted,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
}

_UNORDERED = {"index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_"}
"""Functions that add with float atomics on a GPU."""


class CudaOnCpu(TorchFunctionMode):
    """Lets host code believe that its tensors are on a CUDA device. `made` takes memory that nobody has written."""

    def __init__(self, made: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self._made = made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _PRETENDED:
            return _PRETENDED[func]
        if func in _STAYS:
            return args[0]
        kwargs = {name: _on_cpu(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        kwargs.pop("pin_memory", None)
        if func in _TAKE_DEVICES:
            args = tuple(_on_cpu(value) for value in args)
        result = func(*args, **kwargs)
        if (name := getattr(func, "__name__", "")) in _UNORDERED and result.is_floating_point():
            meet(ORDER, f"torch's {name}")
        if func in _UNINITIALISED and "out" not in kwargs:
            self._made(result)
        return result


def _is_cuda(device: Any) -> bool:
    """Whether an argument names a CUDA device."""
    if isinstance(device, str | torch.device):
        return str(device).partition(":")[0] == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _on_cpu(argument: Any) -> Any:
    return "cpu" if _is_cuda(argument) else argument


class _Generator(torch.Generator):
    """A generator that may seem to be on a CUDA device."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, device=_on_cpu(device))  # type: ignore[call-arg]

    def __init__(self, device: Any = "cpu") -> None:
        self._cuda = _is_cuda(device)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE if self._cuda else torch.device("cpu")


class _Stream:
    """A stream or event that is always done."""

    cuda_stream = stream_id = priority = device_index = 0
    device = DEVICE

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream)

    def __hash__(self) -> int:
        return 0

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        raise RuntimeError("there is no GPU here, and so nothing to time; latency is modelled on the cpu backend")

    def record_event(self, *_: Any) -> _Stream:
        return _Stream()

    def _done(self, *_: Any, **__: Any) -> None: ...

    record = wait = synchronize = wait_stream = wait_event = _done


def _in_context(context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What a default device does to a call that makes a tensor. (torch puts it below all other modes.)"""
    kwargs = dict(kwargs or {})
    if func in torch.utils._device._device_constructors() and kwargs.get("device") is None:
        kwargs["device"] = _on_cpu(context.device)
    return func(*args, **kwargs)


def _nothing() -> Callable[..., None]:
    """A new function that does nothing: torch.compile keeps its rules by the identity of a function."""
    return lambda *_, **__: None


def _random() -> dict[str, Any]:
    """The device's random numbers are the default generator's."""
    source = torch.default_generator
    return {
        "default_generators": (source,),
        "manual_seed": lambda seed: source.manual_seed(int(seed)),
        "manual_seed_all": lambda seed: source.manual_seed(int(seed)),
        "seed": lambda: source.manual_seed(source.seed()),
        "seed_all": lambda: source.manual_seed(source.seed()),
        "initial_seed": lambda: source.initial_seed(),
        "get_rng_state": lambda device=None: source.get_state(),
        "get_rng_state_all": lambda: [source.get_state()],
        "set_rng_state": lambda state, device=None: source.set_state(state),
        "set_rng_state_all": lambda states: source.set_state(states[0]),
    }


def stand_in(device: DeviceSpec) -> None:
    """Make `torch.cuda` a stand-in for one GPU, `device`."""
    name, capability = device.name, device.compute_capability
    properties = SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=device.sms,
        total_memory=MEMORY_BYTES,
        shared_memory_per_block=48 * KIB,
        shared_memory_per_block_optin=device.limits.shared_bytes - KIB,
        L2_cache_size=device.l2_bytes,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=device.limits.threads,
        regs_per_multiprocessor=device.limits.registers,
        shared_memory_per_multiprocessor=device.limits.shared_bytes,
        warp_size=32,
        is_integrated=0,
        is_multi_gpu_board=0,
    )
    replaced: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda device=None: name,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device=None: properties,
        "get_arch_list": lambda: [device.arch],
        "is_bf16_supported": lambda including_emulation=True: True,
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "stream": lambda stream: _Stream(),
        "device": lambda device: contextlib.nullcontext(),
        "device_of": lambda tensor: contextlib.nullcontext(),
        "Stream": _Stream,
        "ExternalStream": _Stream,
        "Event": _Stream,
        "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
        "memory_stats": lambda device=None: {},
        "memory_summary": lambda device=None, abbreviated=False: "",
        **_random(),
    }
    nothing = "init _lazy_init set_device set_stream synchronize empty_cache ipc_collect reset_peak_memory_stats"
    nothing += " reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached"
    replaced |= {function: _nothing() for function in nothing.split()}
    for figure in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        replaced[figure] = lambda device=None: 0
    for function, value in replaced.items():
        setattr(torch.cuda, function, value)
    for module in (torch.cuda.random, torch.cuda.memory):  # which torch's own code calls by these names
        for function in replaced.keys() & vars(module).keys():
            setattr(module, function, replaced[function])
    for function in ("range_push", "range_pop", "mark"):
        setattr(torch.cuda.nvtx, function, _nothing())
    setattr(torch.cuda.nvtx, "range", lambda *_, **__: contextlib.nullcontext())  # noqa: B010 (mypy knows its type)
    setattr(torch.Tensor, "record_stream", _nothing())  # noqa: B010 (whose own takes no stand-in for a stream)
    setattr(torch, "Generator", _Generator)  # noqa: B010 (mypy knows its type)
    setattr(torch.utils._device.DeviceContext, "__torch_function__", _in_context)  # noqa: B010

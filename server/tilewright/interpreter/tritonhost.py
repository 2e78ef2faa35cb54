"""Stands in for the GPU under Triton: kernels go to Triton's own interpreter, or are noted down to be compiled.

`install` is called once in a worker process, before the candidate and with it `triton` are imported.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from tilewright.gpu.specs import DeviceSpec
from tilewright.interpreter.host import executes
from tilewright.interpreter.hostops import paused
from tilewright.interpreter.torchcuda import DEVICE
from tilewright.interpreter.unshown import ORDER, TF32, meet


@dataclass(frozen=True)
class TritonLaunch:
    """One launch that the host code made: what Triton would compile, its options by name, and the grid."""

    source: Any
    options: dict[str, Any]
    grid: tuple[int, int, int]


@dataclass(frozen=True)
class _Source:
    """What Triton's own launcher takes for a compiled kernel."""

    source: Any
    options: dict[str, Any]


class StandIn:
    """Triton's driver where there is none: a device of one architecture, without a clock."""

    def __init__(self, device: DeviceSpec) -> None:
        self.arch = device.arch
        self._device = device
        self.utils = SimpleNamespace(get_device_properties=self._properties, set_printf_fifo_size=lambda size: None)

    def get_current_target(self) -> Any:
        return target_of(self.arch)

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return self._device.compute_capability

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None: ...

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Any:
        return self._nothing_to_time

    def get_empty_cache_for_benchmark(self) -> Any:
        return self._nothing_to_time()

    def _nothing_to_time(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("there is no GPU here, and so nothing to time; benchmark Triton kernels on a GPU")

    def _properties(self, device: int = 0) -> dict[str, int]:
        limits = self._device.limits
        return {
            "max_shared_mem": limits.shared_bytes - 1024,
            "max_num_regs": limits.registers,
            "multiprocessor_count": self._device.sms,
            "warpSize": 32,
        }


_driver: StandIn | None = None
_launches: list[TritonLaunch] = []
_kernel = ""
"""The kernel that was launched last."""


def target_of(arch: str) -> Any:
    """Triton's name of an architecture such as `sm_90`."""
    from triton.backends.compiler import GPUTarget

    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


def install(device: DeviceSpec, interpret: bool) -> None:
    """Make Triton run its kernels in its interpreter, or, without `interpret`, note down what it would launch."""
    global _driver
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    import triton
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from tilewright.interpreter import tritonfloats

    _driver = StandIn(device)
    triton.runtime.driver.set_active(_driver)
    interpreted, launch, executor = InterpretedFunction.run, JITFunction.run, interpreter.GridExecutor
    ones: list[str] = []

    def execute(*args: Any) -> Any:
        made = executor(*args)
        made.constexprs += ones
        return made

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        global _kernel
        _kernel = str(self.fn.__name__)
        ones[:] = _specialised(self, dict(zip(self.arg_names, args, strict=False)) | kwargs)
        with torch._C.DisableTorchFunction(), paused():
            return interpreted(self, *args, **kwargs) if executes() else None

    def note(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction(), paused():
            known = launch(self, *args, grid=grid, warmup=True, **kwargs)
            if not warmup:
                _launches.append(TritonLaunch(known.source, known.options, _sizes(self, grid, args, kwargs)))
        return known

    patch_tensor = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)  # its own conversion of a scalar to a number is an error from numpy 2.4 on
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch
    tritonfloats.install()
    InterpretedFunction.run, interpreter.GridExecutor = run, execute
    JITFunction.run = note
    triton.compiler.compile = _noted
    if interpret:
        _watch(interpreter.InterpreterBuilder)


def _watch(builder: Any) -> None:
    """Note where a GPU computes otherwise than the interpreter does."""
    from triton._C.libtriton import ir

    dot, update, swap = builder.create_dot, builder.create_atomic_rmw, builder.create_atomic_cas

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        if precision == ir.INPUT_PRECISION.TF32 and a.dtype.is_floating() and a.dtype.primitive_bitwidth == 32:
            meet(TF32, f"tl.dot in {_kernel}")
        return dot(self, a, b, d, precision, *rest)

    def create_atomic_rmw(self: Any, mode: Any, *rest: Any) -> Any:
        if mode in (ir.ATOMIC_OP.FADD, ir.ATOMIC_OP.XCHG):
            meet(ORDER, _kernel)
        return update(self, mode, *rest)

    def create_atomic_cas(self: Any, *rest: Any) -> Any:
        meet(ORDER, _kernel)
        return swap(self, *rest)

    builder.create_dot, builder.create_atomic_rmw = create_dot, create_atomic_rmw
    builder.create_atomic_cas = create_atomic_cas


def _noted(source: Any, target: Any = None, options: dict[str, Any] | None = None, **_: Any) -> _Source:
    return _Source(source, dict(options or {}))


def _sizes(kernel: Any, grid: Any, args: Any, kwargs: Any) -> tuple[int, int, int]:
    if callable(grid):
        binder = kernel.device_caches[0][4]
        grid = grid(binder(*args, **kwargs)[0])
    x, y, z = (*map(int, grid), 1, 1)[:3]
    return x, y, z


def _specialised(kernel: Any, given: dict[str, Any]) -> list[str]:
    """The whole numbers of value 1 among a call's arguments: Triton's compiler takes them for constants."""
    kept = {*(kernel.kwargs.get("do_not_specialize") or ())}
    named = [name for number, name in enumerate(kernel.arg_names) if not kept & {number, name}]
    return [name for name in named if type(given.get(name)) is int and given[name] == 1]


@contextlib.contextmanager
def captured() -> Iterator[list[TritonLaunch]]:
    """List the launches made within."""
    _launches.clear()
    yield _launches


@contextlib.contextmanager
def device_of(arch: str) -> Iterator[None]:
    """Let Triton's front end believe that the device is of `arch`."""
    assert _driver is not None, "install() comes first"
    before, _driver.arch = _driver.arch, arch
    try:
        yield
    finally:
        _driver.arch = before

"""What host code computes with torch beside its kernels: on a GPU, each such operation is a kernel of its own.

Operations are counted as torch dispatches them on the CPU; the few that are one kernel on a GPU and several here count
as one.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tilewright.roofline.model import HostWork

_Given = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of a call, by position and by name."""
_FREE = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "lift_fresh", "detach",
     "alias", "detach_", "set_", "resize_", "resize_as_", "record_stream", "t_", "transpose_", "squeeze_",
     "unsqueeze_", "as_strided_"}
)  # fmt: skip
"""Operations of aten that only make or name memory."""
_OVERWRITES = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "_foreach_copy_", "_foreach_zero_"}
)
"""Operations in place that do not read what they replace."""
_FILLS = frozenset(
    {"fill", "fill_", "zero_", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
     "new_full", "scalar_tensor"}
)  # fmt: skip
"""Operations that write one value everywhere."""
_COPIES = frozenset({"clone", "copy_", "_to_copy", "_pin_memory"})
_GATHERS = frozenset({"embedding", "index", "index_select", "gather"})
"""Operations that read of their first tensor no more than they put out."""
_SAME_FLOPS = {
    "_scaled_dot_product_flash_attention_for_cpu": "_scaled_dot_product_flash_attention",
    "_addmm_activation": "addmm",
}
"""Operations that torch has no formula for, and one that does the same sums."""
_ONE_KERNEL = frozenset({F.rms_norm, torch.rms_norm})
"""Functions that are one kernel on a GPU, and are composed of several operations on the CPU."""


_own = threading.local()
"""Whether this thread is paused."""


class _Noting(TorchDispatchMode):
    """Notes each operation that writes to tensors, with these: `note(operation, arguments, result, written)`.

    It is a mode without torch._dynamo, whose import takes seconds; what torch.compile is given runs as it is here.
    """

    def __init__(self, note: Callable[[Any, _Given, Any, list[torch.Tensor]], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _is_paused() and (outputs := _written(func, args, kwargs, result)):
            self._note(func, (args, kwargs), result, outputs)
        return result


@cache
def _flop_formulas() -> dict[Any, Any]:
    from torch.utils.flop_counter import flop_registry  # imports triton, which not every process may do early

    return flop_registry


class _OneKernel(TorchFunctionMode):
    """Counts what a GPU does in one kernel as one operation."""

    def __init__(self, ops: list[HostWork]) -> None:
        super().__init__()
        self._ops = ops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _ONE_KERNEL or _is_paused():
            return func(*args, **kwargs)
        with paused():
            result = func(*args, **kwargs)
        self._ops.append(_work(func.__name__, _tensors((args, kwargs)), [result]))
        return result


@contextlib.contextmanager
def counting() -> Iterator[list[HostWork]]:
    """List the torch operations made within, views and allocations left out."""
    ops: list[HostWork] = []

    def note(func: Any, given: _Given, result: Any, outputs: list[torch.Tensor]) -> None:
        name = func.overloadpacket.__name__
        read = []
        for argument, value in _given(func, *given):
            if not argument.is_out and not (_is_written(argument) and name in _OVERWRITES):
                read += _tensors(value)
        if name in _GATHERS and _bytes(outputs) < _bytes(read[:1]):
            read = [*outputs[:1], *read[1:]]
        same = _SAME_FLOPS.get(name)
        formula = _flop_formulas().get(getattr(torch.ops.aten, same) if same else func.overloadpacket)
        flops = formula(*given[0], **given[1], out_val=result) if formula else 0.0
        ops.append(_work(name, read, outputs, flops))

    with _Noting(note), _OneKernel(ops):
        yield ops


def _work(name: str, read: list[torch.Tensor], outputs: list[torch.Tensor], flops: float = 0.0) -> HostWork:
    dtype = str(outputs[0].dtype).removeprefix("torch.")
    return HostWork(name=name, bytes=_bytes(read) + _bytes(outputs), flops=flops, dtype=dtype)


@contextlib.contextmanager
def computing() -> Iterator[Counter[str]]:
    """Count by name the operations of torch that this thread makes within and that compute: views, allocations, fills,
    and copies that keep the dtype do not. An operation that somebody registered with torch is not looked into."""
    calls = Counter[str]()

    def note(func: Any, given: _Given, result: Any, outputs: list[torch.Tensor]) -> None:
        name = func.overloadpacket.__name__
        dtypes = {one.dtype for one in (*_tensors(given), *outputs) if one.dim()}
        if func.namespace == "aten" and name not in _FILLS and not (name in _COPIES and len(dtypes) <= 1):
            calls[f"aten::{name}"] += 1

    with _Noting(note):
        yield calls


def _written(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """The tensors to which an operation writes. Empty if it only makes, names or reads memory."""
    written = [value for argument, value in _given(func, args, kwargs) if _is_written(argument)]
    outputs = [*_tensors(result), *_tensors(written)]
    known = {tensor.untyped_storage().data_ptr() for tensor in _tensors((args, kwargs))}
    is_view = not func._schema.is_mutable and all(out.untyped_storage().data_ptr() in known for out in outputs)
    return [] if is_view or func.overloadpacket.__name__ in _FREE else outputs


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _given(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Each argument of an operation's schema, and what was given for it."""
    for position, argument in enumerate(func._schema.arguments):
        yield argument, args[position] if position < len(args) else kwargs.get(argument.name)


def _bytes(tensors: list[torch.Tensor]) -> int:
    """The bytes that lie under some tensors: one that is named twice counts once, and so does a repeated element."""
    sizes: dict[Any, int] = {}
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            sizes[id(tensor)] = tensor.numel() * tensor.element_size()
            continue
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        distinct = math.prod(size for size, stride in steps if stride) if tensor.numel() else 0
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        sizes[key] = distinct * tensor.element_size()
    return sum(sizes.values())


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Count nothing in this thread: the interpreter's own torch is a kernel's work."""
    before = _is_paused()
    _own.paused = True
    try:
        with torch._C._DisableTorchDispatch():  # which an operation would else reach by way of Python
            yield
    finally:
        _own.paused = before


def _is_paused() -> bool:
    return getattr(_own, "paused", False)

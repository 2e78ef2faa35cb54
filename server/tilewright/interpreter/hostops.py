"""What host code computes with torch beside its kernels: on a GPU, each such operation is a kernel of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tilewright.roofline.model import HostWork

Watch = Callable[[torch.Tensor], None]
_FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "detach", "alias"}
"""Operations of aten that only make or name memory."""


class _Counting(TorchDispatchMode):
    paused = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: list[HostWork] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not _Counting.paused:
            self._note(func, args, kwargs, result)
        return result

    def _note(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        outputs = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        name = func.overloadpacket.__name__
        known = {tensor.untyped_storage().data_ptr() for tensor in inputs}
        is_view = not func._schema.is_mutable and all(out.untyped_storage().data_ptr() in known for out in outputs)
        if not outputs or is_view or name in _FREE:
            return
        formula = flop_registry.get(func.overloadpacket)
        self.ops.append(
            HostWork(
                name=name,
                bytes=sum(tensor.numel() * tensor.element_size() for tensor in inputs + outputs),
                flops=formula(*args, **kwargs, out_val=result) if formula else 0.0,
                dtype=str(outputs[0].dtype).removeprefix("torch."),
            )
        )


@contextlib.contextmanager
def counting() -> Iterator[list[HostWork]]:
    """List the torch operations made within, views and allocations left out."""
    with _Counting() as mode:
        yield mode.ops


class _Watching(TorchDispatchMode):
    def __init__(self, wrote: Watch, read: Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wrote, self._read = wrote, read

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _Counting.paused or func.overloadpacket.__name__ in _FREE:
            return func(*args, **kwargs)
        given = [(argument.alias_info, value) for argument, value in _paired(func, args, kwargs)]
        if not any(alias is not None and not alias.is_write for alias, _ in given):  # else it makes a view
            for alias, value in given:
                for leaf in _tensors(value) if alias is None else []:
                    self._read(leaf)
        result = func(*args, **kwargs)
        for alias, value in given:
            for leaf in _tensors(value) if alias is not None and alias.is_write else []:
                self._wrote(leaf)
        return result


def _paired(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """An operation's declared arguments with what was given for each."""
    declared = func._schema.arguments
    found = [(argument, args[position]) for position, argument in enumerate(declared) if position < len(args)]
    return found + [(argument, kwargs[argument.name]) for argument in declared if argument.name in kwargs]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def watching(wrote: Watch, read: Watch) -> Iterator[None]:
    """Call `wrote` and `read` with every tensor that host code writes or reads within."""
    with _Watching(wrote, read):
        yield


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Count nothing within: what the interpreter itself does with torch is a kernel's work."""
    before, _Counting.paused = _Counting.paused, True
    try:
        yield
    finally:
        _Counting.paused = before

"""The signature that a launch's arguments imply, worked out without a driver.

`KernelSignature.from_kernel_args` needs libcuda and CUDA tensors; this gives the same constraints for torch tensors
on any device, so that a kernel compiles here exactly as the launch on a GPU would compile it.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Sequence
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import cuda.tile as ct
import torch
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    KernelSignature,
    ListConstraint,
    ScalarConstraint,
    TupleConstraint,
)
from torch.utils._pytree import tree_leaves

_TMA_MAX_RANK = 5
_DIVISOR = 16

_DTYPES = {
    torch.float16: ct.float16,
    torch.bfloat16: ct.bfloat16,
    torch.float32: ct.float32,
    torch.float64: ct.float64,
    torch.int8: ct.int8,
    torch.int16: ct.int16,
    torch.int32: ct.int32,
    torch.int64: ct.int64,
    torch.uint8: ct.uint8,
    torch.uint16: ct.uint16,
    torch.uint32: ct.uint32,
    torch.uint64: ct.uint64,
    torch.bool: ct.bool_,
    torch.float8_e4m3fn: ct.float8_e4m3fn,
    torch.float8_e5m2: ct.float8_e5m2,
    torch.float8_e8m0fnu: ct.float8_e8m0fnu,
}


def array_constraint(tensor: torch.Tensor, annotation: ct.ArrayAnnotation | None = None) -> ArrayConstraint:
    """What the compiler may assume of a tensor argument: unit strides and divisibility by 16 of what is not 1, and the
    sizes and strides that its annotation makes constants."""
    if tensor.dtype not in _DTYPES:
        raise TypeError("Unsupported array dtype")
    annotation = annotation or ct.ArrayAnnotation()
    shapes = {axis % tensor.ndim for axis in annotation.static_shape_dims}
    strides = {axis % tensor.ndim for axis in annotation.static_stride_dims}
    size = tensor.element_size()
    known = tensor.ndim <= _TMA_MAX_RANK
    by_stride = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    disjoint = not by_stride or (
        by_stride[0][0] > 0
        and all(outer[0] > 0 and outer[0] >= inner[0] * inner[1] for inner, outer in itertools.pairwise(by_stride))
    )
    return ArrayConstraint(
        _DTYPES[tensor.dtype],
        tensor.ndim,
        index_dtype=annotation.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=not disjoint,
        stride_constant=tuple(
            stride if axis in strides or (known and stride == 1 and not strides) else None
            for axis, stride in enumerate(tensor.stride())
        ),
        shape_constant=tuple(extent if axis in shapes else None for axis, extent in enumerate(tensor.shape)),
        stride_divisible_by=tuple(
            _DIVISOR // size if known and stride != 1 and stride * size % _DIVISOR == 0 else 1
            for stride in tensor.stride()
        ),
        shape_divisible_by=tuple(_DIVISOR if known and extent % _DIVISOR == 0 else 1 for extent in tensor.shape),
        base_addr_divisible_by=_DIVISOR if tensor.data_ptr() % _DIVISOR == 0 else 1,
    )


def _list_constraint(arrays: list[Any], annotation: ct.ArrayAnnotation | None) -> ListConstraint:
    """What holds for all arrays of a list."""
    found = [array_constraint(item, annotation) for item in arrays if isinstance(item, torch.Tensor)]
    if len(found) < len(arrays) or len({(one.ndim, one.dtype) for one in found}) != 1:
        raise TypeError("A list as kernel argument holds one or more arrays, of one rank and data type")
    first = found[0]

    def divisors(name: str) -> tuple[int, ...]:
        return tuple(math.gcd(*column) for column in zip(*(getattr(one, name) for one in found), strict=True))

    def constants(name: str) -> tuple[int | None, ...]:
        columns = zip(*(getattr(one, name) for one in found), strict=True)
        return tuple(column[0] if len(set(column)) == 1 else None for column in columns)

    element = ArrayConstraint(
        first.dtype,
        first.ndim,
        index_dtype=first.index_dtype,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=any(one.may_alias_internally for one in found),
        stride_constant=constants("stride_constant"),
        shape_constant=constants("shape_constant"),
        stride_divisible_by=divisors("stride_divisible_by"),
        shape_divisible_by=divisors("shape_divisible_by"),
        base_addr_divisible_by=math.gcd(*(one.base_addr_divisible_by for one in found)),
    )
    return ListConstraint(element, alias_groups=(), elements_may_alias=True)


def _constant(argument: Any) -> Any:
    """A constant argument, as the compiler takes it."""
    if type(argument) is tuple:
        return tuple(map(_constant, argument))
    if not isinstance(argument, bool | int | float) and not is_dataclass(argument):
        raise TypeError(f"a kernel takes no constant of type '{type(argument).__name__}'")
    return int(argument) if isinstance(argument, Enum) and isinstance(argument, int) else argument


def _constraint(argument: Any, annotation: Any) -> Any:
    """What the compiler may assume of an argument."""
    if getattr(annotation, "constant", False):
        return _constant(argument)
    if isinstance(argument, torch.Tensor):
        return array_constraint(argument, getattr(annotation, "array", None))
    if isinstance(argument, list):
        return _list_constraint(argument, annotation.list.element if getattr(annotation, "list", None) else None)
    if isinstance(argument, bool):
        return ScalarConstraint(ct.bool_)
    if isinstance(argument, int) and getattr(annotation, "scalar", None) is not None:
        return ScalarConstraint(annotation.scalar.dtype)
    if isinstance(argument, int):
        if not -(2**31) <= argument < 2**31:
            raise OverflowError("Python int too large to convert to C int32_t")
        return ScalarConstraint(ct.int32)
    if isinstance(argument, float):
        return ScalarConstraint(ct.float32)
    if type(argument) is tuple:
        items = getattr(annotation, "items", None)
        if items is None:
            items = [getattr(annotation, "each", annotation)] * len(argument)
        if len(items) != len(argument):
            raise TypeError(f"a kernel takes a tuple of {len(items)} items here, and {len(argument)} were given")
        return TupleConstraint([_constraint(item, node) for item, node in zip(argument, items, strict=True)])
    raise TypeError(f"a kernel takes no argument of type '{type(argument).__name__}'")


def signature_of(kernel: Any, arguments: tuple[Any, ...]) -> KernelSignature:
    """The signature under which `kernel` compiles for these arguments. Raises what a launch on a GPU would."""
    annotations = kernel._annotated_function.parameter_annotations
    if len(annotations) != len(arguments):
        raise TypeError(f"Kernel expects {len(annotations)} arguments but {len(arguments)} were given")
    constraints = [_constraint(argument, node) for argument, node in zip(arguments, annotations, strict=True)]
    name = kernel._pyfunc.__name__
    try:
        return KernelSignature(constraints, CallingConvention.cutile_python_v1()).with_mangled_symbol(name)
    except ValueError:  # tuples and constant sizes came with version 2
        return KernelSignature(constraints, CallingConvention.cutile_python_v2()).with_mangled_symbol(name)


def names_of(kernel: Any, arguments: Sequence[Any]) -> dict[int, str]:
    """The kernel's names of its tensors, by their storage's address."""
    names = inspect.signature(kernel._pyfunc).parameters
    return {
        leaf.untyped_storage().data_ptr(): name
        for name, argument in zip(names, arguments, strict=False)
        for leaf in tree_leaves(argument)
        if isinstance(leaf, torch.Tensor)
    }

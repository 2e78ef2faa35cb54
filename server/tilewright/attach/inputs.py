"""From calls of a function to the code that draws such inputs: shapes by named dimensions, dtypes, strides, values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

NAMES = ("N", "M", "K", "B", "H", "D", "E", "F")
"""Of dimensions, from the last one of the first tensor on."""
KEYS = ("backend", "weight", "dtype", "call")
"""Keys of a case that mean something else than an argument's value."""
CASES = 4
"""Taken at most from the calls, the largest first."""
CONTIGUOUS = "contiguous"
FILL_IN = "FILL IN"
"""Marks what a person has to write, since it cannot be drawn from what is known."""


@dataclass
class Tensor:
    """A tensor of a call: its shape, dtype, layout in memory (see `layout_of`), what its values are like, and the
    `content` of integers, as base64 of zlib's bytes."""

    shape: list[int]
    dtype: str
    layout: str = ""
    expanded: list[int] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    content: str = ""


@dataclass
class Call:
    """What a function was called with. `test`: the test that did so. `packed`: the code that puts those of its
    parameters together that are lists and tuples of tensors and values, or a dtype, by name. `written`: the tensors
    that hold its results, if it returns no others; None if that was not seen. `others`: the types of arguments that are
    none of these. `function`: its name."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]
    test: str = ""
    packed: dict[str, str] = field(default_factory=dict)
    written: list[str] | None = None
    others: dict[str, str] = field(default_factory=dict)
    function: str = ""

    @property
    def elements(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def has_integers(self) -> bool:
        """Whether the content of all its integers is known."""
        return all(
            one.content for one in self.tensors.values() if "float" not in one.dtype and "complex" not in one.dtype
        )

    @property
    def has_empty(self) -> bool:
        return any(not math.prod(tensor.shape) for tensor in self.tensors.values())


@dataclass
class Inputs:
    """How a task draws its inputs, and its cases, the largest call first."""

    shapes: dict[str, list[str]]
    """The names of each tensor's dimensions. What is always 0 stays a number."""
    cases: list[dict[str, Any]]
    sizes: dict[str, int]
    """Of the first case, by dimension."""
    empty: set[str]
    """Dimensions that are 0 in a call."""
    dtypes: dict[str, str]
    """What each tensor's dtype is in code."""
    lines: list[str]
    """The code that draws each tensor."""
    arguments: dict[str, Any]
    """The arguments that are no tensors and the same in all calls."""
    by_case: list[str]
    """Arguments that differ between calls, and are keys of a case."""
    tests: list[str]
    """The test behind each case."""
    others: list[dict[str, Any]] = field(default_factory=list)
    """Cases of further calls, the largest first."""
    packed: dict[str, str] = field(default_factory=dict)
    """See `Call`."""
    tied: dict[str, str] = field(default_factory=dict)
    """The dimension that an argument is in all calls."""
    recorded: list[dict[str, str]] = field(default_factory=list)
    """Of each case, the content of its integers, which are not drawn."""

    @property
    def names(self) -> list[str]:
        """Of all arguments that a task gives."""
        return [*self.shapes, *self.arguments, *self.by_case, *self.tied]

    @property
    def open(self) -> bool:
        """Whether a person has to write something."""
        return any(FILL_IN in line for line in self.lines)


def inputs_of(calls: Sequence[Call], named: dict[str, list[str]] | None = None, records: bool = False) -> Inputs:
    """How to draw inputs like those of `calls`, the first of which is the task's first case. Calls with other tensors
    are left out. `named`: the dimensions of each tensor, as names, numbers, or sums of these. `records`: integers are
    those of the calls, and calls without them are left out, unless all are."""
    first, alike = calls[0], alike_of(calls)
    if records and (whole := [call for call in alike if call.has_integers]):
        first, alike = whole[0], whole
    ranks = {name: len(tensor.shape) for name, tensor in first.tensors.items()}
    varying = [name for name in first.values if _is_key(name, alike)]
    fixed = {name: value for name, value in first.values.items() if name not in varying}
    alike = [call for call in alike if all(repr(call.values[name]) == repr(value) for name, value in fixed.items())]
    shapes = named or _named(alike, {*first.values, *first.tensors})
    tied = {name: dim for name in varying if (dim := _dimension_of(name, alike, shapes))}
    varying = [name for name in varying if name not in tied]
    main = next((tensor.dtype for tensor in first.tensors.values() if "float" in tensor.dtype), "float32")
    follows = [name for name, tensor in first.tensors.items() if tensor.dtype == main]
    layouts = [name for name in ranks if len({call.tensors[name].layout for call in alike}) > 1]
    recorded = list[dict[str, str]]()
    cases, tests, empty, sizes = list[dict[str, Any]](), list[str](), set[str](), dict[str, int]()
    for call in alike:
        own = {
            dim: size for name, dims in shapes.items() for dim, size in zip(dims, call.tensors[name].shape, strict=True)
        }
        own = {dim: size for dim, size in own.items() if dim.isidentifier()}
        empty |= {dim for dim, size in own.items() if not size}
        dtypes = {call.tensors[name].dtype for name in follows}
        same = all(call.tensors[n].dtype == tensor.dtype for n, tensor in first.tensors.items() if n not in follows)
        if (call.has_empty and not first.has_empty) or len(dtypes) > 1 or not same:
            continue
        case = {**own, "dtype": next(iter(dtypes), main)}
        case |= {f"{name}_layout": call.tensors[name].layout or CONTIGUOUS for name in layouts}
        case |= {name: call.values[name] for name in varying}
        content = {name: one.content for name, one in call.tensors.items() if records and one.content}
        if case not in cases:
            cases, tests, sizes = [*cases, case], [*tests, call.test], sizes or own
            recorded.append(content)
    for number, case in enumerate(cases if any(recorded) else []):
        case["call"] = number
    dtype = {name: "dtype" if name in follows else f"torch.{one.dtype}" for name, one in first.tensors.items()}
    lines = [
        line
        for name, tensor in first.tensors.items()
        for line in _drawn(name, tensor, shapes[name], sizes, dtype[name], name in layouts, bool(recorded[0].get(name)))
    ]
    most, others = cases[:CASES], cases[CASES:]
    return Inputs(
        shapes, most, sizes, empty, dtype, lines, fixed, varying, tests[:CASES], others, first.packed, tied, recorded
    )


def alike_of(calls: Sequence[Call]) -> list[Call]:
    """The calls with arguments like those of the first: tensors of the same ranks, values of the same names."""
    first = calls[0]
    ranks = {name: len(tensor.shape) for name, tensor in first.tensors.items()}
    return [
        call
        for call in calls
        if {name: len(tensor.shape) for name, tensor in call.tensors.items()} == ranks
        and call.values.keys() == first.values.keys()
        and call.packed == first.packed
        and all(call.tensors[name].expanded == tensor.expanded for name, tensor in first.tensors.items())
    ]


def _is_key(name: str, calls: Sequence[Call]) -> bool:
    """Whether an argument differs between calls, and can be a key of a case."""
    values = [call.values[name] for call in calls]
    written = all(isinstance(one, int | str) or (isinstance(one, float) and math.isfinite(one)) for one in values)
    return written and name not in KEYS and len(set(map(repr, values))) > 1


def _dimension_of(name: str, calls: Sequence[Call], shapes: dict[str, list[str]]) -> str:
    """The dimension that an integer argument is in all calls; empty if it is none."""
    for tensor, dims in shapes.items():
        for axis, dim in enumerate(dims):
            sizes = [call.tensors[tensor].shape[axis] for call in calls]
            if dim.isidentifier() and [call.values[name] for call in calls] == sizes:
                return dim
    return ""


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> str:
    """A layout as text: the axes in the order of memory, the unused elements after each, and the step between elements.
    It is empty for a contiguous tensor, and for strides that are none of these."""
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    expected = 1
    for axis in reversed(axes):
        if strides[axis] != expected:
            break
        expected *= shape[axis]
    else:
        return ""
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis] if axis in axes else 0, axis))
    inner = [axis for axis in order if axis in axes]
    if not inner or any(strides[axis] <= 0 for axis in inner):
        return ""
    step, pads = strides[inner[-1]], dict.fromkeys(order, 0)
    unit = step
    for outer, axis in zip(reversed(inner[:-1]), reversed(inner[1:]), strict=True):
        if strides[outer] % unit or strides[outer] // unit < shape[axis]:
            return ""
        pads[axis] = strides[outer] // unit - shape[axis]
        unit = strides[outer]
    return f"{','.join(map(str, order))}:{','.join(str(pads[axis]) for axis in order)}:{step}"


def _named(calls: Sequence[Call], taken: set[str]) -> dict[str, list[str]]:
    """Names for dimensions: those of different tensors that are equal in all calls are the same dimension."""
    known: dict[str, tuple[int, ...]] = {}
    names = [name for name in NAMES if name not in taken]
    shapes: dict[str, list[str]] = {}
    for tensor in calls[0].tensors:
        own: list[str] = []
        for axis in reversed(range(len(calls[0].tensors[tensor].shape))):
            sizes = tuple(call.tensors[tensor].shape[axis] for call in calls)
            if not any(sizes):
                own.insert(0, "0")
                continue
            name = next((name for name, there in known.items() if there == sizes and name not in own), "")
            if not name:
                name = names[len(known)] if len(known) < len(names) else f"D{len(known)}"
                known[name] = sizes
            own.insert(0, name)
        shapes[tensor] = own
    return shapes


def _drawn(
    name: str, tensor: Tensor, dims: list[str], sizes: dict[str, int], dtype: str, by_case: bool, recorded: bool
) -> list[str]:
    """The lines that draw one tensor, or take what was `recorded`."""
    shape = ", ".join("1" if axis in tensor.expanded else dim for axis, dim in enumerate(dims))
    where = "generator=generator, device=generator.device"
    size = f"({shape}{',' * (len(dims) == 1)})"
    values = tensor.values
    lines = []
    if recorded:
        lines.append(f'{name} = recorded(case, "{name}", {size}, {dtype}).to(generator.device)')
    elif "fill" in values:
        lines.append(f"{name} = torch.zeros({size}, dtype={dtype}, device=generator.device)")
        lines[-1] += f"  # {FILL_IN}: {values['fill']}"
    elif "share" in values:
        lines.append(f"{name} = torch.rand({size}, {where}) < {values['share']:.3g}")
    elif "probabilities" in values:
        lines.append(f"{name} = torch.softmax(torch.randn({size}, {where}), dim=-1).to({dtype})")
    elif "rises_to" in values:
        rise = f"torch.linspace(0, {values['rises_to']}, {shape}, device=generator.device)"
        lines.append(f"{name} = {rise}.round().to({dtype})")
    elif "below" in values:
        lines.append(f"{name} = torch.randint(0, {values['below']}, {size}, {where}).to({dtype})")
    elif "arange" in values:
        lines.append(f"{name} = torch.arange({shape}, device=generator.device).to({dtype})")
    elif "low" in values:
        low, high = values["low"], values["high"]
        top = min((dim for dim in sizes if high < sizes[dim] <= 2 * high), key=lambda dim: sizes[dim], default="")
        lines.append(f"{name} = torch.randint({low}, {top or high + 1}, {size}, {where}).to({dtype})")
        if "special" in values:
            rare = f"torch.rand({size}, {where}) < {values['special_share']:.3g}"
            lines.append(f"{name} = torch.where({rare}, {values['special']}, {name}).to({dtype})")
    else:
        least, most = values.get("least", -1.0), values.get("most", 1.0)
        positive = least >= 0 and most > 0
        draw = "torch.rand" if positive and most <= 1 else "torch.randn"
        lines.append(f"{name} = {draw}({size}, {where}){'.abs()' * (positive and most > 1)}.to({dtype})")
    if tensor.expanded:
        lines.append(f"{name} = {name}.expand({', '.join(dims)})")
    elif by_case or tensor.layout:
        layout = f'case["{name}_layout"]' if by_case else f'"{tensor.layout}"'
        lines.append(f"{name} = laid_out({name}, {layout})")
    return lines

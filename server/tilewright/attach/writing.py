"""The files of a native task around one function, as text."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.attach.inputs import Inputs


def task_toml(
    head: Mapping[str, Any],
    cases: list[dict[str, Any]],
    hidden: list[dict[str, Any]],
    excluded: Mapping[str, str],
    remarks: list[str],
    tests: Sequence[str] = (),
) -> str:
    """The text of task.toml: its first keys, its tables, and remarks on the hidden ranges as comments. `tests`: the
    command of the repository's own."""

    def table(name: str, entry: dict[str, Any]) -> str:
        return f"[[{name}]]\n" + "".join(f"{key} = {_inline(value)}\n" for key, value in sorted(entry.items()))

    keys = "\n".join(f"{key} = {quoted(value)}" for key, value in head.items())
    parts = [f"# Written by `tilewright init`.\n{keys}\n"]
    if excluded:
        reason = f"the function as it was found fails on them: {'; '.join(dict.fromkeys(excluded.values()))}"
        parts.append(f"[values]\nexclude = {quoted([*excluded])}\nreason = {quoted(reason)}\n")
    if tests:
        parts.append(f"[tests]\ncommand = {quoted([*tests])}\n")
    parts += [table("cases", entry) for entry in cases]
    parts.append("".join(f"# {remark}\n" for remark in remarks))
    return "\n".join([*filter(None, parts), *(table("hidden", entry) for entry in hidden)])


def quoted(value: object) -> str:
    """A value in TOML, of which JSON's strings, numbers and lists are a part."""
    return json.dumps(value, ensure_ascii=False)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {quoted(part)}" for key, part in value.items()) + " }"
    return quoted(value)


def _literal(value: Any) -> str:
    """A value in Python, where infinity and NaN have no literals."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def frozen_copy(content: bytes, path: str, module: str) -> str:
    """The module's source with its relative imports spelt out, so that it can be imported from another folder."""
    text = content.decode("utf-8")
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            origin = ".".join(filter(None, (base, node.module or "")))
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = re.sub(r"from\s+\.+\s*[\w.]*\s+import", f"from {origin} import", line, count=1)
    note = f"# A copy of {path} as `tilewright init` found it: the reference. It stays as it is.\n"
    return note + "".join(lines)


def adapter_py(entry: str, inputs: Inputs) -> str:
    """The text of adapter.py: the function with its arguments put together from what a task can give."""
    module, _, function = entry.partition(":")
    return f'''"""Calls {entry} with its arguments put together. Written by `tilewright init`; it stays as it is."""

import torch  # noqa: F401
from {module} import {function} as wrapped


def {function}({", ".join(inputs.names)}):
    return wrapped({packed_call(inputs)})
'''


def packed_call(inputs: Inputs) -> str:
    """The arguments of the function, as code over the names of what a task gives."""
    pieces = set(re.findall(r"[^\W\d]\w*", " ".join(inputs.packed.values())))
    plain = [name for name in inputs.names if name not in pieces]
    return ", ".join([*(f"{name}={name}" for name in plain), *(f"{n}={text}" for n, text in inputs.packed.items())])


LAID_OUT = '''

def laid_out(tensor, layout):
    """The same values, laid out in memory as in the call: axes from the outermost in, gaps after them, the step."""
    if layout == "contiguous":
        return tensor
    order, gaps, step = ([int(number) for number in part.split(",")] for part in layout.split(":"))
    room = tensor.new_zeros([tensor.shape[axis] + gap for axis, gap in zip(order, gaps)] + step)[..., 0]
    view = room[tuple(slice(tensor.shape[axis]) for axis in order)]
    view = view.permute([order.index(axis) for axis in range(tensor.ndim)])
    return view.copy_(tensor)
'''


RECORDED = '''
CALLS = json.loads(Path(__file__).with_name("calls.json").read_text(encoding="utf-8"))


def recorded(case, name, shape, dtype):
    """The integers that a test's own call had."""
    content = bytearray(zlib.decompress(base64.b64decode(CALLS[case["call"]][name])))
    return torch.frombuffer(content, dtype=dtype).reshape(shape) if content else torch.empty(shape, dtype=dtype)

'''
COUNTED = """\
    # Each input is read once, each output that is no view of one written once; flops of matmuls, or one an element.
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    flops = 0
    try:
        with FlopCounterMode(display=False) as counted:
            outputs = reference(**inputs)
        flops = counted.get_total_flops()
        outputs = outputs if isinstance(outputs, tuple | list) else [outputs]
        given = [value if value._base is None else value._base for value in tensors]
        for one in outputs:
            if isinstance(one, torch.Tensor) and not any((one if one._base is None else one._base) is x for x in given):
                tensors.append(one)
    except Exception:  # a reference that looks at values
        pass
    elements = sum(tensor.numel() for tensor in tensors)
    moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return Work(bytes=moved, flops=flops or elements, dtype=case["dtype"] if flops else "float32")
"""
"""The end of `work`, on inputs of the device meta."""


def task_py(call: str, imported: str, inputs: Inputs) -> str:
    """The text of task.py: inputs drawn as in the calls; unless `call` is empty, the reference by it, and the
    work by counting."""
    dims = [*dict.fromkeys(dim for shape in inputs.shapes.values() for dim in shape if dim.isidentifier())]
    drawn = "\n".join(f"    {line}" for line in inputs.lines)
    arguments = [f'"{name}": {name}' for name in inputs.shapes]
    arguments += [f'"{name}": {_literal(value)}' for name, value in inputs.arguments.items()]
    arguments += [f'"{name}": case["{name}"]' for name in inputs.by_case]
    arguments += [f'"{name}": {dim}' for name, dim in inputs.tied.items()]
    unpacked = "".join(f'    {dim} = case["{dim}"]\n' for dim in dims) + '    dtype = getattr(torch, case["dtype"])\n'
    laid_out = LAID_OUT * any("laid_out(" in line for line in inputs.lines)
    make_inputs = f"""def make_inputs(case, generator):
{unpacked}{drawn}
    return {{{", ".join(arguments)}}}
"""
    if not call:
        reading = any(inputs.recorded)
        imports = "import base64\nimport json\nimport zlib\nfrom pathlib import Path\n\n" * reading + "import torch\n"
        helpers = f"{laid_out}\n{RECORDED * reading}"
        return f'"""Inputs like those of the tests\' calls."""\n\n{imports}{helpers}\n{make_inputs}'
    shapes = "".join(
        f'        "{name}": torch.empty(({", ".join(dims)}{"," * (len(dims) == 1)}), dtype={inputs.dtypes[name]}, '
        'device="meta"),\n'
        for name, dims in inputs.shapes.items()
    )
    others = "".join(f"        {argument},\n" for argument in arguments[len(inputs.shapes) :])
    taken, given = "**inputs", "**inputs"
    if inputs.packed:
        taken = ", ".join(inputs.names)
        given = packed_call(inputs)
    return f'''"""Inputs, reference and work. The reference is called in float64."""

{imported}
import torch
from torch.utils.flop_counter import FlopCounterMode

from tilewright.task import Work
{laid_out}

{make_inputs}

def reference({taken}):
    return {call}({given})


def work(case):
{unpacked}    inputs = {{
{shapes}{others}    }}
{COUNTED}'''

"""The files of a native task around one function, as text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from tilewright.attach.reading import quoted

Table = Mapping[str, Any]


def task_toml(
    head: Mapping[str, Any],
    cases: list[dict[str, Any]],
    hidden: list[dict[str, Any]],
    excluded: Mapping[str, str],
    remarks: list[str],
) -> str:
    """The text of task.toml: its first keys, its tables, and remarks on the hidden ranges as comments."""

    def table(name: str, entry: dict[str, Any]) -> str:
        lines = "\n".join(f"{key} = {_inline(value)}" for key, value in sorted(entry.items()))
        return f"[[{name}]]\n{lines}\n"

    keys = "\n".join(f"{key} = {quoted(value)}" for key, value in head.items())
    parts = [f"# Written by `tilewright init`.\n{keys}\n"]
    if excluded:
        reason = f"the function as it was found fails on them: {'; '.join(dict.fromkeys(excluded.values()))}"
        parts.append(f"[values]\nexclude = {quoted([*excluded])}\nreason = {quoted(reason)}\n")
    parts += [table("cases", entry) for entry in cases]
    if remarks:
        parts.append("".join(f"# {remark}\n" for remark in remarks).rstrip("\n") + ("\n" if not hidden else ""))
    tables = [table("hidden", entry) for entry in hidden]
    if remarks and tables:
        tables[0] = f"{parts.pop()}\n{tables[0]}"
    return "\n".join([*parts, *tables])


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {quoted(part)}" for key, part in value.items()) + " }"
    return quoted(value)


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
    said = f"# A copy of {path} as `tilewright init` found it: the reference. It stays as it is.\n"
    return said + "".join(lines)


def task_py(function: str, shapes: dict[str, list[str]], arguments: dict[str, Any]) -> str:
    """The text of task.py: inputs by shape, the reference by the frozen copy, and the work by counting."""
    return f'''"""Inputs, reference and work: the reference is a frozen copy of the function, called in float64."""

import frozen
import torch
from torch.utils.flop_counter import FlopCounterMode

from tilewright.task import Work

SHAPES = {shapes!r}
ARGUMENTS = {arguments!r}


def make_inputs(case, generator):
    dtype = getattr(torch, case["dtype"])
    drawn = {{
        name: torch.randn([case[dim] for dim in dims], generator=generator, device=generator.device).to(dtype)
        for name, dims in SHAPES.items()
    }}
    return drawn | ARGUMENTS


def reference(**inputs):
    return frozen.{function}(**inputs)


def work(case):
    """Each input read once, each output written once; flops of matmuls, or one for each element."""
    dtype = getattr(torch, case["dtype"])
    tensors = {{
        name: torch.empty([case[dim] for dim in dims], dtype=dtype, device="meta") for name, dims in SHAPES.items()
    }}
    with FlopCounterMode(display=False) as counted:
        made = frozen.{function}(**tensors, **ARGUMENTS)
    tensors_in_and_out = [*tensors.values(), *(made if isinstance(made, tuple | list) else [made])]
    elements = sum(one.numel() for one in tensors_in_and_out)
    flops = counted.get_total_flops()
    return Work(
        bytes=sum(one.numel() * one.element_size() for one in tensors_in_and_out),
        flops=flops or elements,
        dtype=case["dtype"] if flops else "float32",
    )
'''

"""Wrong kernels made from right ones: every change of one place of a module's source that its kind knows.

Tiles off by one, bounds and masks that are gone or wrong, swapped axes and operators, dropped terms, other dtypes.
"""

from __future__ import annotations

import ast
import copy
import difflib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SWAPS = {
    "ct.max": "ct.min", "ct.sum": "ct.max", "ct.maximum": "ct.minimum", "ct.exp": "ct.exp2", "ct.rsqrt": "ct.sqrt",
    "ct.log": "ct.log2", "ct.zeros": "ct.ones",
}  # fmt: skip
OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "%", ast.Mod: "//"}
COMPARISONS = {ast.Lt: ["<=", ">"], ast.LtE: ["<"], ast.Gt: [">=", "<"], ast.Eq: ["!=", ">="]}


@dataclass(frozen=True)
class Mutant:
    """One change of a kernel's source: the kind, the line, and the code before and after."""

    kernel: str
    kind: str
    line: int
    before: str
    after: str
    source: str


def mutants(kernel: str, source: str) -> list[Mutant]:
    """Every mutant of a module's functions, in order."""
    tree = ast.parse(source)
    plain = ast.unparse(tree)
    found: dict[str, Mutant] = {}
    for number, (_, _, _, node, inside) in enumerate(_sites(tree)):
        for kind, after in _variants(node, inside):
            changed = copy.deepcopy(tree)
            parent, field, index, _, _ = next(itertools.islice(_sites(changed), number, None))
            new: Any = ast.parse(after).body[0]
            new = new if isinstance(node, ast.stmt) else new.value
            if index is None:
                setattr(parent, field, new)
            else:
                getattr(parent, field)[index] = new
            text = ast.unparse(changed)
            if text != plain and text not in found:
                was, now = _changed(plain, text)
                found[text] = Mutant(kernel, kind, getattr(node, "lineno", 0), was, now, text)
    return list(found.values())


def _changed(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, before and after, stripped."""
    lines = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return tuple(" / ".join(line[2:].strip() for line in lines if line.startswith(sign)) for sign in "-+")


def _sites(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, Any, dict[str, Any]]]:
    """(parent, field, index, node, surroundings) of every statement and expression in the module's functions."""
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef):
            continue
        indices = {
            name.id
            for call in ast.walk(function)
            if isinstance(call, ast.keyword) and call.arg == "index"
            for name in ast.walk(call.value)
            if isinstance(name, ast.Name)
        }
        inside = {"kernel": bool(function.decorator_list), "indices": sorted(indices), "loop": False, "keyword": ""}
        for index, statement in enumerate(function.body):
            yield from _under(function, "body", index, statement, inside)


def _under(
    parent: ast.AST, field: str, index: int | None, node: ast.AST, inside: dict[str, Any]
) -> Iterator[tuple[ast.AST, str, int | None, Any, dict[str, Any]]]:
    if isinstance(node, ast.expr | ast.stmt):
        yield parent, field, index, node, inside
    inner = dict(inside)
    if isinstance(node, ast.For):
        inner["loop"] = True
    if isinstance(node, ast.keyword):
        inner["keyword"] = node.arg
    for name, value in ast.iter_fields(node):
        if name in ("targets", "target", "ctx", "func", "op", "ops"):
            if name == "func" and isinstance(value, ast.Attribute) and value.attr in ("astype", "reshape"):
                yield from _under(value, "value", None, value.value, inner)
            continue
        for place, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                yield from _under(node, name, place, child, inner)


def _variants(node: Any, inside: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, the code instead) of every change to one statement or expression."""
    match node:
        case ast.Assign() if inside["kernel"] and inside["loop"]:
            target, value = ast.unparse(node.targets[0]), ast.unparse(node.value)
            for dtype in ("bfloat16", "float16"):
                yield "precision", f"{target} = ({value}).astype(ct.{dtype}).astype(ct.float32)"
            yield "dropped statement", "pass"
        case ast.Assign() | ast.Expr() if inside["kernel"]:
            yield "dropped statement", "pass"
        case ast.Constant(value=bool()):
            return  # keepdims and the like: no change, or one that does not compile
        case ast.Constant(value=int()):
            kind = "axis" if inside["keyword"] == "axis" else "index" if inside["keyword"] == "index" else "constant"
            yield kind, str(node.value + 1)
            if node.value:
                yield kind, str(node.value - 1)
        case ast.Constant(value=float()):
            yield "constant", str(node.value * 1.01 if node.value else 1.0)
            yield "constant", str(node.value * 2 if node.value else -1.0)
        case ast.BinOp():
            left, right = ast.unparse(node.left), ast.unparse(node.right)
            if type(node.op) in OPERATORS:
                yield "operator", f"({left}) {OPERATORS[type(node.op)]} ({right})"
            yield "dropped term", left
            yield "dropped term", right
        case ast.Compare():
            for other in COMPARISONS.get(type(node.ops[0]), []):
                yield "comparison", f"({ast.unparse(node.left)}) {other} ({ast.unparse(node.comparators[0])})"
        case ast.Subscript(slice=ast.Tuple(elts=[first, second])) if inside["kernel"]:
            places = [ast.unparse(ast.Subscript(ast.Name("x"), part))[2:-1] for part in (second, first)]
            yield "swapped axes", f"{ast.unparse(node.value)}[{places[0]}, {places[1]}]"
        case ast.Tuple() if 2 <= len(node.elts) <= 4 and not any(isinstance(part, ast.Slice) for part in node.elts):
            parts = [ast.unparse(part) for part in node.elts]
            for first in range(len(parts) - 1):
                swapped = [*parts[:first], parts[first + 1], parts[first], *parts[first + 2 :]]
                yield "swapped axes", f"({', '.join(swapped)})"
        case ast.Name() if inside["kernel"] and inside["keyword"] == "index":
            for other in inside["indices"]:
                if other != node.id:
                    yield "index", other
            yield "index", "0"
        case ast.Name(id="ZERO"):
            yield "padding", "ct.PaddingMode.NEG_INF"
            yield "padding", "ct.PaddingMode.NAN"
        case ast.Attribute():
            text = ast.unparse(node)
            if text.startswith("ct.PaddingMode."):
                yield "padding", "ct.PaddingMode.ZERO" if "INF" in text else "ct.PaddingMode.NEG_INF"
                yield "padding", "ct.PaddingMode.NAN"
            if text == "ct.float32":
                yield "precision", "ct.float16"
                yield "precision", "ct.bfloat16"
        case ast.Call():
            yield from _of_call(node, ast.unparse(node.func), [ast.unparse(part) for part in node.args])


def _of_call(node: ast.Call, name: str, parts: list[str]) -> Iterator[tuple[str, str]]:
    text = ast.unparse(node)
    if name in SWAPS:
        yield "operator", SWAPS[name] + text.removeprefix(name)
    if name == "ct.bid":
        yield "index", f"ct.bid({1 - int(parts[0])})" if parts[0] in "01" else "0"
        yield "index", f"{text} + 1"
        yield "race", f"{text} // 2"
        yield "race", f"{text} * 0"
    elif name == "ct.cdiv":
        yield "grid", f"({parts[0]}) // ({parts[1]})"
        yield "grid", f"{text} - 1"
    elif name == "range":
        yield "loop", f"range(({parts[0]}) - 1)"
        yield "loop", f"range(1, {parts[0]})"
        yield "loop", f"range(({parts[0]}) + 1)"
        yield "loop", f"range(0, {parts[0]}, 2)"
    elif name == "ct.where":
        yield "mask", f"ct.where({parts[0]}, {parts[2]}, {parts[1]})"
        yield "mask", parts[1]
    elif name == "ct.mma":
        yield "accumulator", f"ct.mma({parts[0]}, {parts[1]}, ({parts[2]}) * 0.0)"
        yield "accumulator", f"({text}) + ({parts[2]})"
    elif name in ("ct.transpose", "ct.exp", "ct.rsqrt", "ct.log"):
        yield "dropped function", parts[0]
    elif name in ("ct.sum", "ct.max") and len(parts) == 1:
        for dtype in ("bfloat16", "float16"):
            rounded = f"{name}(({parts[0]}).astype(ct.{dtype}){text.removeprefix(f'{name}({parts[0]}')}"
            yield "precision", rounded.replace(f"ct.{dtype})", f"ct.{dtype}).astype(ct.float32)", 1)
    elif name == "ct.store":
        yield "dropped statement", "None"
    elif name.endswith(".astype"):
        yield "cast", name.removesuffix(".astype")

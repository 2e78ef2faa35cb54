"""Edits that leave what a kernel computes as it is: the text of a Python file before and after.

`TEXT` are the kinds that leave the syntax tree as it is, `TREE` those that change it.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator

Source = random.Random
Span = tuple[int, int]
"""Where a piece begins and ends, in characters of the text."""

IMPURE = re.compile(r"atomic|launch|store|copy_|rand|zero_|fill_|add_")
"""Calls that do more than give a value."""


class Module:
    """A Python file: its text, its tree, and where each node lies."""

    def __init__(self, text: str) -> None:
        assert text.isascii(), "columns are counted in bytes"
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def span(self, node: ast.stmt | ast.expr) -> Span:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: ast.stmt | ast.expr) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def replaced(self, *pieces: tuple[Span, str]) -> str:
        """The text with other pieces at these places."""
        text = self.text
        for (start, end), piece in sorted(pieces, reverse=True):
            text = text[:start] + piece + text[end:]
        return text

    def above(self, node: ast.stmt, line: str) -> str:
        """The text with a line above a statement, as far indented."""
        place = self._starts[node.lineno - 1]
        return self.replaced(((place, place), f"{' ' * node.col_offset}{line}\n"))

    @property
    def functions(self) -> list[ast.FunctionDef]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]

    @property
    def statements(self) -> list[ast.stmt]:
        """Those of functions, but for docstrings."""
        return [one for function in self.functions for one in _body(function)]

    @property
    def assignments(self) -> list[ast.Assign]:
        """Those of functions to one name or several."""
        return [one for one in self.statements if isinstance(one, ast.Assign)]


def _body(function: ast.FunctionDef | ast.Module) -> list[ast.stmt]:
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def _comment(module: Module) -> Iterator[str]:
    for one in module.statements:
        yield module.above(one, "# the same as before")


def _blank(module: Module) -> Iterator[str]:
    for one in module.statements:
        yield module.above(one, "").replace(" " * one.col_offset + "\n", "\n")


def _parentheses(module: Module) -> Iterator[str]:
    for one in module.assignments:
        yield module.replaced((module.span(one.value), f"({module.of(one.value)})"))


def _rename(module: Module) -> Iterator[str]:
    """Another name for a local variable."""
    for function in module.functions:
        if any(isinstance(one, ast.JoinedStr | ast.Global | ast.Lambda) for one in ast.walk(function)):
            continue
        parameters = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        for name in sorted(_names(function, ast.Store) - parameters):
            uses = [one for one in ast.walk(function) if isinstance(one, ast.Name) and one.id == name]
            yield module.replaced(*((module.span(one), f"{name}_here") for one in uses))


def _reorder(module: Module) -> Iterator[str]:
    """Two neighbouring assignments, of which neither needs the other, in the other order."""
    for function in module.functions:
        for first, second in zip(_body(function), _body(function)[1:], strict=False):
            if not (isinstance(first, ast.Assign) and isinstance(second, ast.Assign)):
                continue
            stored = [_names(one, ast.Store) for one in (first, second)]
            used = [_names(one, ast.Load) for one in (first, second)]
            plain = all(isinstance(one, ast.Name | ast.Tuple) for one in (*first.targets, *second.targets))
            apart = not (stored[0] & (stored[1] | used[1]) or stored[1] & used[0])
            if plain and apart and not IMPURE.search(module.of(first) + module.of(second)):
                yield module.replaced((module.span(first), module.of(second)), (module.span(second), module.of(first)))


def _docstring(module: Module) -> Iterator[str]:
    for function in module.functions:
        if ast.get_docstring(function) is None:
            yield module.above(function.body[0], f'"""What {function.name} computes."""')


def _import(module: Module) -> Iterator[str]:
    yield module.above(_body(module.tree)[0], "import math")


def _swap(module: Module) -> Iterator[str]:
    """The operands of a sum or product in the other order."""
    for function in module.functions:
        for node in ast.walk(function):
            if not isinstance(node, ast.BinOp) or module.of(node.left) == module.of(node.right):
                continue
            if isinstance(node.op, ast.Mult | ast.Add):
                sign = "*" if isinstance(node.op, ast.Mult) else "+"
                piece = f"({module.of(node.right)}) {sign} ({module.of(node.left)})"
                yield module.replaced((module.span(node), f"({piece})"))


def _named(module: Module) -> Iterator[str]:
    """A name for the value that a function returns."""
    for one in module.statements:
        if isinstance(one, ast.Return) and one.value is not None:
            margin = " " * one.col_offset
            yield module.replaced((module.span(one), f"answer = {module.of(one.value)}\n{margin}return answer"))


Kind = Callable[[Module], Iterator[str]]
TEXT: dict[str, Kind] = {"comment": _comment, "blank line": _blank, "parentheses": _parentheses}
TREE: dict[str, Kind] = {
    "renamed variable": _rename,
    "reordered statements": _reorder,
    "docstring": _docstring,
    "unused import": _import,
    "swapped operands": _swap,
    "named result": _named,
}


def edited(text: str, kinds: dict[str, Kind], count: int, source: Source) -> list[tuple[str, str]]:
    """`count` edits of a file, each with its kind; the kinds in turn, as far as each fits the file."""
    module, before = Module(text), ast.dump(ast.parse(text))
    each = {kind: source.sample(texts, len(texts)) for kind in kinds if (texts := [*kinds[kind](module)])}
    turn = source.sample([*each], len(each))
    chosen: list[tuple[str, str]] = []
    while len(chosen) < count:
        chosen += [(kind, each[kind].pop()) for kind in turn if each[kind]]
    for kind, after in chosen:
        assert after != text and (ast.dump(ast.parse(after)) == before) == (kind in TEXT), f"{kind}: {after}"
    return chosen[:count]

"""From a function to the kernels that it launches, through the repository's own imports. Reads source, runs none."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.repository import Files

MARKS = {"cuda.tile.kernel": "cutile", "triton.jit": "triton", "triton.runtime.jit": "triton"}
"""What makes a function a kernel, by its full name, and the frontend that it belongs to."""
_USUAL = {"ct.kernel": "cutile", "triton.jit": "triton", "tl.jit": "triton"}
"""How they are usually written: it counts where the name is imported from the repository: `from .compat import ct`."""
_LOOKUPS = {"globals", "getattr", "vars", "eval", "exec", "__import__", "import_module", "torch.ops"}
"""What finds a function by other means than a name in the source."""


class Kernel(NamedTuple):
    """A file with a kernel, and the kernel's frontend."""

    path: str
    frontend: str


@dataclass
class _Module:
    """What a file's names stand for: an import's full name, or the statements that define them."""

    path: str
    imported: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    defined: dict[str, list[ast.stmt]] = field(default_factory=dict)


def imports_of(tree: ast.Module, module: str, path: str) -> Iterator[tuple[str, str]]:
    """Each name that a file imports, wherever it does, and its full name; `*` for all names of a module."""
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module or "")))
            for alias in node.names:
                yield (alias.asname or alias.name, origin if alias.name == "*" else f"{origin}.{alias.name}")


def frontend_of(node: ast.expr, imported: Mapping[str, str]) -> str:
    """The frontend whose kernel a decorator, or a call that wraps a function, makes; empty for any other."""
    written = _dotted(node)
    first, _, rest = written.partition(".")
    full = ".".join(filter(None, (imported.get(first, first), rest)))
    return MARKS.get(full) or _USUAL.get(written, "")


def kernels_of(files: Files, modules: Mapping[str, str], path: str, function: str) -> list[Kernel]:
    """The files with the kernels that the function in `path` uses, itself or through what it calls, nearest first.

    `modules` are the repository's, each with its file. Where the function names no kernel, and calls something that no
    name in the source tells, all of its file count.
    """
    known: dict[str, _Module] = {}
    paths = {file: module for module, file in modules.items()}

    def module_of(name: str) -> _Module:
        if name not in known:
            known[name] = _read(files[modules[name]], name, modules[name])
        return known[name]

    found: dict[Kernel, None] = {}
    own = module_of(paths[path])
    unnamed = function not in (*own.defined, *own.imported)
    seen: set[tuple[str, str]] = set()
    queue = [(paths[path], function)]
    while queue:
        place = queue.pop(0)
        name, wanted = place
        if place in seen:
            continue
        seen.add(place)
        here = module_of(name)
        for statement in here.defined.get(wanted, []):
            found |= {Kernel(here.path, frontend): None for frontend in _made(statement, here)}
            unnamed = unnamed or _calls_unnamed(statement)
            for used in _used(statement):
                first, _, rest = used.partition(".")
                if first in here.defined:
                    queue.append((name, first))
                if first in here.imported:
                    queue += _resolved(f"{here.imported[first]}.{rest}".rstrip("."), modules)
                queue += [(star, first) for star in here.stars if star in modules]
        if wanted not in here.defined:  # handed on by an __init__.py
            queue += _resolved(here.imported.get(wanted, ""), modules)
            queue += [(star, wanted) for star in here.stars if star in modules]
    if unnamed and not found:
        found = {
            Kernel(path, frontend): None
            for statements in own.defined.values()
            for statement in statements
            for frontend in _made(statement, own)
        }
    return list(found)


def _read(content: bytes, name: str, path: str) -> _Module:
    found = _Module(path)
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return found
    for alias, full in imports_of(tree, name, path):
        if alias == "*":
            found.stars.append(full)
        else:
            found.imported[alias] = full
    found.defined = defined_in(tree)
    return found


def defined_in(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """The names that a module defines at its top level, below `if`, `try` and `with` too, with their statements."""
    found: dict[str, list[ast.stmt]] = {}
    queue: list[ast.stmt] = list(tree.body)
    while queue:
        statement = queue.pop(0)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        found.setdefault(node.id, []).append(statement)
        else:  # if, try, with
            for child in ast.iter_child_nodes(statement):
                inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
                queue += [one for one in inner if isinstance(one, ast.stmt)]
    return found


def _made(statement: ast.stmt, module: _Module) -> Iterator[str]:
    """The frontends of the kernels that a statement defines: by decorators, or by calls such as triton.jit(f)."""
    for node in ast.walk(statement):
        marks: list[ast.expr] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = node.decorator_list
        elif isinstance(node, ast.Call):
            marks = [node.func]
        yield from filter(None, (frontend_of(mark, module.imported) for mark in marks))


def _used(statement: ast.stmt) -> Iterator[str]:
    """The names in a statement, with the attributes that are taken of them."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name | ast.Attribute) and (name := _dotted(node)):
            yield name


def _calls_unnamed(statement: ast.stmt) -> bool:
    """Whether a statement calls what it takes from a table, from another call, or by a name made at run time."""
    stored = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    called = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return not _LOOKUPS.isdisjoint(name.removeprefix("importlib.") for name in _used(statement)) or any(
        isinstance(one, ast.Subscript | ast.Call) or (isinstance(one, ast.Name) and one.id in stored) for one in called
    )


def _resolved(full: str, modules: Mapping[str, str]) -> list[tuple[str, str]]:
    """The module of the repository, and the name in it, that a full name stands for; empty for another's."""
    parts = full.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if (module := ".".join(parts[:length])) in modules:
            return [(module, parts[length])]
    return []


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""

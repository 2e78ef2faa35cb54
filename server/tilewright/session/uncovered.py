"""What an edit changes of the editable files: nothing but comments, or functions that no case ran."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from tilewright.evaluation.results import CorrectnessResult
from tilewright.repository import Files
from tilewright.text import few

SHOWN = 3
UNKNOWN = "whether a case ran all that the edit changes"
Function = ast.FunctionDef | ast.AsyncFunctionDef


def same_syntax(before: Files, after: Files) -> bool:
    """Whether two versions differ in comments and layout alone. Files that are no Python have to be equal."""
    return before.keys() == after.keys() and all(_alike(before[path], after[path]) for path in before)


def _alike(before: bytes, after: bytes) -> bool:
    if before == after:
        return True
    trees = _parsed(before), _parsed(after)
    return None not in trees and len({ast.dump(tree) for tree in trees if tree is not None}) == 1


def with_uncovered(result: CorrectnessResult, before: Files, after: Files) -> CorrectnessResult:
    """The result of a check of `after`, with a note on what differs from `before` there and did not run."""
    if result.ran is None:
        return result.model_copy(update={"unseen": [*result.unseen, UNKNOWN] if result.unseen else []})
    if not (names := not_run(before, after, result.ran)):
        return result
    note = f"no case ran {few(names, SHOWN)}, which the edit changes"
    return result.model_copy(update={"notes": [note, *result.notes]})


def not_run(before: Files, after: Files, ran: Collection[str]) -> list[str]:
    """The names of the functions of `after` that differ from `before` and are not in `ran` (PATH:NAME)."""
    found: list[str] = []
    for path, content in after.items():
        old, new = _functions(before.get(path, b"")), _functions(content)
        here = {one.rpartition(":")[2] for one in ran if one.rpartition(":")[0] == path} | _called(content)
        changed = [name for name, dump in new.items() if old.get(name) != dump]
        # Triton's interpreter knows a kernel inside a function by its last name alone
        found += [name for name in changed if not {name, name.rpartition(".")[2]} & here]
    return found


def _functions(content: bytes) -> dict[str, str]:
    """The syntax tree of each function, without its docstring and what it holds of other functions, and those of the
    module's constants that it names."""
    tree = _parsed(content)
    if tree is None:
        return {}
    constants: dict[str, str] = {}
    for one in tree.body:
        if isinstance(one, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
            constants |= {name: constants.get(name, "") + ast.dump(one) for name in names}
    return dict(_below(tree, "", constants))


def _below(node: ast.AST, prefix: str, constants: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            yield from _below(child, f"{prefix}{child.name}.", constants)
        else:
            yield from _below(child, prefix, constants)
        if isinstance(child, Function):
            if ast.get_docstring(child, clean=False) is not None:
                child.body = child.body[1:]
            inner = [one for one in child.body if not isinstance(one, Function | ast.ClassDef)]
            parts = [*child.decorator_list, child.args, *inner]
            named = {node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)}
            known = [constants[name] for name in sorted(named & constants.keys())]
            yield f"{prefix}{child.name}", " ".join([*map(ast.dump, parts), *known])


def _called(content: bytes) -> set[str]:
    """The functions that run while the module is imported."""
    tree = _parsed(content)
    outside = [one for one in getattr(tree, "body", []) if not isinstance(one, Function | ast.ClassDef)]
    calls = [node.func for one in outside for node in ast.walk(one) if isinstance(node, ast.Call)]
    return {call.id for call in calls if isinstance(call, ast.Name)}


def _parsed(content: bytes) -> ast.Module | None:
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):  # no Python
        return None

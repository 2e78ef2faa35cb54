"""The knobs of a candidate, found in its source, and the source that a config makes of it.

A config is realised as an edit: module-level constants get other values, `@ct.kernel` other hints. What is measured is
then exactly what would be committed, and every config is a candidate like any other: a snapshot of its own, no patched
launches.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.errors import UsageError

if TYPE_CHECKING:
    from tilewright.repository import Files

Value = int | float | bool | str
Config = Mapping[str, Value]
"""What a config sets, by name: constants, keyword defaults of the entry point, and hints; what it leaves out stays."""

Setting = Value | None
"""A value as it is put into a source; None leaves a hint to the compiler."""
Edit = tuple[int, int, str]
"""Bytes from .. to of a file, and what takes their place."""

HINTS: dict[str, tuple[int, ...]] = {
    "occupancy": tuple(range(1, 33)),
    "num_ctas": (1, 2, 4, 8, 16),
    "num_worker_warps": (4, 8),
    "opt_level": (0, 1, 2, 3),
}
"""The hints that cuTile's `@ct.kernel` takes, and the values that they may have."""
MATMUL = re.compile(rb"\b(?:mma|matmul|dot)(?:_\w+)?\(")
"""A call that multiplies matrices, in the source of a kernel."""


class SpaceError(UsageError, ValueError):
    """A search space that cannot be searched. The text says what to give instead."""


@dataclass(frozen=True)
class _Place:
    """Where a literal stands in a file: bytes from `start` to `end`."""

    file: str
    start: int
    end: int
    value: Value


@dataclass(frozen=True)
class Kernel:
    """A cuTile kernel of the candidate, and the hints that its decorator gives it: those with a literal value, and what
    all are called."""

    name: str
    file: str
    hints: dict[str, Value]
    named: frozenset[str]


class _Source:
    """A file of the candidate, and where its parts stand."""

    def __init__(self, name: str, content: bytes) -> None:
        """Raises `SpaceError` for a file that is no Python."""
        self.content = content
        self._offsets = [0, *itertools.accumulate(map(len, content.splitlines(keepends=True)))]
        try:
            self.tree = ast.parse(content)
        except (SyntaxError, ValueError) as error:
            raise SpaceError(f"{name} cannot be read as Python: {error}") from None

    def span(self, node: ast.expr) -> tuple[int, int]:
        """The bytes from .. to of a part."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = self._offsets[node.lineno - 1], self._offsets[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset


class Knobs:
    """What can be set in the editable files `files` of a candidate whose entry point is `function` in `module_file`:
    of the kernels there, those that the entry point may launch."""

    def __init__(self, files: Files, module_file: str, function: str, only: Collection[str] | None = None) -> None:
        """`only`: the names of the kernels, where they are known. Raises `SpaceError` for a file that is no Python."""
        self._sources = {name: _Source(name, content) for name, content in files.items() if name.endswith(".py")}
        self._places: dict[str, list[_Place]] = {}
        self._ambiguous: set[str] = set()
        self._decorators: list[tuple[str, ast.expr, Kernel]] = []
        mentioned: dict[str, set[str]] = {}
        for name, source in self._sources.items():
            for statement in source.tree.body:
                self._constants(name, statement)
                _mention(statement, mentioned)
                if isinstance(statement, ast.FunctionDef):
                    self._kernel(name, statement)
                    if (name, statement.name) == (module_file, function):
                        self._defaults(name, statement)
        reached = _reached({function, ROOT}, mentioned) if only is None else only
        self._decorators = [one for one in self._decorators if one[2].name in reached] or self._decorators

    @property
    def constants(self) -> dict[str, Value]:
        """Names that can be set, and their values now."""
        return {name: places[0].value for name, places in self._places.items()}

    @property
    def kernels(self) -> list[Kernel]:
        return [kernel for _, _, kernel in self._decorators]

    def hint(self, name: str) -> Value | None:
        """The value that all kernels give a hint now; None where they leave it open, or differ."""
        values = {kernel.hints.get(name) for kernel in self.kernels}
        return values.pop() if len(values) == 1 else None

    def original(self, names: Iterable[str]) -> dict[str, Value]:
        """The config that changes nothing, in the knobs `names`; hints that are left open are left out."""
        found = {name: self.constants.get(name, self.hint(name)) for name in names}
        return {name: value for name, value in found.items() if value is not None}

    def check(self, name: str, values: Iterable[Value]) -> None:
        """Raises `SpaceError` where no knob has this name, or it cannot have such values."""
        if name in self._places:
            kind = type(self._places[name][0].value)
            if wrong := [value for value in values if type(value) is not kind and not {kind, type(value)} <= _NUMBERS]:
                raise SpaceError(f"{name} is of type {kind.__name__} in the source, and {wrong[0]!r} is not")
            return
        if name not in HINTS:
            known = ", ".join([*self._places, *(HINTS if self._decorators else ())])
            raise SpaceError(
                f"no tunable parameter {name!r}: it is a module-level constant of an editable file, a keyword of the "
                f"entry point with a literal default, or a hint; here these are {known or 'none'}"
            )
        if not self._decorators:
            raise SpaceError(f"{name} is a hint of @ct.kernel, and no editable file has a cuTile kernel")
        if wrong := [value for value in values if value not in HINTS[name] or isinstance(value, bool)]:
            raise SpaceError(
                f"{name} takes {_span(HINTS[name])}, not {wrong[0]!r}; a search also takes none, where no kernel has it"
            )

    def is_hint(self, name: str) -> bool:
        """Whether a knob is a hint to the compiler alone, which no code of the source can see."""
        return name not in self._places

    def variant(self, config: Config) -> Files:
        """The Python files that differ, with the config's values in them."""
        found = {}
        for file, edits in self.edits(config).items():
            content = self._sources[file].content
            for start, end, text in sorted(edits, reverse=True):
                content = content[:start] + text.encode() + content[end:]
            found[file] = content
        return found

    def edits(
        self, config: Mapping[str, Setting], otherwise: Mapping[str, Mapping[str, Setting]] | None = None
    ) -> dict[str, list[Edit]]:
        """What makes the config's source, by file; a hint that is None is left to the compiler. `otherwise`: by kernel,
        the hints that it is to have where the config leaves them out; by default those that it has."""
        found: dict[str, list[Edit]] = {}
        for name, places in self._places.items():
            for place in places if name in config else ():
                if config[name] != place.value:
                    found.setdefault(place.file, []).append((place.start, place.end, repr(config[name])))
        hints = {name: value for name, value in config.items() if name not in self._places}
        for file, decorator, kernel in self._decorators:
            whole = {**(otherwise or {}).get(kernel.name, {}), **hints}
            wanted = {name: value for name, value in whole.items() if kernel.hints.get(name) != value}
            if wanted:
                found.setdefault(file, []).extend(_hinted(decorator, wanted, self._sources[file]))
        return found

    def _constants(self, file: str, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            return
        pairs: list[tuple[ast.expr, ast.expr]] = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            pairs = list(zip(target.elts, value.elts, strict=True))
        for one, literal in pairs:
            if isinstance(one, ast.Name):
                self._note(file, one.id, literal)

    def _defaults(self, file: str, function: ast.FunctionDef) -> None:
        """Keyword parameters of the entry point with a literal default: whoever leaves them out gets the config's."""
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)]
        pairs += [(one, value) for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if value]
        for one, literal in pairs:
            self._note(file, one.arg, literal)

    def _note(self, file: str, name: str, literal: ast.expr) -> None:
        """A literal that can be set; a name that is given twice cannot."""
        value = _literal(literal)
        if value is None or name.startswith("__") or name in self._ambiguous:
            return
        self._places.setdefault(name, []).append(_Place(file, *self._sources[file].span(literal), value))
        if len({place.value for place in self._places[name]}) > 1:
            del self._places[name]
            self._ambiguous.add(name)

    def _kernel(self, file: str, function: ast.FunctionDef) -> None:
        for decorator in function.decorator_list:
            if _is_kernel(decorator):
                keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
                given = {keyword.arg: _literal(keyword.value) for keyword in keywords if keyword.arg in HINTS}
                hints = {name: value for name, value in given.items() if name and value is not None}
                named = frozenset(name for name in given if name)
                self._decorators.append((file, decorator, Kernel(function.name, file, hints, named)))


_NUMBERS = {int, float}


ROOT = ""
"""Stands for what runs when modules are imported, and whoever is handed a function then."""


def _mention(statement: ast.stmt, found: dict[str, set[str]]) -> None:
    """Add, for each name that a module's statement defines or stores to, the names that stand in it. What is decorated,
    and what a call at the module's level names, may be launched from anywhere."""
    names: set[str] = set()
    defined: set[str] = {ROOT} if isinstance(statement, ast.Expr) else set()
    for node in ast.walk(statement):
        if isinstance(node, ast.alias):
            defined.add(node.asname or node.name)
            names.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
            if any(not _is_kernel(one) for one in node.decorator_list):
                found.setdefault(ROOT, set()).add(node.name)
        elif isinstance(node, ast.Name):
            (defined if isinstance(node.ctx, ast.Store) else names).add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            defined |= {one.id for one in ast.walk(node.value) if isinstance(one, ast.Name)}
            defined |= {node.attr} if isinstance(node, ast.Attribute) else set()
    for name in defined:
        found.setdefault(name, set()).update(names | defined)


def _is_kernel(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "kernel"


def _reached(names: set[str], mentioned: Mapping[str, set[str]]) -> set[str]:
    """The names that can be come to from `names`, whatever their modules."""
    reached, waiting = {*names}, [*names]
    while waiting:
        new = mentioned.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def _literal(node: ast.expr) -> Value | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _literal(node.operand)
        return -inner if isinstance(inner, int | float) and not isinstance(inner, bool) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
        return node.value
    return None


def _hinted(decorator: ast.expr, hints: Mapping[str, Setting], source: _Source) -> list[Edit]:
    """The edits that give a decorator these hints."""
    if not isinstance(decorator, ast.Call):
        end = source.span(decorator)[1]
        return [(end, end, f"({', '.join(f'{name}={value!r}' for name, value in hints.items())})")]
    present = {keyword.arg: keyword.value for keyword in decorator.keywords}
    edits = [(*source.span(present[name]), repr(value)) for name, value in hints.items() if name in present]
    added = [f"{name}={value!r}" for name, value in hints.items() if name not in present]
    if added:
        end = source.span(decorator)[1] - 1
        last = max((source.span(node)[1] for node in (*decorator.args, *present.values())), default=None)
        edits.append((end, end, ", ".join(added)) if last is None else (last, last, ", " + ", ".join(added)))
    return edits


def _span(values: tuple[int, ...]) -> str:
    if len(values) > 8:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values[:-1])) + f" or {values[-1]}"


def parse_values(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Values by knob from texts such as `TILE_M=64,128`. Raises `SpaceError`."""
    found: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        if not equals or not name.isidentifier() or not listed:
            raise SpaceError(f"{text[:80]!r}: a tunable parameter and its values are written NAME=1,2,4")
        found.setdefault(name, []).extend(_value(one.strip()) for one in listed.split(","))
    return found


def _value(text: str) -> Value:
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
    except (SyntaxError, ValueError):
        return text
    return value if isinstance(value, bool | int | float | str) else text

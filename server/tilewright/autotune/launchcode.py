"""The launch code of a search: a module that calls the candidate with the best config of each case, and its table."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from tilewright.autotune.knobs import HINTS, Knobs
from tilewright.autotune.report import SearchResult
from tilewright.autotune.search import Wanted, search_space
from tilewright.autotune.space import ADVISED

TEMPLATE = Path(__file__).with_name("tuned_launch.py.j2")


def why_not(wanted: Wanted, result: SearchResult) -> str:
    """Why no launch code can be written; empty where it can."""
    own = _own(wanted)[1].constants.keys() | HINTS.keys()
    if foreign := sorted({name for config in search_space(result).configs for name in config} - own):
        return f"{foreign[0]} is set in another module than the entry point's, which the launch code cannot do"
    return ""


def write(wanted: Wanted, result: SearchResult) -> tuple[str, str]:
    """The module's source and its table as JSON, for a search whose configs set the entry point's module alone."""
    source, own = _own(wanted)
    module, function = wanted.found.task.module, wanted.found.task.function
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(TEMPLATE.read_text())
    table = f"tuned_{module.rpartition('.')[2]}.json"
    code = template.render(
        function=function,
        module=module,
        device=result.device,
        table=table,
        kernels=repr([kernel.name for kernel in own.kernels]),
        defaults=repr(sorted(_parameters(source, function) & own.constants.keys())),
        written=repr(_written(source, result)),
    )
    device = result.device.removesuffix(" (modelled)")
    content = {
        "kernel": hashlib.sha256(source).hexdigest(),
        "device": result.device,
        "toolkit": result.toolkit,
        "modelled": result.modelled,
        "best": result.best,
        "cases": {f"{device}: {result.calls[case]}": config for case, config in result.best_by_case.items()},
        "space": search_space(result).configs[:ADVISED],
    }
    return code, json.dumps(content, indent=1)


def _own(wanted: Wanted) -> tuple[bytes, Knobs]:
    """The source of the entry point's module, and its knobs."""
    source = wanted.files[wanted.entry_file]
    return source, Knobs({wanted.entry_file: source}, wanted.entry_file, wanted.found.task.function)


def _parameters(source: bytes, function: str) -> set[str]:
    """The parameters of the entry point."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef) and statement.name == function:
            return {one.arg for one in (*statement.args.args, *statement.args.kwonlyargs)}
    return set()


def _written(source: bytes, result: SearchResult) -> dict[str, tuple[int, ...]]:
    """For each kernel, the places of the parameters that it was seen to write."""
    found = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef) and statement.name in result.written:
            names = [one.arg for one in statement.args.args]
            found[statement.name] = tuple(
                place for place, name in enumerate(names) if name in result.written[statement.name]
            )
    return found

"""The launch code of a search: a module that calls the candidate with the best config of each case, and its table."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tilewright.autotune.knobs import HINTS, Knobs, Value
from tilewright.autotune.report import SearchResult
from tilewright.autotune.searching import Wanted, search_space
from tilewright.autotune.space import ADVISED

TEMPLATE = Path(__file__).with_name("tuned_launch.py.j2")


def why_not(wanted: Wanted, result: SearchResult) -> str:
    """Why no launch code can be written; empty where it can."""
    own = _own(wanted)[1].constants.keys() | HINTS.keys()
    if foreign := sorted({name for config in search_space(result).configs for name in config} - own):
        return f"{foreign[0]} is set in another module than the entry point's, which the launch code cannot do"
    return ""


def write(wanted: Wanted, result: SearchResult, others: Mapping[str, SearchResult]) -> tuple[str, str]:
    """The module's source and its table as JSON, for a search whose configs set the entry point's module alone.

    `others` are searches for further architectures: their cases go into the table under their devices' names, and
    their hints into the config for all other cases, each by its target.
    """
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
    cases: dict[str, dict[str, Value]] = {}
    for one in (result, *others.values()):
        device = one.device.removesuffix(" (modelled)")
        cases |= {f"{device}: {one.calls[case]}": config for case, config in one.best_by_case.items()}
    content = {
        "kernel": hashlib.sha256(source).hexdigest(),
        "device": result.device,
        "toolkit": result.toolkit,
        "modelled": result.modelled,
        "best": _by_target(result, others),
        "cases": cases,
        "space": search_space(result).configs[:ADVISED],
    }
    return code, json.dumps(content, indent=1)


def _by_target(result: SearchResult, others: Mapping[str, SearchResult]) -> dict[str, Any]:
    """The best config, with the hints of other architectures whose best has the same constants."""
    merged: dict[str, Any] = dict(result.best)
    for arch, other in others.items():
        if other.best != result.best and _constants(other.best) == _constants(result.best):
            for hint in HINTS:
                if hint in other.best:
                    here = merged.get(hint)
                    held = here if isinstance(here, dict) else {} if here is None else {"default": here}
                    merged[hint] = held | {arch: other.best[hint]}
    return merged


def _constants(config: Mapping[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in config.items() if name not in HINTS}


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

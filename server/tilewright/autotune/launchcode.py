"""The launch code of a search: a module that calls the candidate with the best config of each case, and its table."""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from tilewright.autotune.report import SearchResult
from tilewright.autotune.searching import Wanted
from tilewright.errors import UsageError
from tilewright.knobs import HINTS, Knobs, Setting

TEMPLATE = Path(__file__).with_name("tuned_launch.py.j2")
_ARGUMENT = re.compile(r"(?:^|, )(\w+)=(\w+\[[\d, ]*\](?=, |$))?")
"""In a call in words: `a=bfloat16[8192, 4096], eps=1e-05`. The second group is a tensor's dtype and shape."""
FEW = 12
"""Parameters of which every combination is tried."""


def why_not(wanted: Wanted, result: SearchResult, others: Iterable[SearchResult] = ()) -> str:
    """Why no launch code can be written, or needs to be; empty where it can. `others` are as for `write`."""
    if not any(config for one in (result, *others) for config in (one.best, *one.best_by_case.values())):
        return "the original stays, for every case"
    try:
        entry = wanted.found.entry_file
    except UsageError as error:
        return str(error)
    if entry not in wanted.files:
        return f"{entry}, which defines the entry point, is not editable: the launch code rewrites it alone"
    knobs, own = wanted.knobs(result.launched), _own(wanted, result, wanted.files[entry])
    named = {name for config in result.checked for name in config}
    if foreign := sorted(named - own.constants.keys() - HINTS.keys()):
        return f"{foreign[0]} is set in another module than the entry point's, which the launch code cannot do"
    if named & HINTS.keys() and any(kernel.file != entry for kernel in knobs.kernels):
        return (
            "a kernel with hints lies in another module than the entry point, and the launch code rewrites that alone"
        )
    return ""


def write(wanted: Wanted, result: SearchResult, others: Mapping[str, SearchResult]) -> tuple[str, str]:
    """The module's source and its table as JSON, where `why_not` is empty.

    The table knows the source that was searched, and what it becomes when the best config is applied. `others` are
    searches for further architectures: their cases go into the table under their devices' names, and their hints into
    the config for all other cases, each by its target.
    """
    module, function = wanted.found.task.module, wanted.found.task.function
    source = wanted.files[wanted.found.entry_file]
    applied = wanted.knobs(result.launched).variant(result.best).get(wanted.found.entry_file, source)
    jinja = Environment(undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    template = jinja.from_string(TEMPLATE.read_text())
    table = f"tuned_{module.rpartition('.')[2]}.json"
    configs: list[dict[str, Setting]] = []
    cases = {}
    for one in (result, *others.values()):
        device = one.device.removesuffix(" (modelled)")
        for case, config in one.best_by_case.items():
            cases[f"{device}, {result.toolkit}: {one.calls[case]}"] = _place(configs, config)
    order = _order(source, function, [*result.calls.values()])
    tell = _telling(order, cases)
    telling = {name: place for place, name in enumerate(order) if name in tell}
    code = template.render(
        function=function,
        module=module,
        package=module.rpartition(".")[0],
        device=result.device,
        table=table,
        launches=result.launches,
        count=len(order),
        key=_key(order, order),
        telling=telling,
        telling_key=_key(order, telling),
    )
    best = _place(configs, _by_target(result, others))
    space = [_place(configs, config) for config in result.checked]
    content: dict[str, Any] = {
        "device": result.device,
        "toolkit": result.toolkit,
        "modelled": result.modelled,
        "best": best,
        "cases": cases,
        "space": space,
        "configs": configs,
    }
    names = {name for config in configs for name in config}
    own = _own(wanted, result, source)
    start = {name: value for name, value in own.constants.items() if name in names}
    full = [{**start, **config} for config in configs]
    before = {one.name: {name: one.hints.get(name) for name in HINTS.keys() & names} for one in own.kernels}
    content["edits"] = {}
    for text in (source, applied):
        knobs = _own(wanted, result, text)
        edits = [knobs.edits(config, before).get(".py", []) for config in full]
        content["edits"][hashlib.sha256(text).hexdigest()] = edits
    return code, json.dumps(content, indent=1)


def _own(wanted: Wanted, result: SearchResult, source: bytes) -> Knobs:
    """The knobs of the entry point's module alone, when its source is this."""
    names = {kernel.name for kernel in wanted.knobs(result.launched).kernels}
    return Knobs({".py": source}, ".py", wanted.found.task.function, names)


def _place(configs: list[dict[str, Setting]], config: Mapping[str, Setting]) -> int:
    """The config's number in the list, to which it is added where it is missing."""
    if config not in configs:
        configs.append(dict(config))
    return configs.index(dict(config))


def _by_target(result: SearchResult, others: Mapping[str, SearchResult]) -> dict[str, Setting]:
    """The best config, with the hints of other architectures whose best has the same constants."""
    merged: dict[str, Setting] = dict(result.best)
    for arch, other in others.items():
        if other.best != result.best and _constants(other.best) == _constants(result.best):
            for hint in HINTS.keys() & other.best.keys():
                here = merged.get(hint)
                held = here if isinstance(here, Mapping) else {} if here is None else {"default": here}
                merged[hint] = {**held, arch: other.best[hint]}
    return merged


def _constants(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in HINTS}


def _order(source: bytes, function: str, calls: Sequence[str]) -> dict[str, bool]:
    """The parameters that `calls` have, in order, and whether each is a tensor: empty where they are not the function's
    first parameters, or not of one kind in all calls."""
    entry = [one for one in ast.parse(source).body if isinstance(one, ast.FunctionDef) and one.name == function]
    if len(entry) != 1 or not calls:
        return {}
    kinds = {tuple(sorted((name, bool(shaped)) for name, shaped in _ARGUMENT.findall(call))) for call in calls}
    found = kinds.pop()
    tensors = dict(found)
    order = [one.arg for one in (*entry[0].args.posonlyargs, *entry[0].args.args)][: len(tensors)]
    if kinds or len(tensors) < len(found) or {*order} != {*tensors}:  # a string may look like an argument
        return {}
    return {name: tensors[name] for name in order}


def _telling(order: Iterable[str], cases: Mapping[str, int]) -> set[str]:
    """The fewest parameters, and of as few the first, by which a device's cases that have different configs differ: a
    call's config is found by these alone. Empty where no case has another config than the others, or where these do
    not tell. Of many candidates all are taken, not the fewest."""
    known = []
    for case, config in cases.items():
        where, _, call = case.partition(": ")
        starts = [found.start(1) for found in _ARGUMENT.finditer(call)]
        parts = [call[start:end].removesuffix(", ") for start, end in itertools.zip_longest(starts, starts[1:])]
        known.append((where, {part.partition("=")[0]: part for part in parts}, config))
    every = [*order]
    differing = {
        frozenset(name for name in every if one.get(name) != other.get(name))
        for (here, one, config), (there, other, another) in itertools.combinations(known, 2)
        if here == there and config != another
    }
    needed = {name for names in differing if len(names) == 1 for name in names}
    others = [name for name in every if name not in needed and any(name in names for names in differing)]
    for count in range(len(others) + 1 if len(others) <= FEW else 0):
        for more in itertools.combinations(others, count):
            if all(names & needed.union(more) for names in differing):
                return needed.union(more)
    return needed.union(others) if all(differing) else set()


def _key(order: Mapping[str, bool], names: Iterable[str]) -> str:
    """Source text of what the launch code finds a call's config by: shape and dtype of each argument that is a tensor,
    type and value of each other one."""
    places = {name: f"args[{place}]" for place, name in enumerate(order)}
    return ", ".join(
        f"{places[name]}.shape, {places[name]}.dtype" if order[name] else f"type({places[name]}), {places[name]}"
        for name in names
    )

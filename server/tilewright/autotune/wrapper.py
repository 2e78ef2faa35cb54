"""The tune-once wrapper of a search: a module around the candidate's, with the configs that were checked."""

from __future__ import annotations

import hashlib
from pathlib import Path
from string import Template

from tilewright.autotune.report import SearchResult, label
from tilewright.autotune.searching import Wanted
from tilewright.knobs import HINTS, Knobs
from tilewright.task import Frontend

TEMPLATE = Path(__file__).with_name("tuned.py.template")


def wrapper_refusal(wanted: Wanted, result: SearchResult) -> str:
    """Why no wrapper can be written, or needs to be; empty where it can."""
    if wanted.found.task.file.frontend is not Frontend.CUTILE:
        return "the wrapper is for cuTile kernels"
    if not any((result.best, *result.best_by_case.values())):
        return "the original stays, for every case"
    entry = wanted.found.entry_file
    if entry not in wanted.found.files:
        return f"{entry}, which defines the entry point, is not editable: the wrapper changes it alone"
    knobs = wanted.found.knobs()
    named = {name for config in result.checked for name in config}
    elsewhere = named - _own(wanted, wanted.found.files[entry]).constants.keys() - HINTS.keys()
    if elsewhere:
        return f"{min(elsewhere)} is set in another module than the entry point's, which the wrapper cannot do"
    if named & HINTS.keys() and any(kernel.file != entry for kernel in knobs.kernels):
        return "a kernel with hints lies in another module than the entry point, and the wrapper changes that alone"
    return ""


def wrapper_source(wanted: Wanted, result: SearchResult, source: bytes) -> str:
    """Return the wrapper's source, if nothing refuses it. `source` is the entry point's module: as it was searched, or
    with the best config applied."""
    searched = _own(wanted, wanted.found.files[wanted.found.entry_file])
    names = {name for config in result.checked for name in config}
    start = {name: value for name, value in searched.constants.items() if name in names}
    hints = {
        kernel.name: {name: kernel.hints.get(name) for name in HINTS.keys() & names} for kernel in searched.kernels
    }
    now = _own(wanted, source)
    configs = "".join(
        f"    {now.edits({**start, **config}, hints).get('.py', [])!r},  # {label(config)}\n"
        for config in result.checked
    )
    return Template(TEMPLATE.read_text()).substitute(
        function=wanted.found.task.function,
        module=wanted.found.task.module,
        device=result.device,
        configs=f"[\n{configs}]",
        best=result.checked.index(result.best),
        digest=hashlib.sha256(source).hexdigest(),
    )


def _own(wanted: Wanted, source: bytes) -> Knobs:
    """The knobs of the entry point's module alone, when its source is this."""
    names = {kernel.name for kernel in wanted.found.knobs().kernels}
    return Knobs({".py": source}, ".py", wanted.found.task.function, names)

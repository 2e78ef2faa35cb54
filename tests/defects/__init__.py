"""Small kernels with one known defect each, and correct ones that look like them, with host code as users write it.

A line that a good report may name ends with the comment DEFECT; `marked_lines` finds those of one defect.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from tests.corpus.operations import compiled

CLEAN = "clean"


@dataclass(frozen=True)
class Defect:
    """One case: `run` allocates inputs, launches, and returns its outputs. `kind`: what is found, or CLEAN."""

    name: str
    kind: str
    run: Callable[[], torch.Tensor | tuple[torch.Tensor, ...]]


DEFECTS: list[Defect] = []


def entry(kind: str) -> Callable[[Any], Any]:
    """Register a function that runs a case of `kind`."""

    def register(run: Any) -> Any:
        DEFECTS.append(Defect(run.__name__, kind, run))
        return run

    return register


def clean(run: Any) -> Any:
    """Register a function that runs a correct case."""
    return entry(CLEAN)(run)


def functions(defect: Defect) -> list[FunctionType]:
    """The kernels that a case launches, with the functions of its module that they call."""
    found: list[FunctionType] = []
    names = [*defect.run.__code__.co_names, *defect.run.__code__.co_freevars]
    scope = defect.run.__globals__ | dict(inspect.getclosurevars(defect.run).nonlocals)
    for name in names:
        function = getattr(scope.get(name), "_pyfunc", scope.get(name))
        if isinstance(function, FunctionType) and function.__module__ in (defect.run.__module__, compiled.__module__):
            found.append(function)
            names += [called for called in function.__code__.co_names if called not in names]
    return found


def marked_lines(defect: Defect) -> set[int]:
    """The lines of the case's module that carry its defect."""
    marked = set()
    for function in functions(defect):
        lines, first = inspect.getsourcelines(function)
        marked |= {first + number for number, line in enumerate(lines) if line.rstrip().endswith("# DEFECT")}
    return marked


from tests.defects import (  # noqa: E402, F401 (each fills the registry)
    out_of_bounds,
    race,
    synchronisation,
    undetermined_padding,
    unvisited,
    unwritten_memory,
)

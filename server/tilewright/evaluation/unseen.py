"""What a check did not look at. An all-clear is no wider than what was done."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.cases import volume
from tilewright.evaluation.pool import WorkerHandle
from tilewright.evaluation.results import CaseCheck
from tilewright.evaluation.taskcode import TaskCode
from tilewright.frontends.protocol import tuner_key
from tilewright.task import Backend, Case, Frontend, TaskError, Values, case_label
from tilewright.text import cut, few, printable

WRAPS_BYTES = 2**31
"""Compulsory bytes from which a tensor may have more elements than a 32-bit index can count."""
SHOWN = 3
MOST = 2000
"""Functions that are listed."""
PLACE_LIMIT = 120
UNSHOWN = {
    "order": "order of atomics not checked: {places}; a GPU takes them in any order, so two calls may differ, and the "
    "task is deterministic",
    "tf32": "tf32 not checked: {places}; float32 products ran in full precision here, and on a GPU in tfloat32",
}
"""What a worker may have met. The words before the colon stand beside a row."""


class Tuners:
    """Tuners that ran, by name: how many configs each has, which of them it took, in words, and the numbers of the
    configs that all of them were told to take. `first`: the number of the config that each took first, by `tuner_key`.
    """

    def __init__(self) -> None:
        self.first: dict[str, int] = {}
        self.configs: dict[str, int] = {}
        self.taken: dict[str, dict[str, None]] = {}
        self.tried: set[int] = set()

    def add(self, said: Any) -> None:
        """Add those that a worker, whose word is not trusted, has listed."""
        for tuner in _listed(said):
            match tuner:
                case [str(name), int(configs), [*taken], int() | None as first] if configs > 1:
                    name = printable(cut(name, PLACE_LIMIT))
                    if first is not None:
                        self.first[tuner_key(name, configs)] = first % configs
                    self.configs[name] = max(configs, self.configs.get(name, 0))
                    known = {printable(cut(str(one), PLACE_LIMIT)): None for one in taken[:configs]}
                    self.taken.setdefault(name, {}).update(known)

    @property
    def text(self) -> str:
        """Which configs were taken."""
        return few([few(list(taken), SHOWN) for taken in self.taken.values()], SHOWN)

    @property
    def left(self) -> list[str]:
        """Which tuners took fewer configs than they have, as a note."""
        fewer = []
        for name, count in self.configs.items():
            tried = max(len([number for number in self.tried if number < count]), 1)
            if tried < count:
                fewer.append(f"{tried} of {count} of {name} ({few(list(self.taken[name]), SHOWN)})")
        return [f"not all configs seen: {few(fewer, SHOWN)}"] if fewer else []


class Unshown(NamedTuple):
    """What calls have met that they cannot show; the functions that ran, None where that is not known; the tuners."""

    notes: list[str]
    ran: list[str] | None
    tuners: Tuners


def unshown(workers: Sequence[WorkerHandle], code: TaskCode) -> Unshown:
    """What calls on these workers have met. Raises `WorkerFailure`."""
    places: dict[str, dict[str, None]] = {kind: {} for kind in UNSHOWN}
    ran: set[str] | None = set()
    tuners = Tuners()
    for worker in workers:
        reply, _ = worker.request("unshown", code.task.file.timeout_s, root=worker.root)
        more: Any = reply.get("ran")
        ran = {*ran, *map(str, more[:MOST])} if ran is not None and isinstance(more, list) else None
        tuners.add(reply.get("tuners"))
        for kind in UNSHOWN:
            found = reply.get(kind)
            places[kind] |= {printable(cut(str(one), PLACE_LIMIT)): None for one in _listed(found)}
    if not code.task.file.deterministic:
        places["order"] = {}
    notes = [UNSHOWN[kind].format(places=few(list(found), SHOWN)) for kind, found in places.items() if found]
    return Unshown(notes, None if ran is None else sorted(ran)[:MOST], tuners)


def unseen(code: TaskCode, backend: Backend, ran: Sequence[Case], checks: Sequence[CaseCheck] = ()) -> list[str]:
    """What a check of the cases that `ran` does not look at. `checks`: its runs that were compared with a reference."""
    said = [_classes(code, checks)] if checks else ["values: run_correctness compares them with the reference"]
    frontend = code.task.file.frontend
    if backend is Backend.CPU:
        said.append(_sizes(code, ran))
        if frontend is Frontend.TRITON:
            said.append("races: Triton's interpreter runs one program after the other")
    elif frontend is not Frontend.TORCH:
        also = ", and `tilewright check` looks for them" if frontend is Frontend.CUTILE else ""
        said.append(f"races that did not show in two calls{also}")
    return [text for text in said if text]


def _classes(code: TaskCode, checks: Sequence[CaseCheck]) -> str:
    """The classes of values that a visible case did not meet, of the one that met the fewest."""
    wanted = [values for values in Values if values is not Values.DRAWN]
    met: dict[str, set[Values]] = {}
    for check in checks:
        if not check.hidden:
            met.setdefault(case_label(check.case), set()).add(check.values)
    label, fewest = min(met.items(), key=lambda item: len(item[1]), default=("", set(wanted)))
    missing = [values for values in wanted if values not in fewest]
    return f"{len(missing)} of {len(wanted)} classes of values on {label} ({', '.join(missing)})" if missing else ""


def _sizes(code: TaskCode, ran: Sequence[Case]) -> str:
    """Sizes of the task that are larger than all that ran here."""
    largest = max((entry.case for entry in code.task.file.cases), key=volume)
    here = max(ran, key=volume)
    if volume(largest) <= volume(here):
        return ""
    wraps = ""
    with contextlib.suppress(TaskError):
        if code.has_work and code.work(largest).bytes >= WRAPS_BYTES:
            wraps = ", where a 32-bit index may wrap"
    return f"sizes larger than {case_label(here)}, up to the task's {case_label(largest)}{wraps}"


def _listed(found: Any) -> list[Any]:
    """What a worker, whose word is not trusted, gives as a list."""
    return found[: 4 * SHOWN] if isinstance(found, list) else []

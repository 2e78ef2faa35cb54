"""Which sizes and values a function takes: a few sizes of each dimension, then hidden draws. Runs nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.cases import Draw, HiddenEntry
from tilewright.evaluation.seeds import Seeds
from tilewright.rules import DEFAULT
from tilewright.task import Backend, Case, Task, Values

Sizes = dict[str, int]
Why = Callable[[Case, Values], str | None]
"""Says why the function does not pass one run; empty if it does, None if it is too large to be tried."""
SECRET = "init"
"""Stands for the secret of a session: the same function gives the same task."""
CUTS = (96, 128, 64, 256, 32, 16, 512)
"""What sizes are cut to. The first case on the CPU is the first cut that passes."""
TRIED = 14
"""Sizes of a dimension that are tried, at most."""
HEADS = (16, 32, 64, 80, 96, 128, 192, 256)
"""The usual sizes of a head."""
CLASSES = [values for values in Values if values is not Values.DRAWN]
ROUNDS = 24
"""Times that a rule is narrowed, at most."""


@dataclass(frozen=True)
class Dimension:
    """A dimension as the user gave it. `head`: it has the size and the place of a head. `empty`: a call had none.
    `given`: the user's own range for it."""

    size: int
    head: bool = False
    empty: bool = False
    given: Draw | None = None

    def candidates(self, top: int) -> list[int]:
        """The sizes to try, `top` at most: few that tiles divide, and some of the user's own kind."""
        if self.head:
            return [size for size in (*HEADS, self.size) if size <= max(top, HEADS[0])]
        power = min(self.size & -self.size, 64)
        kind = [power, 2 * power, 3 * power, 5 * power]
        wanted = [*[0] * self.empty, top, 1, 33, 7, *kind, 16, 64, 48, top - 1, 32, 17, 2, 8, 96, 3]
        return [size for size in dict.fromkeys(wanted) if 0 <= size <= top and size + self.empty][:TRIED]


def least_of(rule: Draw) -> int:
    """The smallest size of a range."""
    if rule.choices is not None:
        return min(map(int, rule.choices))
    return -(-(rule.min or 0) // rule.multiple_of) * rule.multiple_of


def up_to(rule: Draw, most: int) -> Draw:
    """A range up to `most`, or its smallest size if all are larger."""
    most = max(most, least_of(rule))
    if rule.choices is not None:
        return Draw(choices=[size for size in rule.choices if int(size) <= most])
    largest = min(most, rule.max or 0) // rule.multiple_of * rule.multiple_of
    return rule.model_copy(update={"max": largest})


def in_words(rule: Draw) -> str:
    """A range without its upper end."""
    if rule.choices is not None:
        return f"only {', '.join(map(str, rule.choices))}"
    return f"multiples of {rule.multiple_of} from {rule.min} on" if rule.multiple_of > 1 else f"{rule.min} up"


def rule_of(passed: Mapping[int, bool], most: int, head: bool = False) -> Draw | None:
    """The range up to `most` that has most of the sizes that passed, and none that failed; None if only one passed."""
    good = sorted(size for size, fine in passed.items() if fine)
    if len(good) < 2:
        return None
    best, fitting = Draw(choices=[*good]), max(2, len(good) // 2)
    for multiple in () if head else (1, 2, 4, 8, 16, 32, 64, 128):
        tried = sorted(size for size in passed if size % multiple == 0)
        failed = max((size for size in tried if not passed[size]), default=-1)
        fit = [size for size in tried if size > failed]
        if len(fit) > fitting or len(fit) == len(passed):
            best, fitting = Draw(min=fit[0], max=most, multiple_of=multiple), len(fit)
    return best


@dataclass
class Search:
    """The sizes and values that a function passes, from one case that it passes."""

    task: Task
    dimensions: Mapping[str, Dimension]
    why: Why
    base: Case
    tops: Sizes
    rules: dict[str, Draw] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)
    """Classes of values that it does not pass, and why."""
    narrowed: dict[str, str] = field(default_factory=dict)
    """The rule of a dimension in words, and why."""
    _passed: dict[str, dict[int, bool]] = field(default_factory=dict)

    def run(self) -> None:
        """Try sizes of each dimension alone, then all classes of values on hidden draws, until all of them pass."""
        for name, dimension in self.dimensions.items():
            if dimension.given is None:
                self._explore(name, dimension)
        for values in CLASSES:
            if reason := self.why(self.base, values):
                self.excluded[values.value] = reason
        for _ in range(ROUNDS):
            if (failure := self._failure()) is None:
                return
            self._narrow(*failure)
        self.rules.clear()

    def tables(self, most: Sizes) -> dict[str, dict[str, Any]]:
        """The hidden ranges up to these sizes, the user's own among them, as tables of a task."""
        tables = {}
        for name, dimension in self.dimensions.items():
            if (rule := dimension.given or self.rules.get(name)) is not None:
                rule = up_to(rule, most[name])
                if dimension.given or rule.values(1) is None:  # of a single size there is nothing to draw
                    tables[name] = rule.model_dump(exclude_defaults=True)
        return tables

    def _explore(self, name: str, dimension: Dimension) -> None:
        self._passed[name] = {int(self.base[name]): True}
        reasons = {}
        for size in dimension.candidates(self.tops[name]):
            reason = self.why(self.base | {name: size}, Values.DRAWN)
            if reason is None:
                continue
            if reason:
                reasons[size] = reason
            self._passed[name][size] = not reason
        self._set_rule(name)
        if reasons:
            size = min(reasons)
            self._note(name, f"with {name}={size} {reasons[size]}")

    def _set_rule(self, name: str) -> None:
        rule = rule_of(self._passed[name], self.dimensions[name].size, self.dimensions[name].head)
        self.rules.pop(name, None)
        if rule is not None:
            self.rules[name] = rule

    def _note(self, name: str, reason: str) -> None:
        rule = self.rules.get(name)
        self.narrowed[name] = f"{in_words(rule) if rule else f'only {self.base[name]}'}, since {reason}"

    def _failure(self) -> tuple[Case, Values, str] | None:
        """The first of the hidden draws that fails."""
        entry = self.task.file.cases[0].model_validate(self.base)
        tables = [HiddenEntry.model_validate(tables)] if (tables := self.tables(self.tops)) else []
        drawn = Task(self.task.file.model_copy(update={"cases": [entry], "hidden": tables}), self.task.folder)
        seeds = Seeds(SECRET)
        cases = drawn.hidden_cases(Backend.CPU, seeds.next(), 2 * DEFAULT.hidden_cases) if tables else []
        cases += drawn.large_cases(Backend.CPU, seeds.next())
        for case in cases:
            for values in (Values.DRAWN, *CLASSES):
                if values.value not in self.excluded and (reason := self.why(case, values)):
                    return case, values, reason
        return None

    def _narrow(self, case: Case, values: Values, reason: str) -> None:
        """Leave out the size that spoils a draw. If no single size does so, leave out the class of values, or fix the
        dimensions."""
        moved = [name for name in self.rules if case[name] != self.base[name]]
        spoiling = [name for name in moved if not self.why(case | {name: self.base[name]}, values)]
        label = " ".join(f"{name}={case[name]}" for name in moved)
        told = f"with {label}{'' if values is Values.DRAWN else f' and {values}'} {reason}"
        if not spoiling and values is not Values.DRAWN:
            self.excluded[values.value] = told
            return
        for name in spoiling[:1] or moved or list(self.rules):
            size = int(case[name])
            self._passed[name][size] = False
            self._set_rule(name)
            if not spoiling or (name in self.rules and self.rules[name].holds(size)):
                del self.rules[name]
            self._note(name, told)


def first_case(dimensions: Mapping[str, Dimension], cuts: Iterable[int]) -> list[Sizes]:
    """The sizes of the cases to try first, without those that are equal."""
    cases: list[Sizes] = []
    for cut in cuts:
        least = {name: least_of(one.given) if one.given else 0 for name, one in dimensions.items()}
        sizes = {name: max(min(one.size, cut), min(one.size, least[name])) for name, one in dimensions.items()}
        cases += [] if sizes in cases else [sizes]
    return cases

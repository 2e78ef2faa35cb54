"""A task's cases: named sizes and flags, and the ranges from which the referee draws hidden ones."""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, model_validator

LARGE_CASES = 4
"""Hidden cases at most, of one table, in which all ranges are near their upper ends."""
LARGE_HALVINGS = 12
TOPPED_UP = 4
"""Times that the cases before a keep are drawn, since cases of a small range come twice."""
CaseValue = int | float | str | bool
Case = dict[str, CaseValue]
"""One concrete workload: its shapes, dtypes and flags by name."""


class Backend(StrEnum):
    """Where kernels run: `cuda` is measured, `cpu` is interpreted and its latency modelled."""

    CUDA = "cuda"
    CPU = "cpu"


def case_label(case: Case) -> str:
    """A case as one short line, the way tables and messages show it."""
    return " ".join(f"{name}={value}" for name, value in case.items())


class Strict(BaseModel):
    """A table of a task file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Draw(Strict):
    """A range or list from which the referee draws one value of a hidden case."""

    min: int | None = Field(None, description="the least value of a range")
    max: int | None = Field(None, description="the largest value of a range")
    multiple_of: int = Field(1, ge=1, description="every value drawn is a multiple of it")
    choices: list[CaseValue] | None = Field(None, min_length=1, description="the values, instead of a range")

    @model_validator(mode="after")
    def _one_kind(self) -> Draw:
        if self.choices is not None:
            if self.min is not None or self.max is not None:
                raise ValueError("give either choices, or min and max, not both")
            for choice in self.choices:
                if isinstance(choice, int) and choice % self.multiple_of:
                    raise ValueError(f"choice {choice} is no multiple of {self.multiple_of}")
            return self
        if self.min is None or self.max is None:
            raise ValueError("give min and max, or choices")
        if -(-self.min // self.multiple_of) * self.multiple_of > self.max:
            raise ValueError(f"no multiple of {self.multiple_of} lies between {self.min} and {self.max}")
        return self

    def draw(self, count: int, source: random.Random) -> list[CaseValue]:
        """`count` values, shuffled: the choices in turn, or a range's ends and values between them (log scale). Half of
        those that are even are made odd, since most tiles divide no odd size."""
        if self.choices is not None:
            turns = -(-count // len(self.choices))
            found = [value for _ in range(turns) for value in source.sample(self.choices, len(self.choices))][:count]
        else:
            low, high = self._ends
            inner = count - 2 if count > 2 else 1 if count == 1 else 0
            places = self._by_orders(inner, source)
            drawn = [min(max(math.floor(place), low + (low < high)), high) for place in places]
            for place, value in enumerate(drawn):
                if value % 2 == 0 and source.random() < 0.5:
                    drawn[place] = value + 1 if value < high else max(value - 1, low)
            found = [value * self.multiple_of for value in [low, high][: count - inner] + drawn]
        return source.sample(found, count)

    def up_to(self, sizes: list[CaseValue]) -> Draw:
        """The same range, up to the largest of `sizes` where that is more; choices stay what they are."""
        top = max((size for size in sizes if isinstance(size, int)), default=0)
        return self.model_copy(update={"max": top}) if self.max is not None and top > self.max else self

    def holds(self, value: CaseValue) -> bool:
        """Whether it can be drawn."""
        if self.choices is not None:
            return value in self.choices
        low, high = self._ends
        return isinstance(value, int) and value % self.multiple_of == 0 and low <= value // self.multiple_of <= high

    def values(self, most: int) -> list[CaseValue] | None:
        """All values that can be drawn; None where they are more than `most`."""
        if self.choices is not None:
            found = list(dict.fromkeys(self.choices))
            return found if len(found) <= most else None
        low, high = self._ends
        return [value * self.multiple_of for value in range(low, high + 1)] if high - low < most else None

    def draw_wide(self, count: int, source: random.Random) -> list[CaseValue]:
        """`count` values, shuffled: the choices in turn, or one value from each of `count` strata of the range: half of
        them are of equal width, and half of equal width on a log scale. So an interval of a quarter of a range holds
        at least one of 36 values, wherever it lies, and so does a quarter of its orders of magnitude."""
        if self.choices is not None:
            return self.draw(count, source)
        low, high = self._ends
        even = count // 2
        places = [low + (high - low + 1) * (part + source.random()) / even for part in range(even)]
        places += self._by_orders(count - even, source)
        found = [min(max(math.floor(place), low), high) * self.multiple_of for place in places]
        return source.sample(found, count)

    def _by_orders(self, count: int, source: random.Random) -> list[float]:
        """One place, in multiples, from each of `count` strata of the range that have equal width on a log scale."""
        low, high = self._ends
        shift = min(low - 1, 0)  # zero and below come to lie at 1
        start, width = math.log(low - shift), math.log((high - shift + 1) / (low - shift))
        return [math.exp(start + width * (part + source.random()) / count) + shift for part in range(count)]

    def draw_large(self, count: int, share: float, source: random.Random) -> list[CaseValue]:
        """`count` values from the upper half of a range that is cut off at `share` of its maximum, odd where it holds
        such."""
        low, high = self._ends
        high = max(int(high * share), low) if high > 0 else high
        half = max(low, high // 2) if high > 0 else low
        drawn = [source.randint(half, high) for _ in range(count)]
        odd = [value - 1 if value % 2 == 0 and value > half else value for value in drawn]
        return [(value + (value % 2 == 0 and value < high)) * self.multiple_of for value in odd]

    @property
    def _ends(self) -> tuple[int, int]:
        """A range's least and largest value, in multiples."""
        assert self.min is not None and self.max is not None
        return -(-self.min // self.multiple_of), self.max // self.multiple_of


class CaseEntry(BaseModel):
    """One `[[cases]]` table: the case itself, the backend it is for (any, where none is named), and how much it counts
    beside other cases in what is said of all."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, CaseValue]
    backend: Backend | None = None
    weight: float = Field(1.0, gt=0, allow_inf_nan=False)

    @property
    def case(self) -> Case:
        return dict(self.__pydantic_extra__)


class HiddenEntry(BaseModel):
    """One `[hidden]` table: the ranges from which further cases are drawn."""

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Draw]
    backend: Backend | None = None

    @property
    def has_range(self) -> bool:
        """Whether any value is drawn from a range; otherwise all are chosen from lists."""
        return any(rule.choices is None for rule in self.__pydantic_extra__.values())

    def draw_large(self, visible: list[Case], source: random.Random) -> list[Case]:
        """Cases with all ranges near their upper ends together: one, or one for each of a list's choices, `LARGE_CASES`
        at most. A range ends at the largest size of `visible`, if that is more than its own end. The cases lie as far
        below these ends as it takes to be no larger than the largest of `visible`, by the product of the ranges'
        values."""
        rules = self._reaching(visible)
        ranges = [name for name, rule in rules.items() if rule.choices is None]
        longest = max((len(rule.choices) for rule in rules.values() if rule.choices is not None), default=1)
        most = max(volume(case, ranges) for case in visible)
        found: list[Case] = []
        for halvings in range(LARGE_HALVINGS):
            count = (min(longest, LARGE_CASES) if ranges else 0) - len(found)
            drawn = {name: rules[name].draw_large(count, 0.5**halvings, source) for name in ranges}
            cases = [
                source.choice(visible) | {name: values[turn] for name, values in drawn.items()} for turn in range(count)
            ]
            found += [case for case in cases if volume(case, ranges) <= most]
        lists = {name: rule.draw(len(found), source) for name, rule in rules.items() if rule.choices}
        return [case | {name: values[turn] for name, values in lists.items()} for turn, case in enumerate(found)]

    def draw(self, bases: list[Case], source: random.Random) -> list[Case]:
        """One hidden case over each of `bases`, visible cases; the ranges are turned against each other."""
        rules = source.sample(list(self.__pydantic_extra__.items()), len(self.__pydantic_extra__))
        drawn = {name: rule.draw(len(bases), source) for name, rule in rules}
        ranges = [name for name, rule in rules if rule.choices is None]
        for number, name in enumerate(ranges):
            up = sorted(drawn[name], key=int)
            drawn[name] = up[::-1] if len(ranges) == 2 and number else up[number:] + up[:number]
        return [base | {name: values[number] for name, values in drawn.items()} for number, base in enumerate(bases)]

    def holds(self, case: Case, visible: list[Case]) -> bool:
        """Whether `case` can be drawn over one of `visible`."""
        rules = self._reaching(visible)
        others = [{name: value for name, value in one.items() if name not in rules} for one in [case, *visible]]
        return others[0] in others[1:] and all(name in case and rule.holds(case[name]) for name, rule in rules.items())

    def draw_wide(self, visible: list[Case], count: int, source: random.Random) -> list[Case]:
        """`count` different cases that are not visible: all there are, where these are not more. Each range's values
        are spread as `Draw.draw_wide` says. A large value of one range meets a small one of another where both together
        would be larger than the largest of `visible`, by the product of the ranges' values."""
        rules = self.__pydantic_extra__
        listed = {name: rule.values(count) for name, rule in rules.items()}
        known = {name: values for name, values in listed.items() if values is not None}
        if len(known) == len(rules) and math.prod(map(len, known.values())) <= count:
            every = itertools.product(*known.values())
            drawn = [source.choice(visible) | dict(zip(known, values, strict=True)) for values in every]
            return [case for case in drawn if case not in visible]
        found: dict[str, Case] = {}
        for _ in range(TOPPED_UP):
            spread = self._spread(visible, count, source)
            found |= {case_label(case): case for case in spread if case not in visible}
        return list(found.values())[:count]

    def _reaching(self, visible: list[Case]) -> dict[str, Draw]:
        return {
            name: rule.up_to([case[name] for case in visible if name in case])
            for name, rule in self.__pydantic_extra__.items()
        }

    def _spread(self, visible: list[Case], count: int, source: random.Random) -> list[Case]:
        rules = self.__pydantic_extra__
        drawn = {name: rule.draw_wide(count, source) for name, rule in rules.items()}
        ranges = [name for name, rule in rules.items() if rule.choices is None]
        source.shuffle(ranges)
        most = max(volume(case, ranges) for case in visible)
        volumes = [1] * count
        for name in ranges:
            left, placed = sorted(drawn[name], key=int), list(drawn[name])
            for turn in sorted(range(count), key=volumes.__getitem__, reverse=True):
                fits = bisect.bisect_right(left, most // volumes[turn], key=lambda value: max(int(value), 1))
                placed[turn] = left.pop(source.randrange(fits) if fits else 0)
                volumes[turn] *= max(int(placed[turn]), 1)
            drawn[name] = placed
        return [
            source.choice(visible) | {name: values[turn] for name, values in drawn.items()} for turn in range(count)
        ]


def volume(case: Case, names: Iterable[str] | None = None) -> int:
    """The product of a case's sizes, of those in `names` if these are given: what it costs, roughly."""
    values = case.values() if names is None else [case[name] for name in names]
    return math.prod(max(value, 1) for value in values if isinstance(value, int))

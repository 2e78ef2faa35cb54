"""Which sizes a function takes: the ranges of hidden cases that the function itself passes. Runs nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Sizes = dict[str, int]
Fails = Callable[[list[Sizes]], list[str]]
"""Says for each of several sizes why the function does not pass on them; empty where it does."""
FIRST = (1, 7, 33)
"""Sizes that few tiles divide: a function that takes them and the largest takes all."""
FURTHER = (2, 3, 4, 5, 8, 12, 16, 17, 24, 32, 40, 48, 64, 80, 96, 100, 128, 160, 192, 256, 384, 512)
MULTIPLES = tuple(2**power for power in range(11))
CHOICES = 8
REASON_LIMIT = 140
RUN_S = 20.0
"""For one run of the function; what takes longer is not tried further."""
TOO_LONG = f"it takes more than {RUN_S:.0f} s"
AGAIN = 75
"""The exit status of a process that cannot go on after a run, and has to be started again."""


@dataclass(frozen=True)
class Rule:
    """The sizes of one dimension: from `least` on the multiples of `multiple_of`, of `powers` the powers of two alone;
    or `choices`."""

    least: int = 1
    multiple_of: int = 1
    powers: bool = False
    choices: tuple[int, ...] = ()

    def takes(self, size: int) -> bool:
        """Whether a size follows the rule."""
        if self.choices:
            return size in self.choices
        return size >= self.least and size % self.multiple_of == 0 and not (self.powers and size & (size - 1))

    def up_to(self, most: int) -> list[int]:
        """The sizes that follow the rule, `most` at the largest."""
        return [size for size in range(1, most + 1) if self.takes(size)]

    def table(self, most: int) -> dict[str, Any]:
        """The rule as a table of a task's hidden ranges; empty where fewer than two sizes follow it."""
        sizes = self.up_to(most)
        if len(sizes) < 2:
            return {}
        if self.choices or self.powers:
            return {"choices": sizes}
        multiple = {"multiple_of": self.multiple_of} if self.multiple_of > 1 else {}
        return {"min": sizes[0], "max": sizes[-1]} | multiple

    def __str__(self) -> str:
        if self.choices:
            return f"only {', '.join(map(str, self.choices))}"
        kind = "powers of two" if self.powers else f"multiples of {self.multiple_of}" if self.multiple_of > 1 else ""
        return " ".join(filter(None, (kind, f"from {self.least} on")))


ALL = Rule()


def rule_of(passed: Mapping[int, bool]) -> Rule | None:
    """The simplest rule that all sizes which were tried agree with and that takes the most of those that passed; None
    where only one size passed."""
    good = sorted(size for size, fine in passed.items() if fine)
    best: tuple[int, Rule] | None = None
    kinds = [(multiple, False) for multiple in MULTIPLES] + [(1, True)]
    for multiple, powers in kinds:
        for least in good:
            rule = Rule(least, multiple, powers)
            covered = [size for size in passed if rule.takes(size)]
            if rule.takes(least) and all(passed[size] for size in covered):
                if len(covered) > (best[0] if best else 1):
                    best = (len(covered), rule)
                break
    if best is not None:
        return best[1]
    return Rule(choices=tuple(good[:CHOICES])) if len(good) > 1 else None


def witnesses(rule: Rule, top: int, passed: Mapping[int, bool]) -> list[int]:
    """Sizes that speak for or against a rule: its first, middle and last, and what halves the gap below its least."""
    sizes = rule.up_to(top)
    middle = len(sizes) // 2
    failed = [size for size, fine in passed.items() if not fine and size % rule.multiple_of == 0]
    low = max((size for size in failed if size < sizes[0]), default=sizes[0])
    gap = [size for size in range(low + 1, sizes[0]) if size % rule.multiple_of == 0 and not rule.powers]
    return [*sizes[:3], *sizes[middle : middle + 2], *sizes[-2:], *gap[len(gap) // 2 :][:1]]


@dataclass(frozen=True)
class Found:
    """What trying showed: a rule for each dimension that may vary, and in words what was narrowed and why."""

    rules: dict[str, Rule]
    said: dict[str, str]


def explore(base: Sizes, tops: Sizes, fails: Fails) -> Found:
    """Try other sizes of each dimension, one at a time, up to `tops`; `base` passes."""
    rules: dict[str, Rule] = {}
    said: dict[str, str] = {}
    for dim in base:
        passed, reasons = {base[dim]: True}, dict[int, str]()
        rule: Rule | None = ALL
        sizes = [*FIRST, tops[dim]]
        while wanted := [size for size in dict.fromkeys(sizes) if size <= tops[dim] and size not in passed]:
            for size, why in zip(wanted, fails([base | {dim: size} for size in wanted]), strict=True):
                passed[size] = not why
                if why:
                    reasons[size] = why
            if not reasons:
                break
            rule = rule_of(passed)
            further = [*FURTHER, 2 * base[dim], 3 * base[dim]] if len(passed) < len(FURTHER) else []
            sizes = further + (witnesses(rule, tops[dim], passed) if rule else [])
        if rule is not None:
            rules[dim] = rule
        if reasons:
            said[dim] = f"{rule or f'only {base[dim]}'}, since {reason_of(dim, reasons)}"
    return Found(rules, said)


def settle(
    found: Found,
    base: Sizes,
    draws: Callable[[Mapping[str, Rule]], list[Sizes]],
    fails: Callable[[list[Sizes]], list[str]],
) -> Found:
    """The same rules without the dimensions whose sizes fail together with others': tries what `draws` draws by the
    rules, and gives a dimension that spoils a draw its size of `base`, until all pass."""
    rules, said = dict(found.rules), dict(found.said)
    while rules:
        drawn = draws(rules)
        failed = [(sizes, why) for sizes, why in zip(drawn, fails(drawn), strict=True) if why]
        if not failed:
            break
        sizes, why = failed[0]
        moved = [dim for dim in rules if sizes[dim] != base[dim]]
        cured = fails([sizes | {dim: base[dim]} for dim in moved])
        curing = [dim for dim, reason in zip(moved, cured, strict=True) if not reason]
        for dim in curing[:1] or moved or list(rules):
            del rules[dim]
            label = " ".join(f"{name}={size}" for name, size in sizes.items())
            said[dim] = f"only {base[dim]}, since with {label} {shortened(why)}"
    return Found(rules, said)


def reason_of(dim: str, reasons: Mapping[int, str]) -> str:
    """Of what failed the smallest size, with why, and how many more there were."""
    size = min(reasons)
    others = sorted(reasons)[1:4]
    more = f" (so with {', '.join(map(str, others))}{', …' if len(reasons) > 4 else ''})" if others else ""
    return f"with {dim}={size} {shortened(reasons[size])}{more}"


def shortened(why: str) -> str:
    """The first part of a reason, on one line."""
    text = " ".join(re.split(r";|: they were never", why)[0].split())
    return text if len(text) <= REASON_LIMIT else text[: REASON_LIMIT - 1] + "…"

"""Which sizes a function takes, found by trying: all that is written passes, and no more is left out."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.attach.narrowing import ALL, Found, Rule, Sizes, explore, rule_of, settle
from tilewright.cases import Draw

TAKES: dict[str, tuple[Callable[[int], bool], str]] = {
    "any": (lambda size: True, "from 1 on"),
    "multiple of the tile": (lambda size: size % 16 == 0, "multiples of 16 from 16 on"),
    "power of two of the tensor cores": (
        lambda size: size >= 16 and size & (size - 1) == 0,
        "powers of two from 16 on",
    ),
    "more than one block": (lambda size: size > 32, "from 33 on"),
    "divisor of 96": (lambda size: 96 % size == 0, ""),
}


def fails_where(takes: Callable[[Sizes], bool]) -> Callable[[list[Sizes]], list[str]]:
    return lambda tried: ["" if takes(sizes) else "it raises ValueError: no" for sizes in tried]


@pytest.mark.parametrize("name", TAKES)
def test_a_functions_limit_becomes_a_rule(name: str) -> None:
    takes, said = TAKES[name]
    found = explore(
        {"M": 96 if name.startswith("div") else 64}, {"M": 384}, fails_where(lambda sizes: takes(sizes["M"]))
    )
    rule = found.rules["M"]
    assert not said or str(rule) == said
    sizes = rule.table(384).get("choices") or rule.up_to(384)
    assert len(sizes) > 1
    assert all(takes(size) for size in sizes)
    assert (found.said == {}) == (name == "any")
    if name == "multiple of the tile":
        assert found.said["M"].startswith(
            "multiples of 16 from 16 on, since with M=1 it raises ValueError: no (so with 2, 3, 4, …)"
        )


def test_a_dimension_of_which_one_size_passes_is_left_as_it_is() -> None:
    found = explore({"M": 64, "N": 64}, {"M": 128, "N": 128}, fails_where(lambda sizes: sizes["N"] == 64))
    assert found.rules == {"M": ALL}
    assert found.said["N"].startswith("only 64, since with N=1 it raises ValueError")


def test_dimensions_that_fail_together_lose_their_range() -> None:
    def takes(sizes: Sizes) -> bool:
        return sizes["M"] * sizes["N"] <= 4096

    def draws(rules: Mapping[str, Rule]) -> list[Sizes]:
        return [{dim: 96 if dim in rules else 32 for dim in ("M", "N")}]

    base = {"M": 32, "N": 32}
    settled = settle(Found({"M": ALL, "N": ALL}, {}), base, draws, fails_where(takes))
    assert settled.rules == {"N": ALL}
    assert settled.said == {"M": "only 32, since with M=96 N=96 it raises ValueError: no"}


@given(st.integers(1, 64), st.sampled_from([1, 2, 4, 8, 16, 32, 64]), st.booleans(), st.randoms())
def test_what_a_rule_draws_passes(least: int, multiple: int, powers: bool, source: random.Random) -> None:
    def takes(size: int) -> bool:
        return size >= least and size % multiple == 0 and not (powers and size & (size - 1))

    base = next(size for size in (64, 128) if takes(size))
    found = explore({"N": base}, {"N": 4 * base}, fails_where(lambda sizes: takes(sizes["N"])))
    table = found.rules["N"].table(4096)
    drawn = Draw.model_validate(table).draw(6, source)
    assert all(takes(int(size)) for size in drawn), (found, drawn)
    first = next(size for size in range(1, 4096) if takes(size))
    assert powers or found.rules["N"].up_to(4096)[0] == first, found


@given(st.dictionaries(st.integers(1, 200), st.booleans(), min_size=1))
def test_no_rule_takes_a_size_that_failed(passed: dict[int, bool]) -> None:
    rule = rule_of(passed)
    if rule is not None:
        assert all(passed[size] for size in passed if rule.takes(size))
    elif sum(passed.values()) > 1:
        raise AssertionError("two sizes passed")

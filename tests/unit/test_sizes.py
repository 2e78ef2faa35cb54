"""Which sizes a function takes: what is written passes, and as little as possible is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.attach.sizes import CLASSES, Dimension, Search, Sizes, first_case, rule_of
from tilewright.attach.trials import interpreted, searched
from tilewright.cases import Draw
from tilewright.task import Backend, Case, Task, TaskFile, Values


def search(sizes: Sizes, takes: Callable[[Case, Values], bool], **given: Any) -> Search:
    dimensions = {name: Dimension(size, **given.get(name, {})) for name, size in sizes.items()}
    file = TaskFile.model_validate(
        {"name": "a", "entry": "a:a", "editable": ["a.py"], "cases": [sizes | {"dtype": "float32"}]}
    )
    base = {name: min(size, 96) for name, size in sizes.items()} | {"dtype": "float32"}
    tops = {name: min(size, 384) for name, size in sizes.items()}
    task = Task(file, Path())
    found = Search(task, dimensions, lambda c, v: "" if takes(c, v) else "it raises", base, tops)
    found.run()
    return found


RULES: dict[str, tuple[Callable[[int], bool], dict[str, Any]]] = {
    "any": (lambda size: True, {"min": 1, "max": 384}),
    "multiple of a tile": (lambda size: size % 16 == 0, {"min": 16, "max": 384, "multiple_of": 16}),
    "more than one block": (lambda size: size >= 32, {"min": 32, "max": 384}),
    "even": (lambda size: size % 2 == 0, {"min": 2, "max": 384, "multiple_of": 2}),
    "divisor of 96": (lambda size: 96 % size == 0, {"choices": [1, 2, 16, 32, 48, 96]}),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_found_from_a_few_sizes(rule: str) -> None:
    takes, expected = RULES[rule]
    tried = search({"N": 4096, "M": 64}, lambda case, values: takes(int(case["N"])))
    assert tried.tables({"N": 384, "M": 64}) == {"N": expected, "M": {"min": 1, "max": 64}}
    assert not tried.excluded
    draw = Draw.model_validate(expected)
    assert all(takes(int(size)) for size in draw.values(1000) or [])
    assert ("N" in tried.narrowed) is (rule != "any")


def test_a_size_is_narrowed_before_a_class_of_values_is_left_out() -> None:
    tried = search({"N": 4096}, lambda case, values: values is not Values.SPIKE or int(case["N"]) > 1)
    assert not tried.excluded
    assert (tried.rules["N"].min or 0) > 1
    assert "spike" in tried.narrowed["N"]
    everywhere = search({"N": 4096}, lambda case, values: values is not Values.SPIKE)
    assert [*everywhere.excluded] == ["spike"]
    assert everywhere.tables({"N": 384}) == {"N": {"min": 1, "max": 384}}


def test_two_dimensions_that_fail_together_are_narrowed_by_one() -> None:
    tried = search({"N": 4096, "M": 4096}, lambda case, values: int(case["N"]) * int(case["M"]) < 40_000)
    assert tried.tables({"N": 384, "M": 384})
    assert all(not tried.why(case, Values.DRAWN) for case, _, _ in filter(None, [tried._failure()]))
    assert tried._failure() is None


def test_a_head_has_its_usual_sizes() -> None:
    tried = search({"N": 128}, lambda case, values: True, N={"head": True})
    assert tried.tables({"N": 128}) == {"N": {"choices": [16, 32, 64, 80, 96, 128]}}


def test_a_users_own_range_is_kept_and_not_explored() -> None:
    given = {"min": 64, "max": 128, "multiple_of": 32}
    calls: list[Case] = []

    def takes(case: Case, values: Values) -> bool:
        calls.append(case)
        return True

    tried = search({"N": 128}, takes, N={"given": Draw.model_validate(given)})
    assert tried.tables({"N": 128}) == {"N": given}
    assert tried.tables({"N": 96}) == {"N": given | {"max": 96}}
    assert {case["N"] for case in calls} <= {64, 96, 128}
    assert first_case({"N": Dimension(4096, given=Draw(choices=[512, 1024]))}, (96, 1024)) == [{"N": 512}, {"N": 1024}]


def test_the_same_function_gives_the_same_search() -> None:
    def record() -> list[str]:
        runs: list[str] = []

        def takes(case: Case, values: Values) -> bool:
            runs.append(f"{case} {values}")
            return int(case["N"]) % 8 == 0

        search({"N": 4096, "M": 100}, takes)
        return runs

    assert record() == record()


def test_fourteen_sizes_at_most_some_of_the_users_kind() -> None:
    sizes = Dimension(4096).candidates(384)
    assert len(sizes) == 14
    assert {1, 7, 33, 64, 192, 384} <= {*sizes}
    assert Dimension(1).candidates(1) == [1]
    assert Dimension(8, empty=True).candidates(8)[0] == 0
    assert rule_of({0: True, 1: True, 7: True}, 8) == Draw(min=0, max=8)
    assert rule_of({96: True, 1: False}, 96) is None
    assert len(CLASSES) == len(Values) - 1


class Runs:
    """Stands for the trials of a function that passes everything of up to 2^20 elements."""

    backend = Backend.CPU

    def why(self, case: Case, values: Values = Values.DRAWN) -> str | None:
        return "" if int(case["M"]) * int(case["N"]) * int(case["K"]) <= 2**20 else None


def test_what_is_too_large_for_the_cpu_is_not_drawn_there() -> None:
    sizes = dict.fromkeys(("M", "N", "K"), 4096)
    file = TaskFile.model_validate(
        {"name": "a", "entry": "a:a", "editable": ["a.py"], "cases": [sizes | {"dtype": "float32"}]}
    )
    runs: Any = Runs()
    found = searched(runs, Task(file, Path()), {name: Dimension(size) for name, size in sizes.items()})
    cases, hidden, failed = interpreted(runs, found, "K")
    most = {name: table["max"] for name, table in hidden.items()}
    assert runs.why(most) == "" == failed
    assert min(most.values()) > 1
    assert [case["K"] for case in cases] == [96, 2100]

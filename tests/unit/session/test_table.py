"""The table is the one that people read."""

from __future__ import annotations

from tests.unit.session import journals
from tilewright.evaluation.results import Level
from tilewright.policy import Reason
from tilewright.session.records import Row
from tilewright.session.rows import render_row, render_table


def row(number: int, name: str, latency: float | None, reason: Reason, trust: str = "") -> Row:
    level = Level.MODELLED if trust else Level.REPLAYED
    result = None if latency is None else journals.result(latency, level=level)
    last = journals.trial(number, name, result, reason, trust=trust)[-1]
    assert isinstance(last, Row)
    return last


def test_the_table_is_exactly_the_one_of_the_method() -> None:
    rows = [
        row(0, "baseline", 0.82, Reason.BASELINE),
        row(1, "TMA replace gather", 0.39, Reason.GAIN, "harness-trusted"),
        row(2, "x", None, Reason.CRASHED),
    ]
    assert render_table(rows) == (
        "| iteration | optimization                         | latency_ms | correctness | status |\n"
        "|----------:|:-------------------------------------|-----------:|:------------|-------:|\n"
        "|         0 | baseline                             |   0.820000 | PASS        |   keep |\n"
        "|         1 | TMA replace gather [harness-trusted] |  ~0.390000 | PASS        |   keep |\n"
        "|         2 | x                                    |          - | FAIL        |  crash |\n"
    )


def test_a_name_stays_in_its_cell() -> None:
    assert render_row(row(1, "a | b", 0.5, Reason.GAIN)) == r"| 1 | a \| b | 0.500000 | PASS | keep |"

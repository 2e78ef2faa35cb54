"""The rules of a session: which of two says what, what is allowed, and how they are named."""

from __future__ import annotations

import pytest

from tilewright.errors import UsageError
from tilewright.rules import DEFAULT, Rules, defaults, rules_from


def test_rules_that_were_set_win_and_the_others_stay() -> None:
    task = Rules(accept=0.1, minor=0.03)
    session = Rules(accept=0.05).over(task)  # set, though it is the default
    assert (session.accept, session.minor, session.regression) == (0.05, 0.03, DEFAULT.regression)
    assert Rules().over(task) == task
    assert Rules.model_validate(session.model_dump()) == session


def test_differences_name_both_values() -> None:
    assert not DEFAULT.differences()
    differing = Rules(accept=0.05, session_error=0.01, stop_on_minor_gain=False).differences()
    assert differing == ["stop_on_minor_gain = false (default true)", "session_error = 0.01 (default 0.05)"]


def test_rules_that_let_more_pass_are_named_with_both_values() -> None:
    task = Rules(session_error=0.01, hidden_cases_to_keep=40, peak_memory_mib=64.0)
    assert not task.eased(task) and not Rules(patience=9, accept=0.5).eased(Rules())
    assert not Rules(session_error=0.001, hidden_cases_to_keep=50, wrong_results=3).eased(Rules())
    assert Rules(regression=0.5, wrong_results=26).over(task).eased(task) == [
        "regression = 0.5 instead of 0.005",
        "wrong_results = 26 instead of 25",
    ]
    assert Rules().eased(task) == [
        "session_error = 0.05 instead of 0.01",
        "hidden_cases_to_keep = 36 instead of 40",
        "peak_memory_mib = 0 instead of 64",
    ]


def test_every_rule_has_a_bound_a_description_and_a_place_in_the_list() -> None:
    for name, field in Rules.model_fields.items():
        assert field.description, name
        assert field.annotation is bool or len(field.metadata) >= 2, name
        assert f"{name} " in defaults()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"acept": 0.1}, "rules.acept: unknown key; did you mean 'accept'?"),
        ({"luck\x1b[2J": 1}, "rules.luck?[2J: unknown key; known keys are accept, ceiling_percent"),
        ({"accept": 2}, "rules.accept: must be less than or equal to 1"),
        ({"accept": float("nan")}, "rules.accept: must be a finite number"),
        ({"floor": 0}, "rules.floor: must be greater than or equal to 0.0005"),
        ({"hidden_cases_to_keep": 1}, "rules.hidden_cases_to_keep: must be greater than or equal to 12"),
        (
            {"patience": 0, "accept": -1},
            "rules.accept: must be greater than or equal to 0, not -1\n"
            "rules.patience: must be greater than or equal to 1, not 0",
        ),
        ({"patience": 2.5}, "rules.patience: must be a valid integer"),
        ({"patience": True}, "rules.patience: must be a valid integer"),
        ({"stop_on_minor_gain": 1}, "rules.stop_on_minor_gain: must be a valid boolean"),
    ],
)
def test_what_is_not_allowed_is_refused_with_what_is(settings: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        rules_from(settings)
    assert str(caught.value).startswith(words)


def test_a_number_without_a_fraction_is_a_number_too() -> None:
    assert rules_from({"iteration_minutes": 5, "max_iterations": 3}).iteration_minutes == 5

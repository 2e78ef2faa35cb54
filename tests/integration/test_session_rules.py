"""A session by other rules than the default: where they are set, what is recorded, and what `verify` says of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commandline import tilewright
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tests.forging import Records, failures, forge, of_kind, records
from tests.stage import judged, play, quiet, start
from tilewright.rules import DEFAULT, Rules
from tilewright.session.checkout import Checkout
from tilewright.session.loop import Loop
from tilewright.session.verification import Mark, verify

TOML = f"{SCALE_TOML}\n[rules]\naccept = 0.9\nsession_error = 0.01\nmax_iterations = 7\nhidden_cases_to_keep = 12\n"


def recorded(root: Path) -> dict[str, Any]:
    rules: dict[str, Any] = of_kind(records(root), "started")["rules"]
    return rules


@pytest.fixture
def root(make_task: Callable[..., Path]) -> Path:
    """A repository whose last session was ended by its own rules: a gain that the default takes for a large one."""
    root = make_task(SCALE_KERNEL.replace("TILE = 64", "TILE = 256"), TOML)

    async def scene(loop: Loop) -> None:
        started = await start(loop, rules=Rules(minor=0.85, session_error=0.02, floor=0.002))
        note = next(text for text in started.notes if "differ from the default" in text)
        assert "accept = 0.9 (default 0.05)" in note and "floor = 0.002 (default 0.001)" in note
        assert "patience" not in note
        assert started.budget.startswith("7 of 7 iterations left")
        assert (
            "right on 12 more hidden sizes"
            in (await judged(loop, SCALE_KERNEL.replace("TILE = 64", "TILE = 512"))).summary
        )
        loop.checkpoint()
        report = await loop.append_result("large tiles", quiet)
        assert (report.advice.action, "under 85%: gains have dried up" in report.advice.reason) == ("stop", True)
        assert "eased: session_error = 0.02 instead of 0.01; 12 hidden sizes, bound" in report.row

    play(root, scene)
    return root


def test_a_session_is_judged_and_verified_by_the_rules_that_it_recorded(root: Path) -> None:
    rules = recorded(root)
    assert rules.keys() == DEFAULT.model_dump().keys()
    set_here = {"accept": 0.9, "minor": 0.85, "session_error": 0.02, "floor": 0.002, "max_iterations": 7}
    assert rules == DEFAULT.model_dump() | set_here | {"hidden_cases_to_keep": 12}
    assert {line.mark for line in verify(Checkout(root))} == {Mark.OK}


@pytest.mark.slow
def test_recorded_rules_that_were_changed_do_not_verify(root: Path) -> None:
    def change(found: Records) -> None:
        of_kind(found, "started")["rules"]["minor"] = 0.02

    forge(root, change)  # the chain is right again: the verdicts are not
    assert re.search("the row's advice do not follow", failures(root)["verdicts"])


def test_the_command_refuses_rules_in_a_sentence(make_task: Callable[..., Path]) -> None:
    root = make_task()
    options = ("session", "start", "task", "--backend", "cpu")
    for rule, words in (
        ("acept=0.1", "rules.acept: unknown key; did you mean 'accept'?"),
        ("accept", "rules: 'accept': "),
        ("accept=much", "rules.accept: must be a valid number"),
    ):
        done = tilewright(*options, "--rules", rule, cwd=root)
        assert (done.returncode, words in " ".join(done.stderr.split())) == (2, True), done.stderr

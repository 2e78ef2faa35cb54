"""The rules of a session: the numbers that decide a verdict or end the loop. `policy` and the referees apply them.

A task's `[rules]` table and `start_session` may set those that are fields. A session records these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import ConfigDict, Field

from tilewright.cases import Strict
from tilewright.taskerrors import validated


class Rules(Strict):
    """All rules, and the fixed numbers. A share is of the incumbent's speed; a log-ratio is the logarithm
    of a speedup, nearly its gain."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    accept: float = Field(
        0.05, ge=0, le=1, description="a kept gain of less than this share gives its kind of edit lower priority"
    )
    minor: float = Field(
        0.02,
        ge=0,
        le=1,
        description="a kept gain of less than this share ends the session, if `stop_on_minor_gain` is set",
    )
    stop_on_minor_gain: bool = Field(True, description="whether a gain under `minor` ends the session")
    patience: int = Field(
        2, ge=1, le=200, description="measured iterations in a row without gain after which the session ends"
    )
    max_iterations: int = Field(25, ge=1, le=200, description="iterations after which the session ends")
    iteration_minutes: float = Field(
        10.0, ge=0.1, le=120, description="minutes of evaluation that one iteration may take"
    )
    ceiling_percent: float = Field(
        95.0, ge=1, le=1000, description="percent of the measured roofline at which the session ends; over 100: never"
    )
    regression: float = Field(
        0.005, ge=0, le=0.5, description="a case that is surely slower by more than this share is a regression"
    )
    floor: float = Field(
        0.001, ge=0.0005, le=0.5, description="least gain that counts between two replayed programs, as a log-ratio"
    )
    session_error: float = Field(
        0.05,
        ge=0.0001,
        le=0.5,
        description="probability that a session without any real gain keeps an edit; all of its comparisons share it",
    )
    peak_memory_mib: float = Field(
        0.0,
        ge=0,
        le=1e6,
        description="MiB of the GPU's memory that a call may take beyond its arguments; 0: any",
    )
    wrong_results: int = Field(
        25,
        ge=1,
        le=10_000,
        description="after so many wrong results of an entry point, over all sessions of the repository, no candidate "
        "of it is checked",
    )
    hidden_cases: int = Field(4, ge=0, le=200, description="hidden cases that every correctness check draws")
    hidden_cases_to_keep: int = Field(
        36, ge=12, le=500, description="further hidden cases that a candidate has to be right on to be kept"
    )
    """A kernel that is wrong on a quarter of what is drawn passes 36 with a probability of 0.75 ** 36 at most, 0.003%:
    strata make no draw's chance larger, since the product of their chances is at most the power of their mean."""
    hidden_seconds: float = Field(
        60.0, ge=1, le=3600, description="seconds within which a further case has to begin; later ones are left out"
    )

    resolution: ClassVar[float] = 0.0025
    """Least gain, as a log-ratio, that counts where a candidate's own process or a repository's benchmark was timed."""
    model_resolution: ClassVar[float] = 0.01
    """Least gain that counts between two modelled latencies, as a share."""
    wall_error: ClassVar[float] = 0.02
    """Error probability of the wall-clock interval; a smaller gain by the wall clock counts."""
    wall_resolution_us: ClassVar[float] = 0.5
    """Microseconds, beyond noise, by which the wall clock may show a smaller gain than the events."""
    useful: ClassVar[float] = 0.005
    """A comparison ends once its gain is surely below this, as a log-ratio."""
    end_error: ClassVar[float] = 0.01
    """Error probability of the comparison of the first program with the last, at a session's end."""

    def over(self, base: Rules) -> Rules:
        """Return `base` with those rules replaced that were set here."""
        return base.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    def eased(self, base: Rules) -> list[str]:
        """Return the rules that let more pass than those of `base`, each with both values."""
        easier = [
            name
            for name, value in self
            if (name in _EASIER_ABOVE and value > getattr(base, name))
            or (name in _EASIER_BELOW and value < getattr(base, name))
        ]
        if base.peak_memory_mib and not 0 < self.peak_memory_mib <= base.peak_memory_mib:
            easier.append("peak_memory_mib")
        return [f"{name} = {_shown(getattr(self, name))} instead of {_shown(getattr(base, name))}" for name in easier]

    def differences(self) -> list[str]:
        """Return the rules that differ from the default, each with both values."""
        changed = {name: value for name, value in self if value != getattr(DEFAULT, name)}
        return [
            f"{name} = {_shown(value)} (default {_shown(getattr(DEFAULT, name))})" for name, value in changed.items()
        ]


_EASIER_ABOVE = {"regression", "session_error", "wrong_results"}
_EASIER_BELOW = {"floor", "hidden_cases", "hidden_cases_to_keep", "hidden_seconds"}
"""Rules that decide what is kept, by which way they let more pass."""
DEFAULT = Rules()
"""The rules where nothing is set."""


def defaults() -> str:
    """Return every rule with its default, in one line."""
    return ", ".join(f"{name} {_shown(value)}" for name, value in DEFAULT)


def rules_from(settings: Mapping[str, object]) -> Rules:
    """Return the rules with these set, by name. Raises `UsageError` for a name or a value that is not allowed."""
    return validated(Rules, dict(settings), "rules.")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"

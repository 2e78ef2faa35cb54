"""The base of every value that travels between processes or into the journal."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """Immutable, strict about its fields, and free of NaN and infinity, so that it is always valid JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


def misfit(error: Exception) -> str:
    """What is wrong with data that is no record of ours, in a few words: of a validator's complaints the first one's
    place and kind, none of its text."""
    if not isinstance(error, ValidationError):
        return f"{type(error).__name__}: {error}"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"])) or "as a whole"
    return f"{place} is wrong ({first['type'].replace('_', ' ')})"

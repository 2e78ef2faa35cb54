"""The base of every value that travels between processes or into the journal."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable, strict about its fields, and free of NaN and infinity, so that it is always valid JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, cut between words, with an ellipsis where something is missing."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 2].rsplit(None, 1)[0]} …"

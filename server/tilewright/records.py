"""The base of every value that travels between processes or into the journal."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable, strict about its fields, and free of NaN and infinity, so that it is always valid JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

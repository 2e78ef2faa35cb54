"""A report as lines that people read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tilewright.wire.record import Record

LINE = 240
"""Characters of a part of a report that goes on one line."""


def fields(report: Record) -> Iterator[str]:
    """The fields that say something, a line each. The summary comes first, as a text of its own."""
    for name, value in _filled(report.model_dump(mode="json")).items():
        if name == "summary":
            yield value
        elif isinstance(value, list | dict):
            yield f"{name}:"
            for part in value if isinstance(value, list) and isinstance(value[0], dict) else [value]:
                text = json.dumps(part, ensure_ascii=False)
                yield f"  {text}" if len(text) <= LINE else json.dumps(part, ensure_ascii=False, indent=2)
        else:
            yield f"{name}:\n{value}" if "\n" in str(value) else f"{name}: {value}"


def _filled(value: Any) -> Any:
    """The value without its parts that say nothing."""
    if isinstance(value, list):
        return [_filled(part) for part in value]
    if isinstance(value, dict):
        return {name: _filled(part) for name, part in value.items() if part not in ("", None, [], {})}
    return value

"""What a GPU does otherwise than this process, with each place where a call has met it."""

from __future__ import annotations

from types import CodeType

ORDER, TF32 = "order", "tf32"
met: dict[str, dict[str, None]] = {ORDER: {}, TF32: {}}

launched: set[CodeType] = set()
"""The code of cuTile kernels that ran here."""


def meet(kind: str, place: str) -> None:
    """Note a place, once."""
    met[kind].setdefault(place)

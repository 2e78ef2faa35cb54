"""What a GPU does otherwise than this process, with each place where a call has met it."""

from __future__ import annotations

ORDER, TF32 = "order", "tf32"
met: dict[str, dict[str, None]] = {ORDER: {}, TF32: {}}


def meet(kind: str, place: str) -> None:
    """Note a place, once."""
    met[kind].setdefault(place)

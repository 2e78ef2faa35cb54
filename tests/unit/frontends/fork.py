"""A worker that says where cuTile's files go."""

from __future__ import annotations

from typing import Any


def get_ready(backend: str) -> None:
    """There is nothing to import."""


def main(*_: Any) -> None:
    from cuda.tile._cext import default_tile_context

    print(default_tile_context.config.temp_dir, default_tile_context.config.cache_dir)

"""Registries: what can be added to Tilewright as a file, by the dotted names of the objects to load."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, cast

from tilewright.errors import UsageError


class Named(Protocol):
    """What a registry holds."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


class Registry(Generic[T]):
    """Objects of one kind, each by its dotted name, `package.module:OBJECT`. An object is imported when asked for."""

    def __init__(self, kind: str, *dotted: str) -> None:
        self.kind = kind
        self.dotted = dotted

    def __iter__(self) -> Iterator[T]:
        for dotted in self.dotted:
            module, _, attribute = dotted.partition(":")
            yield cast(T, getattr(importlib.import_module(module), attribute))

    def __getitem__(self, name: str) -> T:
        """Return the object with this name. Raises `UsageError` if there is none."""
        known = {entry.name: entry for entry in self}
        if name not in known:
            raise UsageError(f"no {self.kind} {name!r}: there are {', '.join(known)}")
        return known[name]


@contextlib.contextmanager
def registered(registry: Registry[T], dotted: str) -> Iterator[None]:
    """Let a registry of this process hold one more object meanwhile. For tests."""
    before, registry.dotted = registry.dotted, (*registry.dotted, dotted)
    try:
        yield
    finally:
        registry.dotted = before

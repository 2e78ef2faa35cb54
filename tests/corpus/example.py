"""What an example of the corpus is, and what their input makers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Case = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A correct kernel with its host code.

    `make_inputs(case, generator)` gives keyword arguments for `run`, which returns a tensor or a tuple of them;
    `reference` takes the same arguments, floats in float64, and returns what is exact. `tolerance` is (absolute,
    relative); without one the output's dtype decides. `covers` names what the example is in the corpus for.
    """

    name: str
    run: Callable[..., Any]
    make_inputs: Callable[[Case, torch.Generator], dict[str, Any]]
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    tolerance: tuple[float, float] | None = None
    arch: str = "sm_90"
    covers: str = ""


def normal(case: Case, generator: torch.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed values of the case's dtype (float32 where it names none)."""
    values = torch.randn(shape, generator=generator, device=generator.device) * scale
    return values.to(getattr(torch, case.get("dtype", "float32")))


def integers(generator: torch.Generator, low: int, high: int, *shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Integers of [low, high)."""
    return torch.randint(low, high, shape, generator=generator, device=generator.device).to(dtype)


def power_of_two(size: int) -> int:
    """The least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()

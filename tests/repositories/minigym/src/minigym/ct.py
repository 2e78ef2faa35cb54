"""The tile language of this library, as far as its kernels need it: numpy on blocks of rows."""

from collections.abc import Callable
from typing import TypeVar

FunctionT = TypeVar("FunctionT", bound=Callable[..., None])


def kernel(function: FunctionT) -> FunctionT:
    return function


def launch(grid: int, function: Callable[..., None], arguments: tuple[object, ...]) -> None:
    for block in range(grid):
        function(block, *arguments)

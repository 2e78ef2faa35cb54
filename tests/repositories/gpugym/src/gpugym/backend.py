"""Which implementation an operation takes, and what the device is."""

from collections.abc import Callable
from typing import Any

import torch

_IMPLEMENTED = ("cutile",)
_REGISTRY: dict[tuple[str, str], Callable[..., Any]] = {}
_current = "cutile"


def get_device_capability() -> tuple[int, int]:
    """The compute capability that kernels are chosen by; (0, 0) without a GPU."""
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


def is_backend_available(name: str) -> bool:
    return name in _IMPLEMENTED and torch.cuda.is_available()


def set_backend(name: str) -> None:
    global _current
    if not is_backend_available(name):
        raise ValueError(f"backend {name} is not available")
    _current = name


def get_current_backend() -> str:
    return _current


def register_impl(operation: str, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _REGISTRY[operation, backend] = function
        return function

    return register


def dispatch(operation: str) -> Callable[..., Any]:
    return _REGISTRY[operation, _current]

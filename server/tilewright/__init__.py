"""Tilewright: verified, logged performance experiments on GPU kernels."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.api import capture, compare_programs
    from tilewright.tools import run

__version__ = "0.1.0"
__all__ = ["capture", "compare_programs", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    from tilewright import api, tools  # on demand: most processes need neither

    return getattr(tools if name == "run" else api, name)

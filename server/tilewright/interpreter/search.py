"""`exhaustive_search` without a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuda.tile import tune


def first_config(
    search_space: Sequence[Any],
    stream: Any,
    grid_fn: Callable[[Any], Any],
    kernel: Any,
    args_fn: Callable[[Any], tuple[Any, ...]],
    hints_fn: Callable[[Any], dict[str, Any]] | None = None,
    *,
    quiet: bool = False,
    single_run_timeout_sec: float | None = None,
    flush_l2: bool = True,
) -> Any:
    """`exhaustive_search` without a clock: the first config of the space, and a line that says so."""
    if not search_space:
        raise ValueError("Search space is empty.")
    if not quiet:
        print("tilewright: no GPU to time on; exhaustive_search takes the first config of its space")
    return untimed(search_space[0])


def untimed(config: Any) -> Any:
    """A search's result that was not measured."""
    taken = tune.Measurement(config=config, mean_us=0.0, num_samples=0, error_margin_us=0.0)
    return tune.TuningResult(best=taken, successes=(taken,), failures=())

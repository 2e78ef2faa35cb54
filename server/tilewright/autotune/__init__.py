"""The search for a kernel's best config: its space, what is pruned and why, the race, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.autotune.report import AutotuneReport


def search(
    task: str | Path,
    space: Mapping[str, Sequence[int | float | bool | str]] | None = None,
    *,
    root: str | Path = ".",
    backend: str = "auto",
    kind: str = "",
    apply: bool = False,
    arch: str = "sm_90",
    wrapper: bool = False,
) -> AutotuneReport:
    """Search the configs of the task in folder `task`, of the repository at `root`; waits until it is done.

    `space` gives the values to try by tunable parameter. Without it a space is proposed, for a kernel of `kind`
    (matmul, attention or rows), or of the kind that its source shows. `backend` is auto, cuda or cpu; cpu models
    `arch`. `apply` writes the best config into the editable files, `wrapper` a module that tunes once into
    `sandbox/autotune/`. Raises `tilewright.errors.UsageError`.
    """
    import asyncio
    import math

    from tilewright.autotune.tuner import Tuner
    from tilewright.session.beginning import task_path
    from tilewright.session.checkout import Checkout
    from tilewright.task import Backend

    async def quiet(_: str) -> None: ...

    async def run() -> AutotuneReport:
        checkout = Checkout(Path(root).resolve())
        tuner = Tuner(checkout)
        chosen = None if backend == "auto" else Backend(backend)
        folder = task_path(checkout, str(task))
        try:
            return await tuner.tune(folder, quiet, chosen, arch, space, kind, apply, wrapper, math.inf)
        finally:
            await tuner.close()

    return asyncio.run(run())

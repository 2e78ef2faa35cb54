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
    """Search for the best config of a task's kernel, and return when the search is done.

    `task`: the task's folder, in the repository at `root`. `space`: the values to try for each tunable parameter.
    Without it, a space is proposed that suits the `kind` of kernel: matmul, attention or rows. Without `kind`, the
    kernel's source decides. `backend`: auto, cuda or cpu; cpu models the architecture `arch`. `apply`: write the best
    config into the editable files. `wrapper`: write a module into `sandbox/autotune/` that searches at the first call
    for each set of shapes and dtypes. Raises `tilewright.errors.UsageError` if the task cannot be searched.
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

"""`autotune`: the best config of a task's kernel."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tilewright.autotune.report import AutotuneReport
from tilewright.tools.dump import TASK
from tilewright.tools.loop import Device, backend_of
from tilewright.tools.tool import Choices, Effect, Params, Tell, Tool
from tilewright.tools.workspace import Workspace


class Autotune(Params):
    """Race the configs of a search space on the GPU, or rank them by the model, and confirm the best."""

    task: str = Field("", description=TASK)
    space: Choices = Field(
        {}, description="values to try for each tunable parameter (constant of an editable file, hint of @ct.kernel)"
    )
    kind: Literal["matmul", "attention", "rows"] | None = Field(
        None, description="kind of kernel to propose a space for; default: by its source"
    )
    apply: bool = Field(False, description="write the best config into the editable files")
    wrapper: bool = Field(False, description="write a module that tunes once for each set of shapes and dtypes")
    backend: Device = Field("auto", description="cpu ranks by the model")


async def _autotune(workspace: Workspace, given: Autotune, tell: Tell) -> AutotuneReport:
    folder, arch = workspace.loop.task_of(given.task)
    return await workspace.tuner.tune(
        folder, tell, backend_of(given.backend), arch, given.space, given.kind or "", given.apply, given.wrapper,
        workspace.wait_s,
    )  # fmt: skip


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("autotune", "Search the best config", Effect.OVERWRITES, Autotune, AutotuneReport, _autotune),
)

"""`dump_ir`: what the compiler makes of a task's kernels."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from tilewright.configuration import CONFIGURED, FOLDER
from tilewright.session.reports import DumpReport
from tilewright.tools.tool import Arch, Effect, Params, Settings, Tell, Tool
from tilewright.tools.workspace import Workspace

TASK = f"{FOLDER}; default: the session's, else {CONFIGURED}"
CONFIG = "tunable parameters and hints to set for this call, as in TILE=64 or occupancy=4, named as in autotune's space"


class DumpIr(Params):
    """Compile the working tree's kernels. Say what costs time and what to do, then show one stage. Needs no GPU."""

    task: str = Field("", description=TASK)
    arch: list[Arch] = Field([], max_length=12, description="GPU architectures, as in sm_90")
    stage: Literal["resources", "cutile_ir", "tile_ir", "ttir", "ttgir", "ptx", "sass", "remarks", "mix"] = Field(
        "resources", description="what to show; mix: instructions per source line; ttir, ttgir, ptx: Triton only"
    )
    compare: Literal["incumbent"] | None = Field(None, description="show what changed against the session's incumbent")
    compile_seconds: float = Field(60.0, ge=1, le=300, description="limit per kernel and architecture")
    case: Settings = Field({}, description="values to compile with instead of the first case's")
    config: Settings = Field({}, description=CONFIG)


async def _dump(workspace: Workspace, given: DumpIr, tell: Tell) -> DumpReport:
    folder, default = workspace.loop.task_of(given.task)
    report = await workspace.dumper.dump(
        folder, list(given.arch) or [default], given.stage, tell, workspace.wait_s, given.compare,
        given.compile_seconds, given.case, given.config,
    )  # fmt: skip
    if not workspace.whole or not report.text:
        return report
    return report.model_copy(update={"text": (workspace.loop.checkout.root / report.file).read_text()})


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("dump_ir", "What the compiler made", Effect.REPEATS, DumpIr, DumpReport, _dump),
)

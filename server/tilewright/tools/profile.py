"""`profile`: what bounds a task's kernel."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from tilewright.profile.diagnosis import ProfileReport
from tilewright.tools.dump import CONFIG, TASK
from tilewright.tools.loop import Device, backend_of
from tilewright.tools.tool import Effect, Params, Settings, Tell, Tool
from tilewright.tools.workspace import Workspace


class Profile(Params):
    """Time the working tree's candidate alone. Say what bounds it, on what evidence, and what to try first."""

    task: str = Field("", description=TASK)
    backend: Device = Field("auto", description="cpu models the latency")
    config: Settings = Field({}, description=CONFIG)


async def _profile(workspace: Workspace, given: Profile, tell: Tell) -> ProfileReport:
    from tilewright.profile.profiler import profile

    folder, arch = workspace.loop.task_of(given.task)
    return await profile(
        workspace.loop, folder, tell, backend_of(given.backend), arch, workspace.wait_s, config=given.config
    )


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("profile", "What bounds the kernel", Effect.REPEATS, Profile, ProfileReport, _profile),
)

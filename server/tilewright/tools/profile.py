"""`profile`: what bounds a task's kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from tilewright.profile.report import ProfileReport
from tilewright.tools.dump import CONFIG, TASK
from tilewright.tools.lines import fields
from tilewright.tools.loop import Device, backend_of
from tilewright.tools.tool import Effect, Params, Settings, Tell, Tool
from tilewright.tools.workspace import Workspace


class Profile(Params):
    """Time the working tree's candidate alone and say what bounds it, by which evidence, and what to try first."""

    task: str = Field("", description=TASK)
    backend: Device = Field("auto", description="cpu models the latency")
    config: Settings = Field({}, description=CONFIG)


async def _profile(workspace: Workspace, given: Profile, tell: Tell) -> ProfileReport:
    folder, arch = workspace.loop.task_of(given.task)
    profiler = workspace.profiler
    report = await profiler.profile(
        folder, tell, backend_of(given.backend), arch, workspace.wait_s, config=given.config
    )
    if not workspace.whole:
        return report
    cases = [
        case.model_copy(update={"kernels": call})
        for case, call in zip(report.cases, profiler.kernels.cases, strict=False)
    ]
    return report.model_copy(update={"cases": cases or report.cases})


def _lines(report: ProfileReport) -> Iterator[str]:
    from tilewright.profile.kernels import table

    plain = [case.model_copy(update={"kernels": None}) for case in report.cases]
    yield from fields(report.model_copy(update={"cases": plain}))
    for case in report.cases:
        if case.kernels is not None:
            yield "\n".join(["", f"the kernels of a call, {case.case}:", *table(case.kernels)])


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool("profile", "What bounds the kernel", Effect.REPEATS, Profile, ProfileReport, _profile, lines=_lines),
)

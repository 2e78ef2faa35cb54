"""The tools of the loop: start a session; check, measure, keep or revert a candidate; log the iteration."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from tilewright.configuration import CONFIGURED, FOLDER, configuration_of
from tilewright.errors import UsageError
from tilewright.policy import RootCause, VerdictKind
from tilewright.rules import defaults, rules_from
from tilewright.session.reports import NAME_LIMIT, IterationReport, StatusReport
from tilewright.task import Backend
from tilewright.tools.tool import Arch, Effect, Params, ReportT, Settings, Tell, Tool
from tilewright.tools.workspace import Workspace

if TYPE_CHECKING:
    from tilewright.session.loop import Loop

Device = Literal["auto", "cuda", "cpu"]
WHAT = "what was tried, in a few words"
CAUSE = "what bounds the kernel, if known; after scheduling or unknown, ask the user"


def backend_of(device: Device) -> Backend | None:
    """None: the task's own, where this machine has it."""
    return None if device == "auto" else Backend(device)


class StartSession(Params):
    """Begin a session: make a branch, check the machine, measure the baseline as iteration 0. A session under way
    goes on instead."""

    task: str = Field(
        "", description=f"{FOLDER}, relative to the server's root or a command's current folder; default: {CONFIGURED}"
    )
    backend: Device = Field("auto", description="cuda measures; cpu interprets and models the latency")
    arch: Arch = Field("sm_90", description="architecture that cpu models")
    rules: Settings = Field({}, description=f"these override [rules] of task.toml; defaults: {defaults()}")
    include_dirty: bool = Field(False, description="take uncommitted edits into the baseline")
    resume: bool = Field(False, description="go on with the last session although it has ended")


class SessionStatus(Params):
    """Show the incumbent, each iteration and its outcome, the candidate under way, the budget, and what to do next."""


class RunIteration(Params):
    """Try an edit in one call: check, benchmark, keep or revert, log. If somebody has to decide, it stops, and `next`
    lists the choices. After a time-out, the same call goes on."""

    optimization: str = Field(min_length=1, max_length=NAME_LIMIT, description=WHAT)
    root_cause: RootCause | None = Field(None, description=CAUSE)
    go_on: bool = Field(False, description="after a stop: take the choice that its `next` gives for this flag")


class RunCorrectness(Params):
    """Check the edited files against the float64 reference, on visible and hidden cases with secret seeds. For a
    repository task, run its tests."""


class RunBenchmark(Params):
    """Measure the candidate that passed the check, in turns with the incumbent, and give the verdict."""


class GitCheckpoint(Params):
    """Commit the candidate on the session's branch, if the benchmark's verdict is keep."""


class Revert(Params):
    """Put the editable files back to the incumbent's. A recovery ref keeps what they held."""


class AppendResult(Params):
    """Close the iteration: add its row to the table, with the server's own figures, and say whether to go on."""

    optimization: str = Field(min_length=1, max_length=NAME_LIMIT, description=WHAT)
    root_cause: RootCause | None = Field(None, description=CAUSE)


async def _start(workspace: Workspace, given: StartSession, tell: Tell) -> StatusReport:
    configured = configuration_of(workspace.loop.checkout.root)
    if not (task := given.task or configured.task):
        raise UsageError(f"start_session needs task: {FOLDER}; or set {CONFIGURED}")
    return await workspace.loop.start(
        task, tell, backend_of(given.backend) or configured.device, given.arch,
        rules_from(given.rules).over(configured.rules), given.include_dirty, workspace.wait_s, given.resume,
    )  # fmt: skip


def _at_once(work: Callable[[Loop], ReportT]) -> Callable[[Workspace, Any, Tell], Awaitable[ReportT]]:
    """The work of a tool that waits for nothing, and takes no arguments."""

    async def answer(workspace: Workspace, given: Any, tell: Tell) -> ReportT:
        return work(workspace.loop)

    return answer


async def _iteration(workspace: Workspace, given: RunIteration, tell: Tell) -> IterationReport:
    from tilewright.session.iteration import run_iteration

    return await run_iteration(
        workspace.loop, given.optimization, tell, given.root_cause, given.go_on, workspace.wait_s
    )


async def _append(workspace: Workspace, given: AppendResult, tell: Tell) -> IterationReport:
    return await workspace.loop.append_result(given.optimization, tell, given.root_cause, workspace.wait_s)


def _status_lines(report: StatusReport) -> Iterator[str]:
    yield report.summary
    if report.session:
        yield f"session {report.session}{f', on branch {report.branch}' if report.branch else ''}"
    yield from filter(None, (*report.tried, *report.notes, report.pending, report.budget, f"next: {report.next}"))


def _iteration_lines(report: IterationReport) -> Iterator[str]:
    yield report.summary
    if report.row:
        number, name, latency, _, status = report.row.strip("| ").split(" | ")
        yield f"{number}  {status}  {latency}{' ms' if latency != '-' else ''}  {name}"
    if report.interval is not None and not report.row:
        yield f"{report.speedup}x, {report.interval[0]} to {report.interval[1]}"
    if report.advice is not None and report.advice.action != "stop":
        yield f"{report.advice.action}: {report.advice.reason}"
    yield from filter(None, [report.message, report.output, report.cases])
    if report.recovery:
        yield f"the reverted files are kept as {report.recovery}"
    yield f"next: {report.next}"
    if report.row:
        yield "the report: sandbox/report.html"


def _step(
    name: str, title: str, effect: Effect, params: type[Params], work: Any, command: str = ""
) -> Tool[Any, IterationReport]:
    """A tool that takes the candidate a step, or all steps."""
    return Tool(
        name, title, effect, params, IterationReport, work, command, _iteration_lines,
        passed=lambda report: report.status in (None, "passed") and (not command or _is_kept(report)),
    )  # fmt: skip


def _is_kept(report: IterationReport) -> bool:
    return report.verdict is not None and report.verdict.kind is VerdictKind.KEEP


TOOLS: tuple[Tool[Any, Any], ...] = (
    Tool(
        "start_session", "Start a session", Effect.ADDS, StartSession, StatusReport, _start, "session start",
        _status_lines, passed=lambda report: report.phase == "ready",
    ),
    Tool(
        "session_status", "Where the loop stands", Effect.READS, SessionStatus, StatusReport,
        _at_once(lambda loop: loop.status()), "session status", _status_lines,
    ),
    _step("run_iteration", "Try one edit", Effect.DISCARDS, RunIteration, _iteration, "try"),
    _step(
        "run_correctness", "Check the candidate", Effect.REPEATS, RunCorrectness,
        lambda workspace, given, tell: workspace.loop.run_correctness(tell, workspace.wait_s),
    ),
    _step(
        "run_benchmark", "Measure the candidate", Effect.REPEATS, RunBenchmark,
        lambda workspace, given, tell: workspace.loop.run_benchmark(tell, workspace.wait_s),
    ),
    _step("git_checkpoint", "Keep the candidate", Effect.ADDS, GitCheckpoint, _at_once(lambda loop: loop.checkpoint())),
    _step("revert", "Go back to the incumbent", Effect.DISCARDS, Revert, _at_once(lambda loop: loop.revert())),
    _step("append_result", "Log the iteration", Effect.ADDS, AppendResult, _append),
)  # fmt: skip

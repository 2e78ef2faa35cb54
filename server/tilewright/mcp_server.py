"""The MCP server: tools and resources as thin adapters over the loop. It imports nothing heavy before it is asked.

Standard output carries the protocol alone; logging goes to standard error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import anyio
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from tilewright import __version__
from tilewright.autotune.report import AutotuneReport
from tilewright.policy import RootCause
from tilewright.profile.report import ProfileReport
from tilewright.protocol import refusals
from tilewright.rules import defaults, rules_from
from tilewright.serveroot import NoRepository
from tilewright.session.reports import (
    NAME_LIMIT,
    AppendReport,
    BenchmarkReport,
    CheckpointReport,
    CorrectnessReport,
    DumpReport,
    RevertReport,
    StatusReport,
)
from tilewright.skillserving import SkillsExtension
from tilewright.task import Backend
from tilewright.toolserver import ToolServer

if TYPE_CHECKING:
    from tilewright.autotune.tuner import Tuner
    from tilewright.profile.profiler import Profiler
    from tilewright.session.dumping import Dumper
    from tilewright.session.jobs import Jobs
    from tilewright.session.loop import Loop

INSTRUCTIONS = """Tilewright makes a GPU kernel faster, one verified experiment at a time.
The loop: start_session once; then for each iteration edit the editable files (ONE optimization), run_correctness,
run_benchmark, and as the verdict says git_checkpoint or revert, then append_result. session_status always tells what
to do next. Every figure in the log is the server's own measurement. In answers, `state` running means: make the same
call again to wait; `status` is passed, or how the candidate failed; a field without a value is left out. A cancelled
or timed-out call leaves its work running: the same call again waits for it and gets its result. Work that no call waits
for ends after two minutes, or when another call needs the machine."""

ResultT = TypeVar("ResultT")

Config = Annotated[
    dict[str, int | float | bool | str],
    Field(description="tunable parameters to set for this call, as in autotune's space"),
]
Arch = Annotated[str, Field(pattern=r"^sm_\d{2,3}$", examples=["sm_90"])]
Device = Literal["auto", "cuda", "cpu"]
TaskFolder = Annotated[str, Field(description="folder of task.toml; default: the session's")]


def _hints(reads: bool = False, destroys: bool = False, repeats: bool = False) -> ToolAnnotations:
    """What clients may rely on when they approve a call by themselves. No tool reaches out of the machine."""
    return ToolAnnotations(
        read_only_hint=reads, destructive_hint=destroys, idempotent_hint=repeats, open_world_hint=False
    )


_READS = _hints(reads=True, repeats=True)
_REPEATS = _hints(repeats=True)
"""Of a tool that runs the candidate or writes files of its own; the same call again changes nothing more."""
_ADDS = _hints()
_OVERWRITES = _hints(destroys=True)
_DISCARDS = _hints(destroys=True, repeats=True)


class Desk:
    """What the tools of one checkout work on, made at the first call that needs it. Without one they say why."""

    def __init__(self, root: Path | NoRepository, jobs: Jobs | None = None) -> None:
        self._root = root
        self._jobs = jobs
        self._loop: Loop | None = None
        self._dumper: Dumper | None = None
        self._tuner: Tuner | None = None
        self._profiler: Profiler | None = None

    @property
    def loop(self) -> Loop:
        if isinstance(self._root, NoRepository):
            raise self._root
        if self._loop is None:
            from tilewright.session.loop import Loop

            self._loop = Loop(self._root, self._jobs)
        return self._loop

    @property
    def dumper(self) -> Dumper:
        if self._dumper is None:
            from tilewright.session.dumping import Dumper

            self._dumper = Dumper(self.loop.checkout, self.loop.jobs)
        return self._dumper

    @property
    def tuner(self) -> Tuner:
        if self._tuner is None:
            from tilewright.autotune.tuner import Tuner

            self._tuner = Tuner(self.loop.checkout, self.loop.jobs)
        return self._tuner

    @property
    def profiler(self) -> Profiler:
        if self._profiler is None:
            from tilewright.profile.profiler import Profiler

            self._profiler = Profiler(self.loop.checkout, jobs=self.loop.jobs)
        return self._profiler

    async def close(self) -> None:
        """End all work, and let go of the checkout."""
        if self._loop is not None:
            await self._loop.close()
        if self._dumper is not None:
            await self._dumper.close()


def _progress(context: Context[Any, Any]) -> Callable[[str], Awaitable[None]]:
    count = 0

    async def report(text: str) -> None:
        nonlocal count
        count += 1
        await context.report_progress(count, None, text)

    return report


async def _told(
    work: Callable[[], ResultT | Awaitable[ResultT]], refusal: type[ToolError | ResourceNotFoundError] = ToolError
) -> ResultT:
    """Run a tool's or a resource's work; a `UsageError` reaches the caller as a `refusal`."""
    from tilewright.errors import UsageError
    from tilewright.files import storage_problem
    from tilewright.repository import RepositoryError

    try:
        result = work()
        return await result if isinstance(result, Awaitable) else result
    except (UsageError, NoRepository, RepositoryError) as error:
        raise refusal(str(error)) from None
    except OSError as error:
        raise refusal(storage_problem(error) or str(error)) from None


def build_server(desk: Desk) -> MCPServer[None]:
    """The server whose tools work at `desk`."""

    @asynccontextmanager
    async def lifespan(_: MCPServer[None]) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            with anyio.CancelScope(shield=True):  # a client that closed its end cancels all that is outside
                await desk.close()

    mcp = ToolServer(
        "tilewright", title="Tilewright", version=__version__, instructions=INSTRUCTIONS, lifespan=lifespan,
        log_level="WARNING", extensions=[SkillsExtension()],
        subscriptions=False,  # nothing that is listed changes, and no resource tells of its updates
    )  # fmt: skip
    mcp.middleware.append(refusals(mcp))

    @mcp.tool(title="Start a session", annotations=_ADDS)
    async def start_session(
        context: Context[Any, Any],
        task: Annotated[str, Field(description="folder of task.toml, relative to the server's root")],
        backend: Annotated[Device, Field(description="cuda measures; cpu interprets and models")] = "auto",
        arch: Annotated[Arch, Field(description="what cpu models")] = "sm_90",
        rules: Annotated[
            dict[str, int | float | bool],
            Field(description=f"by name, before task.toml's [rules] and the default: {defaults()}"),
        ] = {},  # noqa: B006
        include_dirty: Annotated[bool, Field(description="take uncommitted edits into the baseline")] = False,
        allow_unconfined: Annotated[
            bool, Field(description="go on where this machine cannot confine a candidate's code")
        ] = False,
    ) -> StatusReport:
        """Begin a session: its branch, environment check, and the baseline as iteration 0. Resumes one under way."""
        chosen = None if backend == "auto" else Backend(backend)
        return await _told(
            lambda: desk.loop.start(
                task, _progress(context), chosen, arch, rules_from(rules), include_dirty, allow_unconfined
            )
        )

    @mcp.tool(title="Where the loop stands", annotations=_READS)
    async def session_status() -> StatusReport:
        """The incumbent, every iteration and how it ended, what is pending, the budget, and what to do next."""
        return await _told(lambda: desk.loop.status())

    @mcp.tool(title="Check the candidate", annotations=_REPEATS)
    async def run_correctness(context: Context[Any, Any]) -> CorrectnessReport:
        """Check the edited files against the float64 reference: visible and hidden cases, secret seeds. Of a repository
        task, by its own tests."""
        return await _told(lambda: desk.loop.run_correctness(_progress(context)))

    @mcp.tool(title="Measure the candidate", annotations=_REPEATS)
    async def run_benchmark(context: Context[Any, Any]) -> BenchmarkReport:
        """Measure the candidate that passed in turns with the incumbent, and give the verdict."""
        return await _told(lambda: desk.loop.run_benchmark(_progress(context)))

    @mcp.tool(title="Keep the candidate", annotations=_ADDS)
    async def git_checkpoint() -> CheckpointReport:
        """Commit the measured candidate on the session's branch; only what was measured and won."""
        return await _told(lambda: desk.loop.checkpoint())

    @mcp.tool(title="Go back to the incumbent", annotations=_DISCARDS)
    async def revert() -> RevertReport:
        """Put the editable files back to the incumbent's; what is thrown away stays reachable under a recovery ref."""
        return await _told(lambda: desk.loop.revert())

    @mcp.tool(title="Log the iteration", annotations=_ADDS)
    async def append_result(
        context: Context[Any, Any],
        optimization: Annotated[
            str, Field(min_length=1, max_length=NAME_LIMIT, description="what was tried, in a few words")
        ],
        root_cause: Annotated[
            RootCause | None, Field(description="what bounds the kernel, if known; scheduling and unknown escalate")
        ] = None,
    ) -> AppendReport:
        """Close the iteration with one row of the table, in the server's own figures; says whether to go on."""
        return await _told(lambda: desk.loop.append_result(optimization, _progress(context), root_cause))

    @mcp.tool(title="What the compiler made", annotations=_REPEATS)
    async def dump_ir(
        context: Context[Any, Any],
        task: TaskFolder = "",
        arch: Annotated[list[Arch], Field(max_length=12, description="architectures")] = [],  # noqa: B006
        stage: Annotated[
            Literal["resources", "cutile_ir", "tile_ir", "ttir", "ttgir", "ptx", "sass", "remarks", "mix"],
            Field(description="what to show; mix: instructions per source line; ttir, ttgir: of Triton"),
        ] = "resources",
        compare: Annotated[
            Literal["incumbent"] | None, Field(description="show what changed against the session's incumbent")
        ] = None,
        compile_seconds: Annotated[float, Field(ge=1, le=300, description="for each kernel and architecture")] = 60.0,
        case: Annotated[
            dict[str, int | float | bool | str],
            Field(description="values to compile with instead of the first case's"),
        ] = {},  # noqa: B006
        config: Config = {},  # noqa: B006
    ) -> DumpReport:
        """Compile the working tree's kernels, GPU or not: what costs time and what to do, then the stage asked for."""

        async def work() -> DumpReport:
            folder, default = desk.loop.task_of(task)
            return await desk.dumper.dump(
                folder,
                arch or [default],
                stage,
                _progress(context),
                compare=compare,
                compile_s=compile_seconds,
                case=case,
                config=config,
            )

        return await _told(work)

    @mcp.tool(title="Search the best config", annotations=_OVERWRITES)
    async def autotune(
        context: Context[Any, Any],
        task: TaskFolder = "",
        space: Annotated[
            dict[str, list[int | float | bool | str]],
            Field(description="values by tunable parameter (constants of editable files, hints of @ct.kernel)"),
        ] = {},  # noqa: B006
        kind: Annotated[
            Literal["matmul", "attention", "rows"] | None,
            Field(description="kind of kernel to propose a space for; else as its source shows"),
        ] = None,
        apply: Annotated[bool, Field(description="write the best config into the editable files")] = False,
        wrapper: Annotated[bool, Field(description="write a module that tunes on the first call for a key")] = False,
        backend: Annotated[Device, Field(description="cpu ranks by the model")] = "auto",
    ) -> AutotuneReport:
        """Race the configs of a search space on the GPU, or rank them by the model, and confirm the best."""

        async def work() -> AutotuneReport:
            folder, arch = desk.loop.task_of(task)
            chosen = None if backend == "auto" else Backend(backend)
            return await desk.tuner.tune(folder, _progress(context), chosen, arch, space, kind or "", apply, wrapper)

        return await _told(work)

    @mcp.tool(title="What bounds the kernel", annotations=_REPEATS)
    async def profile(
        context: Context[Any, Any],
        task: TaskFolder = "",
        backend: Annotated[Device, Field(description="cpu models the latency")] = "auto",
        config: Config = {},  # noqa: B006
    ) -> ProfileReport:
        """Time the working tree's candidate alone and say what bounds it, by which evidence, and what to try first."""

        async def work() -> ProfileReport:
            folder, arch = desk.loop.task_of(task)
            chosen = None if backend == "auto" else Backend(backend)
            return await desk.profiler.profile(folder, _progress(context), chosen, arch, config=config)

        return await _told(work)

    @mcp.resource("tilewright://results", mime_type="text/markdown")
    async def results() -> str:
        """The current session's table, perf_results.md."""
        path = (await _told(lambda: desk.loop, ResourceNotFoundError)).checkout.sandbox / "perf_results.md"
        if not path.is_file():
            raise ResourceNotFoundError("no session has left a table yet")
        return path.read_text(encoding="utf-8")

    @mcp.resource("tilewright://journal", mime_type="application/x-ndjson")
    async def journal() -> str:
        """The current session's journal: every run with its secret, its result and its verdict."""
        folder = (await _told(lambda: desk.loop, ResourceNotFoundError)).checkout.current_folder()
        if folder is None:
            raise ResourceNotFoundError("no session has left a journal yet")
        return (folder / "journal.jsonl").read_text(encoding="utf-8")

    @mcp.resource("tilewright://dump/{identity}", mime_type="text/plain")
    async def dump(identity: str) -> str:
        """The whole text of an earlier dump_ir."""
        text = (await _told(lambda: desk.dumper, ResourceNotFoundError)).text(identity)
        if text is None:
            raise ResourceNotFoundError(f"no dump {identity}; call dump_ir again")
        return text

    @mcp.prompt(name="optimise-kernel", title="Make a kernel faster")
    async def optimise_kernel(
        task: Annotated[str, Field(description="folder that holds task.toml, relative to the server's root")],
        goal: Annotated[str, Field(description="when to stop, in your words; empty: when the session says so")] = "",
    ) -> str:
        """Run a whole session on a task, by the rules of the skill perf-loop."""
        from tilewright.skillpack import HOST, MANIFEST, load_skill

        rules = load_skill(HOST).files[MANIFEST].decode().split("---\n", 2)[2]
        wish = f" The user's goal: {goal}." if goal else ""
        pages = "The pages that it links to are resources, as skill://perf-loop/references/playbook.md is."
        return f"Make the kernel of the task `{task}` faster with Tilewright's tools.{wish} {pages}\n\n{rules}"

    return mcp


def serve(root: Path | NoRepository) -> None:
    """Run on standard input and output until the client leaves or the process is told to stop."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)

    desk = Desk(root)
    ending: list[asyncio.Task[None]] = []

    async def leave() -> None:
        try:
            await desk.close()
        finally:
            os._exit(0)  # the thread that reads standard input cannot be woken; every record is on disk already

    async def run() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(
                number, lambda: ending.append(asyncio.ensure_future(leave())) if not ending else None
            )
        try:
            await build_server(desk).run_stdio_async()
        except* BrokenPipeError:  # the client was killed
            await leave()

    asyncio.run(run())

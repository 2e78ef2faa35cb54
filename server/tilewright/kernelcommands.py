"""The commands on a task's kernel as it is, outside of any session."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from tilewright.session.checkout import Checkout
from tilewright.task import case_label
from tilewright.terminal import (
    HERE,
    Root,
    chosen_backend,
    console,
    errors,
    failed,
    in_loop,
    print_progress,
    print_report,
    told,
)  # fmt: skip
from tilewright.wire.record import Record

if TYPE_CHECKING:
    from tilewright.autotune.tuner import Tuner
    from tilewright.profile.profiler import Profiler

ToolT = TypeVar("ToolT", "Tuner", "Profiler")
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="a tunable parameter for this call alone, as in TILE_M=64; may be repeated"),
]

kernel_app = typer.Typer()


@kernel_app.command()
def check(
    path: Annotated[Path, typer.Argument(help="a task's folder, or a file in it, from the root")],
    root: Root = HERE,
) -> None:
    """Look for races, unwritten memory, padding, bounds and overflow in the kernels of a task. Needs no GPU.

    Triton and torch tasks are compared with their reference instead, and Triton kernels are compiled. The functions of
    task.py are tried first. For a repository task, its tests run once.
    """
    from tilewright.session.checks import check_task, in_words

    found = told(lambda: asyncio.run(check_task(root, path, print_progress)))
    for defect in found.defects:
        typer.echo(f"{defect.text}; {case_label(defect.case)}")
    if not found.defects:
        console.print(in_words(found), markup=False)
    raise typer.Exit(0 if found.passed else 1)


def one_each(option: str, texts: Sequence[str] | None, example: str = "M=700") -> dict[str, Any]:
    """Names and values from texts such as `example`. Ends the command where one is written otherwise."""
    from tilewright.knobs import SpaceError, parse_values

    try:
        return {name: value for name, (value,) in parse_values(texts or []).items()}
    except (SpaceError, ValueError):
        raise failed(f"{option} takes one value of a name, as in {option} {example}") from None


@kernel_app.command(name="dump-ir")
def dump_ir(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml; default: the session's task")] = "",
    arch: Annotated[list[str] | None, typer.Option(help="architecture such as sm_90; may be repeated")] = None,
    stage: Annotated[
        str, typer.Option(help="resources, cutile_ir, tile_ir (Triton: ttir, ttgir), ptx, sass, remarks or mix")
    ] = "resources",
    compare: Annotated[str | None, typer.Option(help="incumbent: what changed against the session's incumbent")] = None,
    compile_seconds: Annotated[float, typer.Option(min=1, max=300, help="for each kernel and architecture")] = 60.0,
    case: Annotated[
        list[str] | None, typer.Option(help="a value instead of the first case's, as in M=700; may be repeated")
    ] = None,
    knobs: Setting = None,
    root: Root = HERE,
) -> None:
    """Show what the compiler makes of the kernels that a task launches. Needs no GPU."""
    from tilewright.session.dumping import COMPARISONS, STAGES, Dumper

    values, config = one_each("--case", case), one_each("--set", knobs)
    if wrong := [name for name in arch or [] if not re.fullmatch(r"sm_\d{2,3}", name)]:
        raise failed(f"--arch {wrong[0]}: an architecture is written sm_90")
    if stage not in STAGES:
        raise failed(f"--stage is one of {', '.join(STAGES)}")
    if compare is not None and compare not in COMPARISONS:
        raise failed(f"--compare takes {' or '.join(COMPARISONS)}, not {compare!r}")

    async def work(loop: Any) -> tuple[Record, str]:
        folder, default = loop.task_of(task)
        dumper = Dumper(loop.checkout)
        try:
            report = await dumper.dump(
                folder, arch or [default], stage, print_progress, math.inf, compare, compile_seconds, values, config
            )
            return report, dumper.text(report.resource.rpartition("/")[2]) or ""
        finally:
            await dumper.close()

    report, text = in_loop(root, work)
    print_report(report.model_copy(update={"text": ""}))
    if stage != "resources" or compare or not getattr(report, "kernels", None):
        typer.echo(text)
    raise typer.Exit(0 if getattr(report, "status", "") == "passed" else 1)


@kernel_app.command()
def autotune(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml; default: the session's task")] = "",
    knobs: Annotated[
        list[str] | None,
        typer.Option("--set", help="a tunable parameter and the values to try, as in TILE_M=64,128; may be repeated"),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="matmul, attention or rows: what to propose a space for; default: as the source shows")
    ] = "",
    apply: Annotated[bool, typer.Option("--apply", help="write the best config into the editable files")] = False,
    wrapper: Annotated[
        bool, typer.Option("--wrapper", help="write a module that tunes on the first call for a key")
    ] = False,
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu (which ranks by the model)")] = "auto",
    root: Root = HERE,
) -> None:
    """Search the configs of a task's kernel: race them on the GPU, or rank them by the model; confirm the best."""
    from tilewright.autotune.tuner import Tuner
    from tilewright.knobs import SpaceError, parse_values

    chosen = chosen_backend(backend)
    try:
        values = parse_values(knobs or [])
    except SpaceError as error:
        raise failed(str(error)) from None

    def ask(tuner: Tuner, folder: PurePosixPath, arch: str) -> Awaitable[Record]:
        return tuner.tune(folder, print_progress, chosen, arch, values, kind, apply, wrapper, math.inf)

    _asked(root, task, Tuner, ask)


@kernel_app.command()
def profile(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml; default: the session's task")] = "",
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu (which models the latency)")] = "auto",
    knobs: Setting = None,
    root: Root = HERE,
) -> None:
    """Say what bounds a task's kernel, by which evidence, and what to try first."""
    from tilewright.profile.profiler import Profiler

    chosen, config = chosen_backend(backend), one_each("--set", knobs)

    def ask(profiler: Profiler, folder: PurePosixPath, arch: str) -> Awaitable[Record]:
        return profiler.profile(folder, print_progress, chosen, arch, math.inf, config)

    _asked(root, task, Profiler, ask)


@kernel_app.command()
def compare(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml; default: the session's task")] = "",
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help="another version: triton=path.py, triton=path.py:NAME or torch=MODULE:NAME"),
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu (which models the latency)")] = "auto",
    before: Annotated[
        str, typer.Option(help="commit that has the kernel before; default: where the branch's session began, or HEAD")
    ] = "",
    root: Root = HERE,
) -> None:
    """Time a task's kernel before and after, torch, torch.compile and others in one run; a table for a pull request."""
    from tilewright.profile.peers import compare as run
    from tilewright.session.beginning import usable_backend

    named = {}
    for text in others or []:
        name, equals, path = text.partition("=")
        if not equals:
            raise failed(f"--with {text}: write NAME=PATH, NAME=PATH:FUNCTION or NAME=MODULE:FUNCTION")
        named[name] = path

    async def work(loop: Any) -> Any:
        folder, arch = loop.task_of(task)
        here = usable_backend(chosen_backend(backend))
        return await run(loop.checkout, folder, here, arch, named, print_progress, before)

    found = in_loop(root, work)
    typer.echo(found.markdown)
    for note in found.notes:
        errors.print(note, style="yellow")
    for failure in found.failures:
        errors.print(failure, style="red")
    raise typer.Exit(1 if found.failures else 0)


@kernel_app.command()
def report(
    session: Annotated[str, typer.Argument(help="a folder of sandbox/; default: the current session")] = "",
    pr: Annotated[bool, typer.Option("--pr", help="the body of a pull request: tables alone")] = False,
    closes: Annotated[int | None, typer.Option(min=1, help="of the body: the issue that it closes")] = None,
    timed: Annotated[
        bool, typer.Option("--compare", help="of the body: time before, after and torch anew, as `compare` does")
    ] = False,
    root: Root = HERE,
) -> None:
    """Print the report of a session as Markdown, and write it as a page to sandbox/report.html."""
    from tilewright.ledger import LedgerError
    from tilewright.profile.peers import compare as run
    from tilewright.session import report as reports
    from tilewright.session.beginning import usable_backend
    from tilewright.session.verification import session_folder

    if session and timed:
        raise failed("--compare times what the working tree has: name no session with it")
    checkout = told(lambda: Checkout(root))
    folder = told(lambda: session_folder(checkout, session))
    try:
        data = reports.report_of(checkout.sandbox, folder.name, checkout.repository)
    except LedgerError as error:
        raise failed(str(error)) from None
    if not pr:
        reports.write(checkout.sandbox, folder.name, checkout.repository)
        typer.echo(reports.markdown.render(data))
        errors.print(f"the page: {folder.relative_to(checkout.root)}/report.html")
        return
    compared = ""
    if timed:

        async def work(loop: Any) -> Any:
            task, arch = loop.task_of("")
            return await run(loop.checkout, task, usable_backend(None), arch, {}, print_progress)

        found = in_loop(root, work)
        compared = found.markdown
        for text in (*found.notes, *found.failures):
            errors.print(text, style="yellow")
    typer.echo(reports.markdown.pr_body(data.sessions[0], closes, compared))


def _asked(
    root: Path,
    task: str,
    make: Callable[[Checkout], ToolT],
    ask: Callable[[ToolT, PurePosixPath, str], Awaitable[Record]],
) -> NoReturn:
    """Make a tool on the checkout, ask it about a task, print its report, and end as the report says."""

    async def work(loop: Any) -> Record:
        folder, arch = loop.task_of(task)
        tool = make(loop.checkout)
        try:
            return await ask(tool, folder, arch)
        finally:
            await tool.close()

    report = in_loop(root, work)
    print_report(report)
    raise typer.Exit(0 if getattr(report, "status", "") == "passed" else 1)

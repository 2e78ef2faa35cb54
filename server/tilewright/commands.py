"""The commands behind `tilewright`, for people; an agent uses the MCP server."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilewright import __version__, doctor
from tilewright.records import Record
from tilewright.session.checkout import Checkout, CheckoutBusy, Misuse
from tilewright.session.reports import StatusReport
from tilewright.skillcommands import skills_app
from tilewright.task import case_label

if TYPE_CHECKING:
    from tilewright.session.verification import Line

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Makes a GPU kernel faster, one verified experiment at a time.",
)  # fmt: skip
session_app = typer.Typer(no_args_is_help=True, help="End the current session, or carry it to another machine.")
app.add_typer(session_app, name="session")
app.add_typer(skills_app, name="skills")

console = Console(markup=False, highlight=False, soft_wrap=True)
errors = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

ResultT = TypeVar("ResultT")
Root = Annotated[Path, typer.Option("--root", help="the checkout to work in", file_okay=False, exists=True)]
HERE = Path()


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None: ...


@app.command()
def serve(root: Root = HERE) -> None:
    """Serve the tools over MCP on standard input and output."""
    from tilewright.mcp_server import serve as run

    run(root.resolve())


@app.command()
def demo(
    shuffle: Annotated[int | None, typer.Option(help="take the edits in another order, drawn from this seed")] = None,
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu")] = "auto",
    folder: Annotated[Path | None, typer.Option(help="where to make the scratch repository")] = None,
    only: Annotated[str, typer.Option(help="only the example whose name starts so, as in 01")] = "",
) -> None:
    """Run a scripted session on examples 01 and 02 over MCP, with real edits and real verdicts."""
    from tilewright.demo import run_demo

    raise typer.Exit(asyncio.run(run_demo(Console(), shuffle, backend, folder, only)))


@app.command(name="doctor")
def doctor_command() -> None:
    """Say what this machine has, what is missing, and the command that mends it."""
    findings = doctor.examine(doctor.this_machine())
    colours = {doctor.State.OK: "green", doctor.State.LIMITED: "yellow", doctor.State.MISSING: "red"}
    for finding in findings:
        console.print(Text(f"{finding.state:8}", style=colours[finding.state]), f"{finding.name:10}", finding.detail)
        if finding.remedy:
            console.print(f"{'':20}to mend it: {finding.remedy}")
    console.print("\nwhat protects a session on this machine, and what an agent of the same user can still do:")
    for one in doctor.protections():
        mark = Text("holds   " if one.holds else "open    ", style="green" if one.holds else "yellow")
        console.print(mark, f"{one.name:15}", one.detail)
    raise typer.Exit(1 if any(finding.state is doctor.State.MISSING for finding in findings) else 0)


@app.command(name="run-correctness")
def run_correctness(root: Root = HERE) -> None:
    """Check the current session's candidate, as the tool of that name does."""
    report = _in_loop(root, lambda loop: loop.run_correctness(_print_progress, math.inf))
    _print(report)
    raise typer.Exit(0 if report.status == "passed" else 1)


@app.command(name="run-benchmark")
def run_benchmark(root: Root = HERE) -> None:
    """Measure the current session's candidate against the incumbent, as the tool of that name does."""
    report = _in_loop(root, lambda loop: loop.run_benchmark(_print_progress, math.inf))
    _print(report)
    raise typer.Exit(0 if report.status == "passed" else 1)


@app.command()
def status(
    root: Root = HERE, as_json: Annotated[bool, typer.Option("--json", help="the whole report as JSON")] = False
) -> None:
    """Where the loop stands."""
    from tilewright.session import show

    checkout = _told(lambda: Checkout(root))
    state = _told(checkout.peek)
    if state is None:
        report = show.no_session("")
    else:
        there = checkout.elsewhere(state) if state.ended is None else ""
        report = show.status(state, there or show.next_step(state), None)
        found = _told(lambda: [*checkout.findings(state), *checkout.head_note(state)])
        report = show.with_findings(report, found)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _print_status(report)


@app.command()
def verify(
    session: Annotated[str, typer.Argument(help="a folder of sandbox/; default: the current session")] = "",
    root: Root = HERE,
) -> None:
    """Check that a session's journal, commits, verdicts and table are what it wrote."""
    from tilewright.session.verification import verify as run

    _print_lines(_told(lambda: run(Checkout(root), session)))


@app.command()
def replay(
    iteration: Annotated[int, typer.Argument(min=0, help="the iteration to run again")],
    session: Annotated[str, typer.Option(help="a folder of sandbox/; default: the current session")] = "",
    root: Root = HERE,
) -> None:
    """Run an iteration's check again on the same inputs, and a fresh benchmark; compare both with the log."""
    from tilewright.session.replay import replay as run

    _print_lines(_told(lambda: asyncio.run(run(Checkout(root), iteration, session, _print_progress))))


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="a task's folder, or a file in it", exists=True)],
    root: Root = HERE,
) -> None:
    """Look for races, unwritten memory, padding, bounds and overflow in the kernels of a task. Needs no GPU.

    A task in Triton or torch is checked against its reference instead.
    """
    from tilewright.session.checks import check_task

    found = _told(lambda: asyncio.run(check_task(root, path, _print_progress)))
    for defect in found.defects:
        typer.echo(f"{defect.text}; {case_label(defect.case)}")
    if not found.defects:
        runs = f"; {len(found.cases)} runs agree with the reference" if found.cases else ""
        console.print(f"nothing found{runs}" if found.passed else f"{found.status.upper()}: {found.message}")
    raise typer.Exit(0 if found.passed else 1)


@app.command(name="dump-ir")
def dump_ir(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml; default: the session's task")] = "",
    arch: Annotated[list[str] | None, typer.Option(help="architecture such as sm_90; may be given often")] = None,
    stage: Annotated[
        str, typer.Option(help="resources, cutile_ir, tile_ir (Triton: ttir, ttgir), ptx, sass, remarks or mix")
    ] = "resources",
    compare: Annotated[str, typer.Option(help="incumbent: what changed against the session's incumbent")] = "",
    compile_seconds: Annotated[float, typer.Option(min=1, max=300, help="for each kernel and architecture")] = 60.0,
    root: Root = HERE,
) -> None:
    """What the compiler makes of the kernels that a task launches. Needs no GPU."""
    from tilewright.session.dumping import COMPARISONS, STAGES, Dumper

    if wrong := [name for name in arch or [] if not re.fullmatch(r"sm_\d{2,3}", name)]:
        raise _failed(f"--arch {wrong[0]}: an architecture is written sm_90")
    if stage not in STAGES:
        raise _failed(f"--stage is one of {', '.join(STAGES)}")
    if compare not in COMPARISONS:
        raise _failed("--compare takes `incumbent` alone")

    async def work(loop: Any) -> tuple[Record, str]:
        folder, default = loop.task_of(task)
        dumper = Dumper(loop.checkout)
        try:
            report = await dumper.dump(
                folder, arch or [default], stage, _print_progress, math.inf, compare, compile_seconds
            )
            return report, dumper.text(report.resource.rpartition("/")[2]) or ""
        finally:
            await dumper.close()

    report, text = _in_loop(root, work)
    _print(report.model_copy(update={"text": ""}))
    if stage != "resources" or compare or not getattr(report, "kernels", None):
        typer.echo(text)
    raise typer.Exit(0 if getattr(report, "status", "") == "passed" else 1)


@app.command()
def clean() -> None:
    """Empty this user's cache of compilations, and say what that freed. Sessions and their logs stay."""
    from tilewright.compiler.store import CompilationStore, cache_folder

    folder = cache_folder()
    freed = CompilationStore(folder).clean()
    console.print(f"removed {freed.entries} compilations, {freed.bytes / 2**20:.1f} MiB, from {folder}")


@session_app.command()
def end(
    reason: Annotated[str, typer.Option(help="why, for the record")] = "ended by the user", root: Root = HERE
) -> None:
    """End the current session; its branch, journal and table stay."""

    async def work(loop: Any) -> str:
        try:
            text: str = loop.end(reason)
        except CheckoutBusy as busy:
            if not loop.checkout.request_end(reason):
                raise
            text = f"{busy.args[0].partition(';')[0]}; it will end the session at its next call"
        return text

    console.print(_in_loop(root, work))


@session_app.command(name="export")
def export(
    target: Annotated[Path, typer.Argument(help="archive to write, as in session.tgz")], root: Root = HERE
) -> None:
    """Write the current session (branch, candidates, journal, table) to one archive."""
    from tilewright.session.transfer import export_session

    console.print(_told(lambda: export_session(Checkout(root), target)))


@session_app.command(name="import")
def import_(source: Annotated[Path, typer.Argument(help="archive to read")], root: Root = HERE) -> None:
    """Take a session from an archive and check its branch out."""
    from tilewright.session.transfer import import_session

    state = _told(lambda: import_session(Checkout(root), source))
    console.print(f"session {state.started.session} is here, on branch {state.started.branch}")


async def _print_progress(text: str) -> None:
    errors.print(text, style="dim")


def _failed(text: str) -> typer.Exit:
    errors.print(text, style="red")
    return typer.Exit(2)


def _told(work: Callable[[], ResultT]) -> ResultT:
    from tilewright.repository import RepositoryError

    try:
        return work()
    except (Misuse, RepositoryError) as error:
        raise _failed(str(error)) from None


def _in_loop(root: Path, work: Callable[[Any], Coroutine[Any, Any, ResultT]]) -> ResultT:
    from tilewright.session.loop import Loop

    async def run() -> ResultT:
        loop = Loop(root.resolve())
        try:
            return await work(loop)
        finally:
            await loop.close()

    return _told(lambda: asyncio.run(run()))


def _print(report: Record) -> None:
    for name, value in report.model_dump(mode="json").items():
        if value in ("", None, [], {}):
            continue
        if name == "summary":
            console.print(value, style="bold")
        elif isinstance(value, list | dict):
            console.print(f"{name}:")
            console.print_json(data=value)
        else:
            console.print(f"{name}: {value}")


def _print_lines(lines: list[Line]) -> None:
    """What was checked, a line each; ends the command, with 1 where anything failed."""
    colours = {"ok": "green", "warn": "yellow", "FAIL": "red"}
    for line in lines:
        console.print(Text(f"{line.mark:5}", style=colours[line.mark]), f"{line.what:16}", line.detail)
    raise typer.Exit(1 if any(line.mark == "FAIL" for line in lines) else 0)


def _print_status(report: StatusReport) -> None:
    console.print(report.summary, style="bold")
    if report.tried:
        table = Table("iteration", "optimization", "latency_ms", "correctness", "status", "why", box=None)
        for row in report.tried:
            table.add_row(str(row.iteration), row.optimization, row.latency, row.correctness, row.status, row.reason)
        console.print(table)
    for text in (*report.notes, report.pending, report.budget, f"next: {report.next}"):
        if text:
            console.print(text)

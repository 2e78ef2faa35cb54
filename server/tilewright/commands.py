"""The commands behind `tilewright`, for people; an agent uses the MCP server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tilewright import __version__, doctor
from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.kernelcommands import kernel_app, one_each
from tilewright.programcommands import program_app
from tilewright.rules import rules_from
from tilewright.session.checkout import Checkout, CheckoutBusy
from tilewright.session.reports import NAME_LIMIT, StatusReport
from tilewright.skillcommands import skills_app
from tilewright.terminal import (
    HERE,
    Root,
    as_commands,
    asked,
    chosen_backend,
    console,
    errors,
    failed,
    in_loop,
    print_lines,
    print_progress,
    print_report,
    told,
)

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Makes a GPU kernel faster, one verified experiment at a time.",
)  # fmt: skip
session_app = typer.Typer(
    no_args_is_help=True,
    help="End the current session, carry it to another machine, or give its task room for more wrong results.",
)
app.add_typer(session_app, name="session")
app.add_typer(skills_app, name="skills")
app.add_typer(program_app, name="program")
app.add_typer(kernel_app)


def _version(show: bool) -> None:
    if show:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print it")] = False,
) -> None: ...


@app.command()
def serve(
    root: Annotated[
        Path | None,
        typer.Option(help="the checkout to work in; default: the current folder, else PWD, in a repository"),
    ] = None,
) -> None:
    """Serve the tools over MCP on standard input and output."""
    from tilewright.cli import serve_at

    raise typer.Exit(serve_at(root))


@app.command()
def demo(
    shuffle: Annotated[int | None, typer.Option(help="take the edits in another order, drawn from this seed")] = None,
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu")] = "auto",
    folder: Annotated[Path | None, typer.Option(help="where to make the scratch repository")] = None,
    only: Annotated[str, typer.Option(help="only the example whose name starts so, as in 03")] = "",
) -> None:
    """Run a scripted session on an example (01 and 02 without --only) over MCP, with real edits and real verdicts."""
    from tilewright.demo import run_demo

    raise typer.Exit(asyncio.run(run_demo(Console(), shuffle, backend, folder, only)))


@app.command()
def init(
    target: Annotated[str, typer.Argument(help="a repository's folder, or a function as module:function")] = ".",
    kernel: Annotated[str, typer.Option(help="of a repository: the file to make faster")] = "",
    test: Annotated[str, typer.Option(help="the file of tests; of a function: whose calls give the inputs")] = "",
    bench: Annotated[str, typer.Option(help="of a repository: the benchmark's file")] = "",
    select: Annotated[str, typer.Option(help="of a repository: a word for pytest's -k and the figures' names")] = "",
    shape: Annotated[list[str] | None, typer.Option(help="of a function: 4096x8192, or x=4096x8192; repeat")] = None,
    dtype: Annotated[
        str, typer.Option(help="of a function: its tensors', as in bfloat16, bf16 or float8_e4m3fn")
    ] = "bfloat16",
    arg: Annotated[list[str] | None, typer.Option(help="of a function: another argument, as in eps=1e-6")] = None,
    reference: Annotated[str, typer.Option(help="of a function: module:function in plain torch")] = "",
    name: Annotated[str, typer.Option(help="the task's name; default: the kernel's")] = "",
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="write without asking, unless the function fails its trial")
    ] = False,
    root: Root = HERE,
) -> None:
    """Write a task for a repository's tests and benchmark, or for one function. Both are tried first."""
    from tilewright.attach import function, repository

    beside: dict[str, str] = {}

    def tell(text: str) -> None:
        errors.print(text, style="dim")

    if ":" in target:
        shapes, arguments = shape or [], arg or []
        made, beside = told(
            lambda: function.propose(root, target, shapes, dtype, arguments, reference, name, test, tell)
        )
    elif not (root / target).is_dir():
        raise failed(str(told(lambda: function.functions_of(root, target))))
    else:
        wishes = repository.Wishes(kernel, test, bench, select, name)
        made = told(lambda: repository.propose(root / target, wishes, tell))
    top = told(lambda: Checkout(root if ":" in target else root / target)).root
    for line in made.seen:
        console.print(line)
    files = {"task.toml": made.text} | beside
    if there := [file for file in files if (top / made.folder / file).exists()]:
        raise failed(f"{made.folder}/{there[0]} is there already: choose another --name, or remove it")
    console.print(f"\n{made.folder}/task.toml{''.join(f', {file}' for file in beside)}:\n\n{made.text}")
    if yes and made.failed:
        raise failed("not written, since the function failed its trial; without --yes you are asked")
    if not (yes or typer.confirm("write it?", default=not made.failed)):
        raise typer.Exit(1)
    (top / made.folder).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_atomically(top / made.folder / file, text)
    runs = "the function on the cases for the cpu" if beside else "its tests once"
    console.print(
        f"written. Next: git add {made.folder} && git commit -m 'task', then tilewright check {made.folder}, which "
        f"runs {runs}. Then tilewright start-session {made.folder}"
    )


@app.command()
def setup(
    client: Annotated[
        str, typer.Option(help="claude-code, codex, cursor, gemini or opencode; default: the one that is installed")
    ] = "",
    allow_tools: Annotated[
        bool | None, typer.Option(help="let the client run the tools without a question; default: ask")
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="print what the files need, and write nothing")] = False,
    root: Root = HERE,
) -> None:
    """Write an agent client's configuration into the repository: the server, and the tools that may run unasked."""
    from tilewright import clients

    by_name = {one.name: one for one in clients.CLIENTS}
    there = clients.installed()
    if client not in by_name and (client or len(there) != 1):
        found = f" Installed here: {', '.join(one.name for one in there)}." if there else ""
        raise failed(f"give --client, one of {', '.join(by_name)}.{found}")
    chosen = by_name[client] if client else there[0]
    tools = told(lambda: asyncio.run(_tool_names(root)))
    if allow_tools is None:
        allow_tools = show or asked(
            f"{chosen.title} asks before each call of a tool that runs code or writes files, all night. "
            f"Let it call Tilewright's {len(tools)} tools without a question?",
            "give --allow-tools, and the client runs the tools without a question, or --no-allow-tools, and it asks",
        )
    wanted = clients.settings(chosen, clients.server_command(), tools if allow_tools else [])
    texts = told(lambda: clients.texts(root, wanted, merge=not show))
    if not show:
        told(lambda: clients.write(texts))
    for path, (before, after) in texts.items():
        holds = "; ".join(one.holds for one in wanted if root / one.path == path)
        verb = "is as it should be" if after == before else "needs" if show else "was written"
        console.print(f"{path.relative_to(root)} {verb}: {holds}", markup=False, soft_wrap=True)
        if show:
            typer.echo(after)
    if not allow_tools:
        console.print(f"{chosen.title} will ask before each call; --allow-tools changes that", markup=False)
    if not show:
        console.print(clients.what_next(chosen), markup=False)


async def _tool_names(root: Path) -> list[str]:
    from tilewright.mcp_server import Desk, build_server

    return [tool.name for tool in await build_server(Desk(root)).list_tools()]


@app.command(name="doctor")
def doctor_command() -> None:
    """Say what this machine has, what is missing, and the command that fixes it."""
    findings = doctor.examine(doctor.this_machine())
    colours = {doctor.State.OK: "green", doctor.State.LIMITED: "yellow", doctor.State.MISSING: "red"}
    for finding in findings:
        console.print(Text(f"{finding.state:8}", style=colours[finding.state]), f"{finding.name:10}", finding.detail)
        if finding.remedy:
            console.print(f"{'':20}to fix it: {finding.remedy}")
    console.print("\nwhat protects a session on this machine, and what an agent of the same user can still do:")
    for one in doctor.protections():
        mark = Text("holds   " if one.holds else "open    ", style="green" if one.holds else "yellow")
        console.print(mark, f"{one.name:15}", one.detail)
    raise typer.Exit(1 if any(finding.state is doctor.State.MISSING for finding in findings) else 0)


@app.command(name="start-session")
def start_session(
    task: Annotated[str, typer.Argument(help="folder that holds task.toml, from the root")],
    root: Root = HERE,
    backend: Annotated[str, typer.Option(help="auto, cuda or cpu")] = "auto",
    rule: Annotated[
        list[str] | None, typer.Option(help="a rule of the session, as in max_iterations=8; may be repeated")
    ] = None,
    include_dirty: Annotated[bool, typer.Option(help="take uncommitted edits into the baseline")] = False,
    unconfined: Annotated[
        bool, typer.Option("--unconfined", help="go on where this machine cannot confine a candidate's code")
    ] = False,
    arch: Annotated[str, typer.Option(help="the architecture that cpu models")] = "sm_90",
) -> None:
    """Begin a session, or resume one, like the tool start_session."""
    chosen, flags = chosen_backend(backend), {"true": True, "false": False}
    settings = {name: flags.get(value, value) for name, value in one_each("--rule", rule, "patience=5").items()}
    rules = told(lambda: rules_from(settings))
    report = in_loop(
        root,
        lambda loop: loop.start(task, print_progress, chosen, arch, rules, include_dirty, unconfined, wait_s=math.inf),
    )
    print_report(report)
    raise typer.Exit(0 if report.phase == "ready" else 1)


@app.command(name="git-checkpoint")
def git_checkpoint(root: Root = HERE) -> None:
    """Commit the candidate that was measured and won, like the tool git_checkpoint."""
    print_report(in_loop(root, lambda loop: _at_once(loop.checkpoint)))


@app.command()
def revert(root: Root = HERE) -> None:
    """Go back to the incumbent, like the tool revert. The discarded edit stays reachable."""
    print_report(in_loop(root, lambda loop: _at_once(loop.revert)))


@app.command(name="append-result")
def append_result(
    optimization: Annotated[str, typer.Argument(help=f"what was tried, in at most {NAME_LIMIT} characters")],
    root: Root = HERE,
    root_cause: Annotated[
        str | None, typer.Option(help="what bounds the kernel: memory, compute, latency, launch, scheduling, unknown")
    ] = None,
) -> None:
    """Close the iteration with one row of the server's own figures, like the tool append_result."""
    print_report(in_loop(root, lambda loop: loop.append_result(optimization, print_progress, root_cause, math.inf)))


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


@app.command(name="run-correctness")
def run_correctness(root: Root = HERE) -> None:
    """Check the current session's candidate, like the tool run_correctness."""
    report = in_loop(root, lambda loop: loop.run_correctness(print_progress, math.inf))
    print_report(report)
    raise typer.Exit(0 if report.status == "passed" else 1)


@app.command(name="run-benchmark")
def run_benchmark(root: Root = HERE) -> None:
    """Measure the current session's candidate against the incumbent, like the tool run_benchmark."""
    report = in_loop(root, lambda loop: loop.run_benchmark(print_progress, math.inf))
    print_report(report)
    raise typer.Exit(0 if report.status == "passed" else 1)


@app.command()
def status(
    root: Root = HERE, as_json: Annotated[bool, typer.Option("--json", help="the whole report as JSON")] = False
) -> None:
    """Show where the session stands."""
    from tilewright.session.loop import Loop

    report = told(lambda: Loop(root.resolve()).status())
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _print_status(report)


@app.command()
def verify(
    session: Annotated[str, typer.Argument(help="a folder of sandbox/; default: the current session")] = "",
    root: Root = HERE,
) -> None:
    """Check that a session's journal, commits, verdicts and table are unaltered."""
    from tilewright.session.verification import verify as run

    print_lines(told(lambda: run(Checkout(root), session)))


@app.command()
def rerun(
    iteration: Annotated[int, typer.Argument(min=0, help="the iteration to run again")],
    session: Annotated[str, typer.Option(help="a folder of sandbox/; default: the current session")] = "",
    root: Root = HERE,
) -> None:
    """Run an iteration's check again on the same inputs, and a fresh benchmark; compare both with the log."""
    from tilewright.session.rerun import rerun as run

    print_lines(told(lambda: asyncio.run(run(Checkout(root), iteration, session, print_progress))))


@session_app.command()
def end(
    reason: Annotated[str, typer.Option(help="why, for the record")] = "",
    compare: Annotated[
        bool, typer.Option(help="replay the first program against the last, if the GPU is free and something was kept")
    ] = True,
    root: Root = HERE,
) -> None:
    """End the current session; its branch, journal and table stay."""

    why = f"ended by the user{f': {reason}' if reason else ''}"  # never to be taken for the loop's own reason

    async def work(loop: Any) -> str:
        try:
            text: str = await loop.end(why, print_progress, compare)
        except CheckoutBusy as busy:
            if not loop.checkout.request_end(why):
                raise
            text = f"{busy.args[0].partition(';')[0]}; it will end the session at its next call"
        return text

    console.print(in_loop(root, work))


@session_app.command()
def budget(
    wrong_results: Annotated[int, typer.Argument(min=1, help="that the task has room for, those so far included")],
    task: Annotated[str, typer.Option(help="folder that holds task.toml; default: the session's")] = "",
    root: Root = HERE,
) -> None:
    """Say how many wrong results a task has room for. It is on record, and no tool of an agent can say it."""
    from tilewright.session.tally import Tally

    async def work(loop: Any) -> str:
        tally = Tally(loop.checkout.repository, loop.task_of(task)[0])
        if why := tally.allow(wrong_results):
            raise UsageError(why)
        return f"{tally.wrong_results} results of {wrong_results} were wrong so far; {tally.path} says so"

    console.print(in_loop(root, work))


@session_app.command(name="export")
def export(
    target: Annotated[Path, typer.Argument(help="archive to write, as in session.tgz")], root: Root = HERE
) -> None:
    """Write the current session (branch, candidates, journal, table) to one archive."""
    from tilewright.session.transfer import export_session

    console.print(told(lambda: export_session(Checkout(root), target)))


@session_app.command(name="import")
def import_(source: Annotated[Path, typer.Argument(help="archive to read")], root: Root = HERE) -> None:
    """Take a session from an archive and check its branch out."""
    from tilewright.session.transfer import import_session

    state = told(lambda: import_session(Checkout(root), source))
    console.print(f"session {state.started.session} is here, on branch {state.started.branch}")


def _print_status(report: StatusReport) -> None:
    console.print(as_commands(report.summary), style="bold")
    if report.tried:
        table = Table("iteration", "optimization", "latency_ms", "correctness", "status", "why", box=None)
        for row in report.tried:
            table.add_row(str(row.iteration), row.optimization, row.latency, row.correctness, row.status, row.reason)
        console.print(table)
    for text in (*report.notes, report.pending, report.budget, f"next: {report.next}"):
        if text:
            console.print(as_commands(text))

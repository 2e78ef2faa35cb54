"""The commands behind `tilewright`, for people; an agent uses the MCP server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright import __version__, doctor
from tilewright.errors import UsageError
from tilewright.files import write_atomically
from tilewright.interface.programs import program_app
from tilewright.interface.sessioncommands import add_session_commands, compared
from tilewright.interface.terminal import (
    HERE,
    Json,
    Listing,
    Root,
    asked,
    console,
    done,
    errors,
    failed,
    in_loop,
    place_of,
    print_answer,
    print_json,
    print_lines,
    print_progress,
)
from tilewright.interface.toolcommands import Group, add_tools
from tilewright.repository import Repository
from tilewright.session.checkout import Checkout
from tilewright.skillpack import install
from tilewright.task import case_label
from tilewright.tools import table
from tilewright.tools.dump import TASK
from tilewright.tools.loop import Device, backend_of

app = typer.Typer(
    cls=Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    rich_markup_mode=None,  # markup takes what stands in brackets, and a table of options breaks words
    help="Makes a GPU kernel faster, one verified experiment at a time.",
)  # fmt: skip
session_app = typer.Typer(cls=Listing, no_args_is_help=True, help="Start, look at, end, list or export sessions.")
app.add_typer(session_app, name="session")
skills_app = typer.Typer(cls=Listing, no_args_is_help=True, help="Install the skills for agents.")
app.add_typer(skills_app, name="skills")
app.add_typer(program_app, name="program")


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
        typer.Option(help="the checkout to work in; default: that of the current folder, else of $PWD"),
    ] = None,
) -> None:
    """Serve the tools over MCP on standard input and output."""
    from tilewright.cli import serve_at

    raise typer.Exit(serve_at(root))


@app.command()
def demo(
    backend: Annotated[Device, typer.Option(help="cpu interprets and models the latency")] = "auto",
    folder: Annotated[Path | None, typer.Option(help="where to make the scratch repository")] = None,
    only: Annotated[str, typer.Option(help="play only the example whose name starts with this, as in 03")] = "",
    as_json: Json = False,
) -> None:
    """Run a scripted session over MCP on examples 01 and 02, or on that of --only. Edits and verdicts are real."""
    from tilewright.demo import run_demo

    played = done(lambda: asyncio.run(run_demo(errors if as_json else console, backend, folder, only)))
    if as_json:
        print_json(played)
    raise typer.Exit(1 if played.problems else 0)


@app.command()
def init(
    target: Annotated[
        str,
        typer.Argument(
            help="a repository's folder; a function, as module:function or file.py:function; or a problem of a "
            "benchmark suite, as kernelbench:FILE or flashinfer:FILE"
        ),
    ] = ".",
    kernel: Annotated[str, typer.Option(help="for a repository: the file to make faster")] = "",
    test: Annotated[str, typer.Option(help="the test file; for a function: its calls there give the inputs")] = "",
    select: Annotated[str, typer.Option(help="take only tests with this in their names")] = "",
    shape: Annotated[
        list[str] | None,
        typer.Option(help="for a function: a tensor's shape, as in 4096x8192, x=4096x8192 or i=4096:int64"),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="for a function: dtype of its tensors, as in bfloat16, bf16 or float8_e4m3fn")
    ] = "bfloat16",
    arg: Annotated[
        list[str] | None,
        typer.Option(help="for a function: another argument, as in eps=1e-6, or c=x.1 for a dimension of x"),
    ] = None,
    reference: Annotated[str, typer.Option(help="for a function: the same in plain torch, as module:function")] = "",
    name: Annotated[str, typer.Option(help="the task's name; default: that of the kernel")] = "",
    range_: Annotated[
        list[str] | None,
        typer.Option("--range", help="for a function: hidden sizes of a dimension, as in N=64..128:32"),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="write without asking")] = False,
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Write a task for one function, or for the function that a repository's tests call. It is run first.

    The exit status is 0 only if the task works. With --json no question is asked: --yes writes the files, and without
    it they are only printed.
    """
    from tilewright.attach import flashinfer, function, kernelbench
    from tilewright.attach.repository import Wishes

    def tell(text: str) -> None:
        errors.print(text, style="dim")

    suite, _, problem = target.partition(":")
    importers = {"kernelbench": kernelbench.propose, "flashinfer": flashinfer.propose}
    is_folder = (root / target).is_dir()
    place = root / target if is_folder else root
    entry = problem if suite in importers else "" if is_folder else target
    wishes = Wishes(entry, kernel, test, select, shape or [], dtype, arg or [], reference, name, range_ or [])
    proposal = done(lambda: importers.get(suite, function.propose)(place, wishes, tell))
    top = done(lambda: Checkout(place)).root
    folder = proposal.folder
    files = {"task.toml": proposal.text} | dict(proposal.beside)
    if there := [file for file in files if (top / folder / file).exists()]:
        raise failed(f"{folder}/{there[0]} is there already: choose another --name, or remove it")
    listed = f"{folder}/task.toml{''.join(f', {file}' for file in proposal.beside)}"
    for line in [] if as_json else [*proposal.seen, f"\n{listed}:\n\n{proposal.text}"]:
        console.print(line)
    status = "failed" if proposal.is_open else "passed"
    answer = {"status": status, "folder": str(folder), "seen": proposal.seen, "files": files}
    if as_json and not yes:
        print_json({"summary": f"not written: {listed}", **answer, "next": "--yes writes the files"})
        raise typer.Exit(2 if proposal.is_open else 0)
    try:
        if not (yes or typer.confirm("write it?", default=True)):
            raise typer.Exit(1)
    except typer.Abort:  # there is nobody to answer
        raise failed("not written: --yes writes the files without asking") from None
    (top / folder).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_atomically(top / folder / file, text)
    summary = "written"
    then = f"git add {folder} && git commit -m 'task', then tilewright {proposal.then} {folder}"
    if proposal.is_open:
        summary = "written, but not complete"
        then = (
            f"search {folder} for FILL IN, and write what stands there. Then git add {folder} && git commit -m 'task', "
            f"and tilewright check {folder}"
        )
    print_answer(as_json, [f"{summary}. Next: {then}"], f"{summary}: {listed}", **answer, next=then)
    raise typer.Exit(2 if proposal.is_open else 0)


@app.command()
def setup(
    client: Annotated[
        str,
        typer.Option(help="claude-code, codex, cursor, gemini or opencode; default: the only one installed"),
    ] = "",
    allow_tools: Annotated[
        bool | None,
        typer.Option(help="let the client run the tools without a question; default: setup asks you"),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="print the settings for each file, and write nothing")] = False,
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Write an agent client's settings into the repository: the server, and the tools that run without a question."""
    from tilewright import clients

    by_name = {one.name: one for one in clients.CLIENTS}
    there = clients.installed()
    if client not in by_name and (client or len(there) != 1):
        found = f" Installed here: {', '.join(one.name for one in there)}." if there else ""
        raise failed(f"give --client, one of {', '.join(by_name)}.{found}")
    chosen = by_name[client] if client else there[0]
    tools = list(table())
    if allow_tools is None:
        allow_tools = show or asked(
            f"{chosen.title} asks before each call of a tool that runs code or writes files, all night. "
            f"Let it call Tilewright's {len(tools)} tools without a question?",
            "give --allow-tools, and the client runs the tools without a question, or --no-allow-tools, and it asks",
            as_json,
        )
    wanted = clients.settings(chosen, clients.server_command(), tools if allow_tools else [])
    texts = done(lambda: clients.texts(root, wanted, merge=not show))
    if not show:
        done(lambda: clients.write(texts))
    lines, summaries, files = [], [], []
    for path, (before, after) in texts.items():
        holds = "; ".join(one.holds for one in wanted if root / one.path == path)
        state = "is as it should be" if after == before else "needs" if show else "was written"
        summaries.append(f"{path.relative_to(root)} {state}: {holds}")
        text = after if show else ""  # of a file that is there, another server's token could be in it
        lines += [summaries[-1], *([text] if show else [])]
        files.append({"path": str(path.relative_to(root)), "written": state == "was written", "text": text})
    if not allow_tools:
        lines.append(f"{chosen.title} will ask before each call; --allow-tools changes that")
    tasks: list[Any] = []
    with suppress(UsageError):  # no repository yet
        tasks = Repository(root).folders_with("task.toml")
    then = [] if show else [clients.what_next(chosen, str(tasks[0]) if len(tasks) == 1 else "<task folder>")]
    print_answer(as_json, [*lines, *then], "; ".join(summaries), client=chosen.name, files=files, next="".join(then))


@app.command(name="doctor")
def doctor_command(
    clock: Annotated[
        bool,
        typer.Option("--clock", help="only measure how small a gain this GPU's clock resolves; takes seconds"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what this machine has, what is missing, and the command that fixes it."""
    if clock:
        resolved = done(doctor.resolutions)
        print_answer(as_json, resolved, "; ".join(resolved))
        return
    print_lines(doctor.examine(doctor.this_machine()), as_json)


@app.command()
def check(
    task: Annotated[str, typer.Argument(help=TASK)] = "",
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Look in a task's kernels for races, reads of unwritten memory, and errors at bounds and padding. Needs no GPU.

    A Triton or torch task is compared with its reference instead, and Triton kernels are compiled. The functions of
    task.py run first. For a repository task, its tests run once.
    """
    from tilewright.session.checks import check_task, in_words

    async def work(loop: Any) -> Any:
        return await check_task(root, loop.checkout.root / loop.task_of(task)[0], print_progress)

    root, task = place_of(root, task)
    result = in_loop(root, work)
    if as_json:
        print_json(result)
        raise typer.Exit(0 if result.passed else 1)
    for defect in result.defects:
        typer.echo(f"{defect.text}; {case_label(defect.case)}")
    if not result.defects:
        console.print(in_words(result))
    raise typer.Exit(0 if result.passed else 1)


@app.command()
def compare(
    task: Annotated[str, typer.Argument(help=TASK)] = "",
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="another version to time: triton=path.py, triton=path.py:NAME or torch=MODULE:NAME",
        ),
    ] = None,
    backend: Annotated[Device, typer.Option(help="cpu models the latency")] = "auto",
    before: Annotated[
        str, typer.Option(help="commit with the old kernel; default: where the branch's session began, or HEAD")
    ] = "",
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Time the old and the new kernel, torch, torch.compile and others in one run. Print a table for a pull request."""
    if wrong := [text for text in others or [] if "=" not in text]:
        raise failed(f"--with {wrong[0]}: write NAME=PATH, NAME=PATH:FUNCTION or NAME=MODULE:FUNCTION")
    named = {name: path for name, _, path in (text.partition("=") for text in others or [])}
    root, task = place_of(root, task)
    comparison = compared(root, task, backend_of(backend), named, before)
    if as_json:
        print_json(comparison._asdict())
        raise typer.Exit(1 if comparison.failures else 0)
    typer.echo(comparison.markdown)
    for note in comparison.notes:
        errors.print(note, style="yellow")
    for failure in comparison.failures:
        errors.print(failure, style="red")
    raise typer.Exit(1 if comparison.failures else 0)


@skills_app.callback()
def _skills() -> None: ...


@skills_app.command(name="install")
def install_(
    to: Annotated[
        Path, typer.Option("--to", help=".claude/skills for Claude Code, .agents/skills for others, or any folder")
    ] = Path(".agents/skills"),
    as_json: Json = False,
) -> None:
    """Copy the skills into a folder, with the pages and examples that they link to."""
    lines = [f"installed {folder}" for folder in done(lambda: install(to))]
    print_answer(as_json, lines, "; ".join(lines))


add_session_commands(app, session_app)
add_tools(app, session=session_app)

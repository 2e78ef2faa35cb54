"""Commands that look at sessions, check them, and end them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.files import write_atomically
from tilewright.interface.terminal import (
    HERE,
    Json,
    Root,
    console,
    done,
    errors,
    failed,
    in_commands,
    in_loop,
    print_answer,
    print_json,
    print_lines,
    print_progress,
)
from tilewright.session.checkout import Checkout
from tilewright.text import printable

if TYPE_CHECKING:
    from tilewright.profile.peers import Comparison
    from tilewright.session.report.data import Iteration, ReportData, Session
    from tilewright.task import Backend

NAME = "name of a session, or a part that no other name has; default: the current session"
Name = Annotated[str, typer.Argument(help=NAME)]
NameOption = Annotated[str, typer.Option("--session", help=NAME)]
Number = Annotated[int, typer.Argument(min=0, help="the iteration")]


def add_session_commands(app: typer.Typer, group: typer.Typer) -> None:
    """Make those of one session commands of `app`, and those of sessions as such commands of `group`."""
    for command in (log, show, diff, report, verify, rerun, finish):
        app.command()(command)
    group.command(name="list")(list_)
    group.command()(end)
    group.command()(export)


def log(session: Name = "", root: Root = HERE, as_json: Json = False) -> None:
    """Show a session's log: each iteration, its outcome, and why."""
    from tilewright.interface.logtable import log_table
    from tilewright.session.report import markdown

    shown = _report(root, session).sessions[0]
    if as_json:
        print_json(shown)
        return
    console.print(markdown.headline(shown).replace("`", ""), style="bold", soft_wrap=False)
    console.print(log_table(shown), soft_wrap=False)
    for text in shown.doubts:
        console.print(printable(text), style="yellow", soft_wrap=False)


def show(iteration: Number, session: NameOption = "", root: Root = HERE, as_json: Json = False) -> None:
    """Show one iteration: what was tried, the outcome and why, its figures, and how to restore its files."""
    from tilewright.session.report import markdown

    of, row = _iteration(root, session, iteration)
    if as_json:
        print_json(row)
        return
    for number, line in enumerate(markdown.iteration(row, of)):
        console.print(line.replace("`", ""), style=None if number else "bold", soft_wrap=False)


def diff(iteration: Number, session: NameOption = "", root: Root = HERE, as_json: Json = False) -> None:
    """Show what an iteration changed, against the version before it."""
    _, row = _iteration(root, session, iteration)
    if as_json:
        print_json({"iteration": row.number, "diff": row.diff})
        return
    colours = {"+": "green", "-": "red", "@": "cyan"}
    if not row.diff:
        errors.print("iteration 0 is the baseline: it has no diff" if not row.number else "there is no diff on record")
    for line in row.diff.splitlines():
        console.print(printable(line), style=None if line[:3] in ("+++", "---") else colours.get(line[:1]))


def _report(root: Path, session: str) -> ReportData:
    """A session, and the others of its task. A session that is not there, or not to be trusted, ends the command."""
    from tilewright.session import report as reports

    checkout = done(lambda: Checkout(root))
    folder = done(lambda: checkout.session_folder(session))
    return done(lambda: reports.report_of(checkout.sandbox, folder.name, checkout.repository))


def _iteration(root: Path, session: str, number: int) -> tuple[Session, Iteration]:
    shown = _report(root, session).sessions[0]
    if number >= len(shown.iterations):
        raise failed(f"{shown.name} has no iteration {number}: its rows are 0 to {len(shown.iterations) - 1}")
    return shown, shown.iterations[number]


def report(
    session: Name = "",
    pr: Annotated[bool, typer.Option("--pr", help="print the body of a pull request: only tables")] = False,
    closes: Annotated[int | None, typer.Option(min=1, help="with --pr: number of the issue that it closes")] = None,
    timed: Annotated[
        bool, typer.Option("--compare", help="with --pr: time the old kernel, the new one and torch, as `compare` does")
    ] = False,
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Print a session's report as Markdown, and write report.html into its folder. For the current session, write
    sandbox/report.html too."""
    from tilewright.session import report as reports

    if not pr and (closes is not None or timed):
        raise failed("--closes and --compare belong to the body of a pull request: give --pr with them")
    if session and timed:
        raise failed("--compare times what the working tree has: name no session with it")
    data = _report(root, session)
    if as_json:
        print_json(data)
        return
    if not pr:
        checkout = done(lambda: Checkout(root))
        folder = checkout.session_folder(session)
        current = folder == checkout.current_folder()
        written = reports.write(checkout.sandbox, folder.name, checkout.repository, current)
        typer.echo(reports.markdown.render(data))
        if not written:
            raise failed(f"{folder.relative_to(checkout.root)}/report.html cannot be written")
        errors.print(f"the page: {folder.relative_to(checkout.root)}/report.html")
        return
    table = ""
    if timed:
        comparison = compared(root, "", None, {}, "")
        table = comparison.markdown
        for text in (*comparison.notes, *comparison.failures):
            errors.print(text, style="yellow")
    typer.echo(reports.markdown.pr_body(data.sessions[0], closes, table))


def compared(root: Path, task: str, device: Backend | None, versions: dict[str, str], before: str) -> Comparison:
    """Time a task's kernel before and after, torch, and other `versions` by name. A refusal ends the command."""
    from tilewright.profile.peers import compare
    from tilewright.session.beginning import backend_for

    async def work(loop: Any) -> Comparison:
        folder, arch = loop.task_of(task)
        backend = backend_for(loop.checkout, folder, device)
        return await compare(loop.checkout, folder, backend, arch, versions, print_progress, before)

    return in_loop(root, work)


def verify(session: Name = "", root: Root = HERE, as_json: Json = False) -> None:
    """Check that a session's journal, commits and verdicts are unaltered."""
    from tilewright.session.verification import verify as run

    print_lines(done(lambda: run(Checkout(root), session)), as_json)


def rerun(iteration: Number, session: NameOption = "", root: Root = HERE, as_json: Json = False) -> None:
    """Run an iteration's check again on the same inputs, and a new benchmark. Compare both with the log."""
    from tilewright.session.rerun import rerun as run

    print_lines(done(lambda: asyncio.run(run(Checkout(root), iteration, session, print_progress))), as_json)


def finish(
    session: Name = "",
    squash: Annotated[bool, typer.Option("--squash", help="make one commit; default: one for each kept edit")] = False,
    branch: Annotated[str, typer.Option(help="the branch's name; default: the session's with -clean added")] = "",
    flashinfer: Annotated[
        Path | None,
        typer.Option(help="write the kernel to this file, as a solution for flashinfer-bench, and make no branch"),
    ] = None,
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Make a branch with only a session's kept edits, on the commit that it began from. Say how to open a pull request.

    No file in the checkout changes, and the session may be under way.
    """
    from tilewright.session.finish import finish as run

    if flashinfer is not None:
        from tilewright.attach.flashinfer import solution

        write_atomically(flashinfer, done(lambda: solution(Checkout(root), session)))
        summary = f"{flashinfer}: the kernel as a solution for flashinfer-bench"
        print_answer(as_json, [summary], summary)
        return
    lines = done(lambda: run(Checkout(root), session, branch, squash))
    print_answer(as_json, lines, lines[0], next="\n".join(lines[1:]))


def list_(root: Root = HERE, as_json: Json = False) -> None:
    """List the sessions of this checkout, the latest first; `*` marks the current one."""
    from tilewright.interface.logtable import sessions_table
    from tilewright.session.report import sessions_in

    checkout = done(lambda: Checkout(root))
    sessions, unread = sessions_in(checkout.sandbox, None)
    current = checkout.current_folder()
    if as_json:
        print_json(sessions)
        return
    empty = "no session yet: `tilewright session start FOLDER` begins one, with the folder of a task"
    console.print(sessions_table(sessions, current.name if current else "") if sessions else empty, soft_wrap=False)
    for text in unread:
        errors.print(printable(text), style="yellow")


def end(
    reason: Annotated[str, typer.Option(help="why, for the record")] = "",
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """End the current session. Its branch, journal and table stay. The first version is replayed against the last, if
    the GPU is free and an edit was kept."""
    why = f"by the user{f': {reason}' if reason else ''}"  # never to be taken for the loop's own reason

    async def work(loop: Any) -> str:
        text: str = await loop.end(why, print_progress)
        return text

    summary = in_loop(root, work)
    print_answer(as_json, [in_commands(summary)], summary)


def export(
    target: Annotated[Path, typer.Argument(help="archive to write, as in session.tgz")],
    session: NameOption = "",
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Write a session (branch, candidates, journal, table, programs) to one archive, for tar and git."""
    from tilewright.session.export import export_session

    summary = done(lambda: export_session(Checkout(root), target, session))
    print_answer(as_json, [summary], summary)

"""`tilewright finish`: a clean branch of what a session kept."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.interface.terminal import HERE, Json, Root, done, print_answer
from tilewright.session.checkout import Checkout


def finish(
    session: Annotated[str, typer.Argument(help="a folder of sandbox/; default: the current session")] = "",
    squash: Annotated[
        bool, typer.Option("--squash", help="one commit of all; default: one for each kept edit")
    ] = False,
    branch: Annotated[str, typer.Option(help="the branch's name; default: the session's with -clean after it")] = "",
    root: Root = HERE,
    as_json: Json = False,
) -> None:
    """Make a clean branch of a session's kept commits, on the commit it began from, and say how to open a pull request.

    Nothing is checked out, and no file changes; the session may be under way.
    """
    from tilewright.session.finish import finish as run

    lines = list(done(lambda: run(Checkout(root), session, branch, squash)))
    print_answer(as_json, lines, lines[0], next="\n".join(lines[1:]))

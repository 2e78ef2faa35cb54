"""The console script. `serve` takes a short cut past everything that an MCP client need not wait for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tilewright.errors import UsageError
from tilewright.files import repository_of


def main() -> None:
    """The console script `tilewright`."""
    try:
        match sys.argv[1:]:
            case ["serve"]:
                raise SystemExit(serve_at(None))
            case ["serve", "--root", root]:
                raise SystemExit(serve_at(Path(root)))
        from tilewright.interface.commands import app

        app(prog_name="tilewright")
    except OSError as error:
        print(f"tilewright: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def serve_at(given: Path | None) -> int:
    """Serve the folder that `choose_root` finds until the client leaves. Return the exit status."""
    root: Path | UsageError
    try:
        root = choose_root(given, Path.cwd(), os.environ)
    except UsageError as refusal:
        print(f"tilewright serve: {refusal}", file=sys.stderr)
        if given is not None:
            return 2
        root = refusal  # clients hide standard error; the tools say it to the agent
    from tilewright.interface.mcp import serve

    serve(root)
    return 0


def choose_root(given: Path | None, here: Path, environment: Mapping[str, str]) -> Path:
    """Return `given`; without it the first of `here` and `PWD` that lies in a repository of the user.

    A client that runs the server as a plugin starts it in the plugin's own folder and gives that folder's path in
    `PLUGIN_ROOT`. The folder may be a git repository too, but it is never the user's. `PWD` is then the folder in which
    the client was started. Raises `UsageError` where neither will do.
    """
    if given is not None:
        if not given.is_dir():
            raise UsageError(f"--root {given}: no such folder")
        return given.resolve()
    plugin, asked = environment.get("PLUGIN_ROOT", ""), environment.get("PWD", "")
    for folder in (here, Path(asked)):
        if folder.is_absolute() and repository_of(folder) and folder.is_dir() and not _is_within(folder, plugin):
            return folder.resolve()
    place = "the plugin's own folder" if _is_within(here, plugin) else "not in a git repository"
    raise UsageError(
        f"Tilewright was started in {here}, which is {place}, and PWD ({asked or 'unset'}) names no repository of "
        "yours: have the client run `tilewright serve --root DIR`, where DIR is your repository (in Codex: "
        "`codex mcp add tilewright -- tilewright serve --root DIR`)"
    )


def _is_within(folder: Path, plugin: str) -> bool:
    return bool(plugin) and folder.resolve().is_relative_to(Path(plugin).resolve())

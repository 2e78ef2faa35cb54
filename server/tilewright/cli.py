"""The console script. `serve` takes a short cut past everything that an MCP client need not wait for."""

from __future__ import annotations

import os
import sys
from pathlib import Path


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
    from tilewright.errors import UsageError
    from tilewright.serveroot import choose_root

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

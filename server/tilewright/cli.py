"""The console script. `serve` takes a short cut past everything that an MCP client need not wait for."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """The console script `tilewright`."""
    from tilewright.records import storage_problem

    try:
        if sys.argv[1:2] == ["serve"] and not {"-h", "--help"} & set(sys.argv):
            raise SystemExit(_serve(sys.argv[2:]))
        from tilewright.commands import app

        app(prog_name="tilewright")
    except OSError as error:
        if not (text := storage_problem(error)):
            raise
        print(text, file=sys.stderr)
        raise SystemExit(2) from None


def _serve(arguments: list[str]) -> int:
    import argparse

    parser = argparse.ArgumentParser(prog="tilewright serve")
    parser.add_argument("--root", type=Path, default=Path.cwd())
    root: Path = parser.parse_args(arguments).root
    if not root.is_dir():
        print(f"tilewright serve: --root {root}: no such folder", file=sys.stderr)
        return 2
    from tilewright.mcp_server import serve

    serve(root.resolve())
    return 0

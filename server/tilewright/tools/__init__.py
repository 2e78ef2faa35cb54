"""The table of tools. A new tool is a module with `TOOLS`, and its line here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tilewright.tools.tool import Tool

MODULES = [
    "tilewright.tools.loop",
    "tilewright.tools.dump",
    "tilewright.tools.autotune",
    "tilewright.tools.profile",
]


def table() -> dict[str, Tool[Any, Any]]:
    """Every tool by its name."""
    return {tool.name: tool for module in MODULES for tool in import_module(module).TOOLS}


def run(tool: str, root: str | Path = ".", /, **arguments: Any) -> Any:
    """Call a tool on the repository around the folder `root`, and return its report.

    The arguments are those of the MCP tool. Raises `UsageError` for a call that cannot work."""
    from tilewright.errors import UsageError
    from tilewright.tools.workspace import call

    async def silent(text: str) -> None: ...

    tools = table()
    if tool not in tools:
        raise UsageError(f"no tool {tool!r}; the tools are {', '.join(tools)}")
    return call(tools[tool], Path(root), arguments, silent)

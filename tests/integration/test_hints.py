"""Whether what tools claim of themselves is true: the disk before and after each call is compared with its hints."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.conftest import FASTER_KERNEL, SCALE_KERNEL
from tests.stage import edit, journal_of, play, quiet
from tilewright.interface.mcp import build_server
from tilewright.ledger import Journal
from tilewright.session.loop import Loop
from tilewright.session.records import ENTRY, Begun
from tilewright.tools import table
from tilewright.tools.tool import Effect
from tilewright.tools.workspace import Workspace

Disk = dict[str, tuple[int, str]]


def disk(*folders: Path) -> Disk:
    """Every file and link below these folders: when it was written, and what it holds."""
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if path.name != "tilewright.lock" and (path.is_symlink() or not path.is_dir()):
                held = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
                found[str(path)] = path.lstat().st_mtime_ns, hashlib.sha256(held).hexdigest()
    return found


def changed(before: Disk, after: Disk) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def users(root: Path, paths: set[str]) -> set[str]:
    """Those of the paths that are the user's own: neither git's nor in the sandbox."""
    own = {Path(path).relative_to(root).parts[0]: path for path in paths if Path(path).is_relative_to(root)}
    return {path for first, path in own.items() if first not in (".git", "sandbox")}


@pytest.mark.slow
def test_each_tool_does_no_more_than_its_hints_say(make_task: Callable[..., Path]) -> None:
    root = make_task()
    server = build_server(Workspace(root))
    hints: dict[str, Any] = {}
    seen: dict[str, list[set[str]]] = {}

    async def call(client: Client, tool: str, **arguments: Any) -> None:
        """Call a tool, and note what that changed; a tool that may be repeated, twice."""
        hint = hints[tool]
        assert hint is not None
        before = disk(root)
        result = await client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        after = disk(root)
        seen.setdefault(tool, []).append(changed(before, after))
        if hint.idempotent_hint and not hint.read_only_hint:
            await client.call_tool(tool, arguments)
            assert not changed(after, disk(root)), f"{tool}, called again, changes more"

    async def scene() -> None:
        async with Client(server) as client:
            hints.update((tool.name, tool.annotations) for tool in (await client.list_tools()).tools)
            await call(client, "session_status")
            await call(client, "start_session", task="task", backend="cpu")
            await call(client, "session_status")
            edit(root, FASTER_KERNEL)
            for tool in ("run_correctness", "session_status", "run_benchmark", "git_checkpoint", "session_status"):
                await call(client, tool)
            await call(client, "append_result", optimization="large tiles")
            edit(root, FASTER_KERNEL + "\n")
            await call(client, "session_status")
            await call(client, "run_correctness")
            await call(client, "revert")
            await call(client, "append_result", optimization="a line end")
            edit(root, SCALE_KERNEL.replace("values * factor", "values + factor"))
            await call(client, "run_iteration", optimization="adds instead")
            await call(client, "dump_ir", stage="sass")
            await call(client, "profile")
            edit(root, SCALE_KERNEL)
            await call(client, "autotune", space={"TILE": [64, 1024]}, apply=True)

    asyncio.run(scene())
    assert set(seen) == set(hints)
    for tool, calls in seen.items():
        hint = hints[tool]
        assert hint is not None
        assert hint.open_world_hint is False
        if hint.read_only_hint:
            assert not any(calls), f"{tool} writes {calls}"
        elif not hint.destructive_hint:
            assert not any(users(root, paths) for paths in calls), f"{tool} changes the user's files"
        else:
            assert any(users(root, paths) for paths in calls), f"{tool} need not be approved"


def test_tools_that_run_candidate_code_are_not_read_only() -> None:
    assert [tool.name for tool in table().values() if tool.effect is Effect.READS] == ["session_status"]


def looks(root: Path) -> str:
    """What a new server's session_status says, which must change nothing on disk."""
    before = disk(root)
    found: list[str] = []

    async def scene(loop: Loop) -> None:
        report = loop.status()
        found.append(f"{report.phase}: {report.summary}; {report.next}")
        assert not changed(before, disk(root))

    play(root, scene)
    assert not changed(before, disk(root))
    return found[0]


def test_status_of_a_broken_off_run_records_nothing(begun: Path) -> None:
    Journal(journal_of(begun), ENTRY).append(
        Begun(run="check", candidate="0" * 64, commit="0" * 40, secret_sha256="0" * 64)
    )
    assert looks(begun).startswith("ready")
    edit(begun, SCALE_KERNEL + "\nUNUSED = 1\n")

    async def acts(loop: Loop) -> None:
        assert "the last run (check) was broken off" in loop.status().summary
        await loop.run_correctness(quiet)
        loop.revert()
        await loop.append_result("a constant", quiet)

    play(begun, acts)

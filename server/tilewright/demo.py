"""`tilewright demo`: a scripted client drives the server over real stdio; every verdict is the evaluator's."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.markup import escape

from tilewright.bundled import examples
from tilewright.demo_edits import EDITS, Aim, Edit
from tilewright.session.runs import backend_here
from tilewright.task import Backend

PASSED = ("TILEWRIGHT_STATE", "XDG_STATE_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
"""What the server gets of this process's environment, beside what an MCP client passes by itself (PATH, HOME)."""


def server_in(repository: Path) -> StdioServerParameters:
    """How a client starts the server over a repository, on the GPU and with the state that this process has."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "tilewright", "serve", "--root", str(repository)],
        env={name: os.environ[name] for name in PASSED if name in os.environ},
    )


class _Play:
    """One example, from scratch repository to finished table."""

    def __init__(self, console: Console, client: Client, repository: Path, example: str) -> None:
        self._console = console
        self._client = client
        self._repository = repository
        self._example = example
        self.seen: list[tuple[Edit, str]] = []

    async def run(self, edits: Sequence[Edit], backend: str) -> None:
        """Baseline, then the edits one at a time."""
        try:
            status = await self._call(
                "start_session", task=self._example, backend=backend, patience=len(edits) + 1, stop_on_minor_gain=False
            )
        except RuntimeError as error:  # the reason is all that there is to show
            self._say(f"[red]{escape(str(error))}[/]")
            return
        self._say(escape(status["summary"]))
        if status["phase"] == "ended":
            return
        file = self._repository / status["editable"][0]
        for edit in edits:
            before = file.read_text(encoding="utf-8")
            after = edit.change(before)
            if after == before:
                self._say(f"[dim]{escape(edit.name)}: no longer applies after what was kept[/]")
                continue
            file.write_text(after, encoding="utf-8")
            self._console.print(f"\n  [bold]{escape(edit.name)}[/] [dim]({edit.aim})[/]")
            self.seen.append((edit, await self._decide(edit)))

    async def _decide(self, edit: Edit) -> str:
        """Let the evaluator judge the working tree, do as it says, and log the row."""
        report = await self._call("run_correctness")
        if report["status"] == "passed":
            report = await self._call("run_benchmark")
        if report["status"] == "void":  # other work on the GPU meanwhile: as the message asks
            self._say(escape(report["summary"]))
            report = await self._call("run_benchmark")
        self._say(escape(report["summary"]))
        verdict = (report.get("verdict") or {}).get("kind", "")
        await self._call("git_checkpoint" if verdict == "keep" else "revert")
        row = await self._call("append_result", optimization=edit.name)
        self._say(f"[cyan]{escape(row['row'])}[/]")
        return str(row["row"].split("|")[5].strip())

    async def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        told = ""

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            nonlocal told
            if message and message != told:
                told = message
                self._console.print(f"    [dim]{tool}: {escape(message)}[/]")

        while True:
            result = await self._client.call_tool(tool, arguments, progress_callback=progress)
            if result.is_error:
                raise RuntimeError(f"{tool}: {getattr(result.content[0], 'text', result.content[0])}")
            content = result.structured_content
            assert isinstance(content, dict)
            if content.get("state") != "running":
                return content

    def _say(self, text: str) -> None:
        self._console.print(f"    {text}", highlight=False, soft_wrap=True)


def _scratch(parent: Path, example: str) -> Path:
    """A fresh git repository that holds one example."""
    repository = parent / example.split("_")[1]
    shutil.copytree(examples() / example, repository / example, ignore=shutil.ignore_patterns("__pycache__"))
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        ["commit", "--quiet", "--message=example"],
    ):
        settings = ("user.name=demo", "user.email=demo@localhost", "commit.gpgSign=false", "core.hooksPath=/dev/null")
        options = [part for setting in settings for part in ("-c", setting)]
        subprocess.run(["git", *options, *command], cwd=repository, check=True)
    return repository


def _unmet(seen: list[tuple[Edit, str]]) -> list[str]:
    """What the demo promised to show and did not."""
    problems = [
        f"{edit.name!r} {edit.aim} and ended as {status}"
        for edit, status in seen
        if (edit.aim in (Aim.WRONG, Aim.SLOWER, Aim.NOISE) and status != "revert")
        or (edit.aim is Aim.CRASH and status != "crash")
    ]
    gains = [status for edit, status in seen if edit.aim is Aim.GAIN]
    if not seen or (gains and "keep" not in gains):
        problems.append("no gain was kept" if seen else "nothing was tried")
    return problems


async def run_demo(console: Console, shuffle: int | None, backend: str, folder: Path | None, only: str = "") -> int:
    """Run the demo; 0 if it showed what it promises, else 1. `shuffle` seeds another order of the edits."""
    if backend not in ("auto", *Backend):
        console.print(f"[red]no backend {escape(backend)!r}: give auto, {' or '.join(Backend)}[/]")
        return 2
    here = backend_here() if backend == "auto" else Backend(backend)
    if here is Backend.CUDA:
        from tilewright.gpu.telemetry import find_gpu

        gpu = find_gpu()
        where = f"the cuda backend: {gpu.name if gpu else 'no GPU found'}, latencies measured"
    else:
        why = " (no GPU here)" if backend_here() is Backend.CPU else ""
        where = f"the cpu backend{why}: kernels interpreted, latencies modelled and marked ~"
    console.print(f"Tilewright demo on {where}", highlight=False, soft_wrap=True)
    chosen = [example for example in EDITS if example.startswith(only)] if only else list(EDITS)[:2]
    if not chosen:
        console.print(f"[red]no example starts with {escape(only)!r}: there are {', '.join(EDITS)}[/]")
        return 2
    if folder is not None and folder.exists() and any(folder.iterdir()):
        console.print(f"[red]{escape(str(folder))} is not empty: give a folder that is, or that does not exist[/]")
        return 2
    parent = folder or Path(tempfile.mkdtemp(prefix="tilewright-demo-"))
    problems: list[str] = []
    for example in chosen:
        edits = list(EDITS[example])
        if shuffle is not None:
            random.Random(shuffle).shuffle(edits)
        repository = _scratch(parent, example)
        console.print(f"\n[bold]{example}[/] in {repository}", highlight=False)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(server_in(repository)))
            play = _Play(console, client, repository, example)
            await play.run(edits, here)
            final = await client.call_tool("session_status", {})
        problems += _unmet(play.seen)
        if not play.seen:
            continue
        content = final.structured_content or {}
        console.print(f"\n{content.get('summary', '')}", highlight=False, soft_wrap=True)
        console.print(
            (repository / "sandbox" / "perf_results.md").read_text(encoding="utf-8"), highlight=False, soft_wrap=True
        )
        for name, path in content.get("files", {}).items():
            console.print(f"{name}: {repository / path}", highlight=False, soft_wrap=True)
    console.print(
        f"\nThe scratch repositories stay in {parent}: each has its branch perf/<task>-<date> and its journal.\n"
        "Next: copy one of assets/examples into a repository of yours, or write a task for a kernel of yours "
        "(README, A task).",
        highlight=False,
        soft_wrap=True,
    )
    for problem in problems:
        console.print(f"[red]not as promised: {escape(problem)}[/]", highlight=False)
    return 1 if problems else 0

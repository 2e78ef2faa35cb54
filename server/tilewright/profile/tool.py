"""Running a tool in a folder of its own, with all that it starts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from tilewright.isolation.process import kept_environment


def find_tool(name: str) -> str | None:
    """Where a tool of CUDA's is: on PATH, else where CUDA puts it."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")


async def run_tool(arguments: Sequence[str], folder: Path, limit_s: float) -> tuple[int | None, str]:
    """Run a tool to its end, or end it after `limit_s`: its status, None in that case, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=folder,
        env=kept_environment() | {"HOME": str(folder), "TMPDIR": str(folder), "CUDA_CACHE_PATH": str(folder)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(limit_s):
            printed, _ = await process.communicate()
        return process.returncode, printed.decode("utf-8", "replace")
    except TimeoutError:
        return None, f"{Path(arguments[0]).name} was stopped after {limit_s:.0f} s"
    finally:
        if process.returncode is None:  # else its number may be another group's by now
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

"""Programs that run a candidate for a diagnosis: the GPU leased to them, their time limited, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tilewright.evaluation.processes import worker_environment
from tilewright.gpu.lease import GpuBusy, lease

LEASE_TRIES = 20
"""A second apart."""


async def leased(uuid: str, held: contextlib.ExitStack) -> str:
    """Take the GPU until `held` is closed; why not, where another keeps it."""
    for left in reversed(range(LEASE_TRIES)):
        try:
            held.enter_context(lease(uuid, 0.0, lambda _: None))
            return ""
        except GpuBusy as error:
            if not left:
                return str(error).replace("within 0 s", f"within {LEASE_TRIES} s")
        await asyncio.sleep(1.0)
    return ""


async def run(
    arguments: list[str], folder: Path, limit_s: float, what: str, extra: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Run to its end, or end it and all that it started; its status and what it wrote. `extra` goes into a worker's
    environment."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=folder,
        env=worker_environment(folder) | dict(extra or {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(max(limit_s, 1.0)):
            said, _ = await process.communicate()
        return process.returncode, said.decode("utf-8", "replace")
    except TimeoutError:
        return None, f"{what} was stopped after {limit_s:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            await process.wait()

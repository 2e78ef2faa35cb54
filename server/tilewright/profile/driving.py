"""Programs that run a candidate for a diagnosis: the GPU leased to them, their time limited, nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from tilewright.evaluation.caches import compiler_variables
from tilewright.evaluation.snapshot import SnapshotStore
from tilewright.gpu.lease import GpuBusy, lease
from tilewright.isolation.process import worker_environment
from tilewright.repository import Files
from tilewright.session.jobs import in_thread
from tilewright.task import Case

LEASE_TRIES = 20
"""A second apart."""


@contextlib.asynccontextmanager
async def placed(
    protected: Files, files: Files, task_folder: PurePosixPath, cases: list[Case], uuid: str, confined: bool
) -> AsyncIterator[tuple[Path, dict[str, Any]]]:
    """A folder for what is written, and what a driver is told of the candidate `files` over the files `protected`;
    `uuid` is the GPU to hold meanwhile, if one. Raises `GpuBusy`."""
    with tempfile.TemporaryDirectory(prefix="tilewright-profile-") as name, contextlib.ExitStack() as held:
        if uuid:
            await _lease(uuid, held)
        tree = Path(name) / "tree"
        tree.mkdir()
        (snapshot,) = await in_thread(SnapshotStore(tree, protected, task_folder).write, files)
        folder = str(snapshot.root / snapshot.task)
        yield Path(name), {"folder": folder, "root": str(tree), "cases": cases, "confined": confined}


async def _lease(uuid: str, held: contextlib.ExitStack) -> None:
    """Take the GPU until `held` is closed. Raises `GpuBusy`."""
    for left in reversed(range(LEASE_TRIES)):
        try:
            held.enter_context(lease(uuid, 0.0, lambda _: None))
            return
        except GpuBusy as error:
            if not left:
                raise GpuBusy(str(error).replace("within 0 s", f"within {LEASE_TRIES} s")) from None
        await asyncio.sleep(1.0)


async def run(
    arguments: list[str], folder: Path, limit_s: float, what: str, extra: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Run to its end, or end it and all that it started; its status and what it wrote. `extra` goes into a worker's
    environment."""
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=folder,
        env=worker_environment(folder, compiler_variables(folder)) | dict(extra or {}),
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

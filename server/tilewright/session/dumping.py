"""`dump_ir`: what the compiler makes of the working tree's kernels, for any architecture, on any machine."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any, Literal

from tilewright.compiler.resources import Resources
from tilewright.compiler.tools import known_archs
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.repository import Files, RepositoryError
from tilewright.session.checkout import Checkout, Misuse
from tilewright.session.jobs import WAIT_S, Job, Progress
from tilewright.session.reports import DumpReport, KernelReport
from tilewright.session.runs import Runs
from tilewright.task import Backend, TaskError, load_task

Stage = Literal["resources", "cutile_ir", "tile_ir"]
STAGES: tuple[Stage, ...] = ("resources", "cutile_ir", "tile_ir")

TEXT_SHOWN = 3000
KEPT_DUMPS = 32
COMPILE_S = 60.0
LIMIT_S = 600.0


class Dumper:
    """Dumps of one checkout's tasks; the whole texts stay readable as resources."""

    def __init__(self, checkout: Checkout) -> None:
        self._checkout = checkout
        self._runs: Runs | None = None
        self._runs_for: tuple[PurePosixPath, str] | None = None
        self._job: Job | None = None
        self._reply: dict[str, Any] = {}
        self._texts: OrderedDict[str, str] = OrderedDict()

    async def dump(
        self, folder: PurePosixPath, archs: list[str], stage: Stage, progress: Progress, wait_s: float = WAIT_S
    ) -> DumpReport:
        """Compile what the task's entry point launches, for each of `archs`. Raises `Misuse`."""
        repository = self._checkout.repository
        if known_archs() and (unknown := sorted(set(archs) - known_archs())):
            raise Misuse(f"the compiler here knows no {unknown[0]}; it knows {', '.join(sorted(known_archs()))}")
        try:
            task = load_task(self._checkout.root / folder)
            editable = [(folder / name).as_posix() for name in task.file.editable]
            files = repository.read(editable)
        except (TaskError, RepositoryError) as error:
            raise Misuse(str(error)) from None
        head = repository.head()
        committed = repository.files(head)
        for name in (folder / "task.toml", folder / "task.py"):
            if name.as_posix() not in committed:
                raise Misuse(f"{name} is not committed; run `git add {folder}` and `git commit` first")
        key = f"{folder} {content_id(files)} {' '.join(archs)}"

        async def work(job: Job) -> None:
            job.tell(f"compiling for {', '.join(archs)}")
            runs = await self._runs_of(folder, head, committed)
            self._reply = await runs.dump(files, archs, COMPILE_S, LIMIT_S, job.tell)

        if self._job is None or self._job.done:
            self._job = Job("dump_ir", key, work)
        elif self._job.key != key:
            raise Misuse(f"another dump is under way ({self._job.message}); call dump_ir again when it is done")
        job = self._job
        if not await job.attend(wait_s, progress):
            again = "call dump_ir again, the same way"
            return DumpReport(summary=f"still compiling: {job.message}", state="running", next=again)
        reply = self._reply
        if reply["status"] != Status.PASSED:
            first = str(reply["message"]).splitlines()[0] if reply["message"] else ""
            return DumpReport(
                summary=f"{reply['status'].upper()}: {first}", status=Status(reply["status"]), message=reply["message"]
            )
        return self._report(reply, stage)

    def text(self, identity: str) -> str | None:
        """The whole text of an earlier dump."""
        return self._texts.get(identity)

    async def _runs_of(self, folder: PurePosixPath, head: str, committed: Files) -> Runs:
        if self._runs is None or self._runs_for != (folder, head):
            await self._drop_runs()
            self._runs = Runs(Backend.CPU, "sm_90", committed, folder)
            self._runs_for = (folder, head)
        return self._runs

    async def close(self) -> None:
        if self._job is not None and not self._job.done:
            await self._job.cancel()
        await self._drop_runs()

    async def _drop_runs(self) -> None:
        runs, self._runs = self._runs, None
        if runs is not None:
            await runs.close()

    def _report(self, reply: dict[str, Any], stage: Stage) -> DumpReport:
        kernels, texts = [], []
        for made in reply["compilations"]:
            found = Resources.model_validate(made["resources"]) if made["resources"] else None
            kernels.append(
                KernelReport(
                    kernel=made["kernel"],
                    arch=made["arch"],
                    headline=found.headline("tile_mma" in made["cutile_ir"])
                    if found
                    else made["error"].splitlines()[0],
                    grid=made["grid"],
                    hints=made["hints"],
                    resources=found.model_dump() if found else None,
                    compile_seconds=round(made["seconds"], 2),
                    error=made["error"][:600],
                )
            )
            for name in ("cutile_ir", "tile_ir") if stage == "resources" else (stage,):
                texts.append(f"==== {made['kernel']} for {made['arch']}: {name} ====\n{made[name]}")
        whole = "\n".join(texts)
        identity = hashlib.sha256(whole.encode()).hexdigest()[:16]
        self._texts[identity] = whole
        while len(self._texts) > KEPT_DUMPS:
            self._texts.popitem(last=False)
        shown = "" if stage == "resources" else whole[:TEXT_SHOWN]
        if len(whole) > TEXT_SHOWN and shown:
            shown += f"\n... {len(whole) - TEXT_SHOWN} characters more in the resource"
        status = Status.PASSED if all(kernel.resources for kernel in kernels) else Status.COMPILE_ERROR
        return DumpReport(
            summary="; ".join(f"{kernel.kernel} on {kernel.arch}: {kernel.headline}" for kernel in kernels),
            status=status,
            case=reply["case"],
            kernels=kernels,
            text=shown,
            resource=f"tilewright://dump/{identity}",
        )

"""`autotune` as a tool: one search at a time in a checkout, its table under `sandbox/autotune/`, the best applied."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tilewright.autotune.report import AutotuneReport, SearchResult, label
from tilewright.autotune.searching import Wanted, search
from tilewright.autotune.space import Kind
from tilewright.autotune.wrapper import wrapper_refusal, wrapper_source
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.files import write_atomically
from tilewright.knobs import Value
from tilewright.session.beginning import backend_for, session_on, working_candidate
from tilewright.session.jobs import WAIT_S, Job, Progress, in_thread
from tilewright.session.loop import Loop
from tilewright.task import Backend, Frontend

SHOWN = 12
ENDED = {
    Status.VOID: "the evaluator failed, not the candidate: call autotune again",
    Status.NOT_REPLAYED: "nothing can be raced: try configs one by one with run_benchmark",
    Status.TIMEOUT: "time ran out, which need not be the candidate's fault: give fewer values or smaller cases",
}
"""What to do after a search that ended early for no fault of the candidate's."""
REMEDY = "make the candidate pass run_correctness first; `tilewright check` says where it goes wrong"


class Tuner:
    """Searches in one checkout."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._checkout = loop.checkout
        self._latest: dict[str, SearchResult] = {}
        """The latest search, by what was searched: it can be applied by another call."""

    async def tune(
        self,
        folder: PurePosixPath,
        progress: Progress,
        backend: Backend | None = None,
        arch: str = "sm_90",
        values: Mapping[str, Sequence[Value]] | None = None,
        kind: str = "",
        apply: bool = False,
        wrapper: bool = False,
        wait_s: float = WAIT_S,
    ) -> AutotuneReport:
        """Search the configs of the working tree's candidate. `values` declares the space; else it is proposed, for a
        kernel of `kind` (matmul, attention or rows) or of the kind that its source shows. `apply` writes the best into
        the editable files, `wrapper` a module that tunes once into the sandbox. Raises `UsageError`."""
        wanted = Wanted(working_candidate(self._checkout, folder), values or {}, Kind(kind) if kind else None)
        backend = backend_for(self._checkout, folder, backend)
        if wanted.found.task.file.frontend is Frontend.TRITON and (backend is Backend.CPU or not values):
            raise UsageError(
                "no model knows what a Triton kernel does: autotune races its configs on a GPU (backend cuda), in a "
                "space that you declare (values), for that GPU alone. Its tunable parameters are module-level "
                "constants of the editable files and keywords of the entry point: num_warps and num_stages too, if "
                "written so"
            )
        text = f"{folder} {wanted.found.head} {content_id(wanted.found.files)} {backend} {arch} {values} {kind}"
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        path = self._checkout.sandbox / "autotune" / f"{key}.json"

        async def work(job: Job) -> None:
            async with self._loop.runs_on(wanted.found, backend, arch) as runs:
                result = await search(wanted, backend, runs, job.tell)
            self._checkout.repository.exclude_sandbox()
            path.parent.mkdir(parents=True, exist_ok=True)
            await in_thread(write_atomically, path, result.model_dump_json(indent=1))
            self._latest = {key: result}

        wanted.found.knobs()
        if key not in self._latest or self._latest[key].status is Status.VOID:
            job = self._loop.jobs.start("autotune", key, work)
            if not await job.attend(wait_s, progress):
                return AutotuneReport(summary=f"searching: {job.message}", state="running", next=job.again)
        result = self._latest[key]
        applied = self._apply(wanted, result) if apply and result.best else ""
        files = {"result": str(path)}
        if wrapper and result.status is Status.PASSED:
            files["wrapper"] = self._wrap(wanted, result, path.with_suffix(""))
        return _report(result, files, applied)

    def _wrap(self, wanted: Wanted, result: SearchResult, folder: Path) -> str:
        """Write the wrapper of the entry point's module as it is now. Return its path, or why there is none."""
        if why := wrapper_refusal(wanted, result):
            return f"not written: {why}"
        now = working_candidate(self._checkout, wanted.found.folder).files
        if now not in (wanted.found.files, wanted.found.files | wanted.found.knobs().variant(result.best)):
            return "not written: the editable files were changed during the search; call autotune again"
        path = folder / f"tuned_{wanted.found.task.module.rpartition('.')[2]}.py"
        folder.mkdir(exist_ok=True)
        write_atomically(path, wrapper_source(wanted, result, now[wanted.found.entry_file]))
        return str(path)

    def _apply(self, wanted: Wanted, result: SearchResult) -> str:
        """Write the best config into the editable files, which are those that were searched."""
        if working_candidate(self._checkout, wanted.found.folder).files != wanted.found.files:
            return "nothing was applied: the editable files were changed during the search; call autotune again"
        for name, content in wanted.found.knobs().variant(result.best).items():
            write_atomically(self._checkout.root / name, content.decode())
        judges = "run_correctness and run_benchmark judge it like any edit"
        if session_on(self._checkout, wanted.found.folder) is None:
            judges = "`tilewright compare` sets it beside what is committed; a session would begin with it"
        return f"{label(result.best)} is in the working tree: {judges}"


def _report(result: SearchResult, files: dict[str, str], applied: str) -> AutotuneReport:
    if result.status is not Status.PASSED:
        own = result.status not in ENDED
        message = f"the candidate fails as it is: {result.message}" if own else result.message
        return AutotuneReport(
            summary=f"{result.status.upper()}: {message.splitlines()[0] if message else ''}",
            status=result.status,
            message=message,
            files=files,
            next=ENDED.get(result.status, REMEDY),
        )
    if result.confirmed is not None:
        modelled = result.backend == Backend.CPU
        how = "by the model, and checked" if modelled else "confirmed by a second comparison"
        gain = f"{label(result.best)}: {'~' if modelled else ''}{result.confirmed} the original, {how}"
    else:
        gain = f"the original stays: {result.confirmation}"
    return AutotuneReport(
        summary=f"{len(result.tried)} configs; {gain}",
        status=result.status,
        space=result.space,
        best=result.best,
        best_by_case={case: label(config) for case, config in result.best_by_case.items() if config != result.best},
        configs=[one.line for one in result.tried[:SHOWN]],
        files=files,
        next=applied or ("call autotune again with apply to write it into the editable files" if result.best else ""),
    )

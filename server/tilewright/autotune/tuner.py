"""`autotune` as a tool: one search at a time in a checkout, its table under `sandbox/autotune/`, the best applied."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tilewright.autotune.report import AutotuneReport, ConfigReport, SearchResult, Speedup, Tried, label, occupied
from tilewright.autotune.searching import AS_IT_IS, Wanted, search
from tilewright.autotune.space import Kind
from tilewright.autotune.wrapper import wrapper_refusal, wrapper_source
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.files import write_atomically
from tilewright.knobs import SpaceError, Value
from tilewright.session.beginning import backend_for, session_on, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress, Results, in_thread
from tilewright.session.runs import with_model
from tilewright.task import Backend
from tilewright.text import cut

SHOWN = 12
REMEDY = "make the candidate pass run_correctness first; `tilewright check` says where it goes wrong"
Found = tuple[SearchResult, Path]
"""A search, and the file that holds it."""


class Tuner:
    """Searches in one checkout."""

    def __init__(self, checkout: Checkout, jobs: Jobs | None = None) -> None:
        """`jobs` is the server's."""
        self._checkout = checkout
        self._jobs = jobs or Jobs()
        self._results: Results[Found] = Results(self._jobs, "autotune", lambda found: found[0].status is Status.VOID)

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
        """Search the configs of the working tree's candidate. `values` declares the space; else it is proposed, for
        kernels of `kind` (T1 to T9) or of the kind that the kernel seems to be. `apply` writes the best into the
        editable files, `wrapper` a module that tunes once into the sandbox. Raises `UsageError`."""
        wanted = self._wanted(folder, values or {}, kind)
        backend = backend_for(self._checkout, folder, backend)
        if wanted.unmodelled and (backend is Backend.CPU or not values):
            raise UsageError(
                "no model knows what a Triton kernel does: autotune races its configs on a GPU (backend cuda), in a "
                "space that you declare (values), for that GPU alone. Its tunable parameters are module-level "
                "constants of the editable files and keywords of the entry point: num_warps and num_stages too, if "
                "written so"
            )
        space = sorted((values or {}).items())
        text = f"{folder} {wanted.found.head} {content_id(wanted.files)} {backend} {arch} {space} {kind}"
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        try:
            found = await self._results.get(
                key, lambda job: self._work(job, key, wanted, backend, arch), wait_s, progress
            )
        except SpaceError as error:
            raise UsageError(str(error)) from None
        if isinstance(found, Job):
            return AutotuneReport(summary=f"searching: {found.message}", state="running", next=found.again)
        result, path = found
        applied = self._apply(wanted, result) if apply and result.best else ""
        files = {"result": str(path)}
        if wrapper and result.status is Status.PASSED:
            files["wrapper"] = self._wrap(wanted, result, path.with_suffix(""))
        return _report(result, files, applied)

    async def close(self) -> None:
        await self._jobs.close()

    def _wanted(self, folder: PurePosixPath, values: Mapping[str, Sequence[Value]], kind: str) -> Wanted:
        found = working_candidate(self._checkout, folder)
        kinds = {one.value.partition(" ")[0]: one for one in Kind}
        if kind and kind not in kinds:
            raise UsageError(f"kind is one of {', '.join(one.value for one in Kind)}; give T1 to T9")
        wanted = Wanted(found, values, kinds.get(kind))
        try:
            wanted.knobs()
        except SpaceError as error:
            raise UsageError(str(error)) from None
        return wanted

    async def _work(self, job: Job, key: str, wanted: Wanted, backend: Backend, arch: str) -> Found:
        committed, task, rules = wanted.found.committed, wanted.found.folder, wanted.found.task.file.rules
        async with with_model(backend, arch, committed, task, rules) as (measuring, modelling):
            result = await search(wanted, backend, modelling, measuring, job.tell)
        self._checkout.repository.exclude_sandbox()
        path = self._checkout.sandbox / "autotune" / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        await in_thread(write_atomically, path, result.model_dump_json(indent=1))
        return result, path

    def _wrap(self, wanted: Wanted, result: SearchResult, folder: Path) -> str:
        """Write the wrapper of the entry point's module as it is now. Return its path, or why there is none."""
        if why := wrapper_refusal(wanted, result):
            return f"not written: {why}"
        now = working_candidate(self._checkout, wanted.found.folder).files
        if now not in (wanted.files, wanted.files | wanted.knobs(result.launched).variant(result.best)):
            return "not written: the editable files were changed during the search; call autotune again"
        path = folder / f"tuned_{wanted.found.task.module.rpartition('.')[2]}.py"
        folder.mkdir(exist_ok=True)
        write_atomically(path, wrapper_source(wanted, result, now[wanted.found.entry_file]))
        return str(path)

    def _apply(self, wanted: Wanted, result: SearchResult) -> str:
        """Write the best config into the editable files, which are those that were searched."""
        now = working_candidate(self._checkout, wanted.found.folder)
        if now.files != wanted.files:
            return "nothing was applied: the editable files were changed during the search; call autotune again"
        for name, content in wanted.knobs(result.launched).variant(result.best).items():
            write_atomically(self._checkout.root / name, content.decode())
        judges = "run_correctness and run_benchmark judge it like any edit"
        if session_on(self._checkout, wanted.found.folder) is None:
            judges = "`tilewright compare` sets it beside what is committed; a session would begin with it"
        return f"{label(result.best)} is in the working tree: {judges}"


def _report(result: SearchResult, files: dict[str, str], applied: str) -> AutotuneReport:
    if result.status is not Status.PASSED:
        message, fix = _ended(result.status, result.message)
        return AutotuneReport(
            summary=f"{result.status.upper()}: {message.splitlines()[0] if message else ''}",
            status=result.status,
            message=message,
            files=files,
            next=fix,
        )
    mark = "~" if result.modelled else ""
    places = [one.place for one in result.tried]
    counted = ", ".join(
        f"{places.count(place)} {place}" for place in ("measured", "modelled", "pruned", "failed") if place in places
    )
    if result.confirmed is not None:
        how = "by the model, and checked" if result.modelled else "confirmed by a second comparison"
        gain = f"{label(result.best)}: {mark}{_words(result.confirmed)} the original, {how}"
    else:
        gain = f"the original stays: {result.confirmation}"
    differing = {case: label(config) for case, config in result.best_by_case.items() if config != result.best}
    return AutotuneReport(
        summary=f"{len(result.tried)} configs ({counted}, 1 best); {gain}",
        status=result.status,
        space=result.space,
        warning=result.warning,
        best=result.best,
        best_by_case=differing | ({"loss of the one best": f"{result.loss:.1%}"} if differing else {}),
        configs=[_line(one) for one in result.tried[:SHOWN]],
        more_configs=max(len(result.tried) - SHOWN, 0),
        left_open=result.left_open,
        files=files,
        next=applied or ("call autotune again with apply to write it into the editable files" if result.best else ""),
    )


def _ended(status: Status, message: str) -> tuple[str, str]:
    """What to say of a search that ended early, and what to do then: not every cause is the candidate's."""
    if status is Status.VOID:
        return message, "the evaluator failed, not the candidate: call autotune again"
    if status is Status.NOT_REPLAYED:
        return message, "nothing can be raced: try configs one by one with run_benchmark"
    if status is not Status.TIMEOUT:
        return message, REMEDY
    cause = message.removeprefix(f"{AS_IT_IS}: ")
    if "in a sampled call" not in cause:
        return cause, "time ran out, which need not be the candidate's fault: give fewer values or smaller tiles"
    return (
        f"the model, which runs a sample of each case on this CPU, ran out of time: {cause}",
        "this says nothing against the candidate: try configs one by one with run_benchmark, or make cases smaller",
    )


def _line(one: Tried) -> ConfigReport:
    return ConfigReport(
        config=one.label,
        place=one.place,
        speedup=round(one.speedup.value, 4) if one.speedup else None,
        interval=(round(one.speedup.low, 4), round(one.speedup.high, 4)) if one.speedup else None,
        resources=occupied(one.resources) if one.resources else "",
        why=cut(one.why, 200),
    )


def _words(speedup: Speedup) -> str:
    return f"{speedup.value:.3f}x [{speedup.low:.3f}, {speedup.high:.3f}]"

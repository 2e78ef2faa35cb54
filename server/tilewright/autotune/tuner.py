"""`autotune` as a tool: one search at a time in a checkout, its files under `sandbox/autotune/`, the best applied."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from tilewright.autotune import launchcode
from tilewright.autotune.report import AutotuneReport, ConfigReport, SearchResult, Speedup, Tried, label, occupied
from tilewright.autotune.searching import AS_IT_IS, Wanted, search
from tilewright.autotune.space import Kind
from tilewright.errors import UsageError
from tilewright.evaluation.results import Status
from tilewright.evaluation.snapshot import content_id
from tilewright.files import write_atomically
from tilewright.gpu.specs import DEFAULT_BY_ARCH
from tilewright.knobs import SpaceError, Value
from tilewright.session.beginning import backend_for, session_on, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress, Results, in_thread
from tilewright.session.runs import with_model
from tilewright.task import Backend, Frontend
from tilewright.text import cut

SHOWN = 12
REMEDY = "make the candidate pass run_correctness first; `tilewright check` says where it goes wrong"
Found = tuple[SearchResult, dict[str, str]]
"""A search, and the files that it left, by what they are."""


class Tuner:
    """Searches in one checkout."""

    def __init__(self, checkout: Checkout, jobs: Jobs | None = None) -> None:
        """`jobs` is the server's."""
        self._checkout = checkout
        self._unwritten: dict[str, tuple[SearchResult, dict[str, SearchResult]]] = {}
        """The last search, by its key, until what it found is on disk: on a full disk the same call writes it later."""
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
        also: Sequence[str] = (),
        wait_s: float = WAIT_S,
    ) -> AutotuneReport:
        """Search the configs of the working tree's candidate. `values` declares the space; else it is proposed, for
        kernels of `kind` (T1 to T9) or of the kind that the kernel seems to be. The launch code also knows what the
        model says for the architectures `also`. `apply` writes the best into the editable files. Raises
        `UsageError`."""
        wanted = self._wanted(folder, values or {}, kind)
        backend = backend_for(self._checkout, folder, backend)
        if wanted.unmodelled and (backend is Backend.CPU or not values or also):
            raise UsageError(
                "no model knows what a Triton kernel does: autotune races its configs on a GPU (backend cuda), in a "
                "space that you declare (values), for that GPU alone. Its tunable parameters are module-level "
                "constants of the editable files and keywords of the entry point: num_warps and num_stages too, if "
                "written so"
            )
        if unknown := [one for one in also if one not in DEFAULT_BY_ARCH]:
            raise UsageError(f"no model of {unknown[0]}: the model knows {', '.join(DEFAULT_BY_ARCH)}")
        space = sorted((values or {}).items())
        text = f"{folder} {wanted.found.head} {content_id(wanted.files)} {backend} {arch} {space} {kind} {also}"
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        try:
            found = await self._results.get(
                key, lambda job: self._work(job, key, wanted, backend, arch, also), wait_s, progress
            )
        except SpaceError as error:
            raise UsageError(str(error)) from None
        if isinstance(found, Job):
            return AutotuneReport(summary=f"searching: {found.message}", state="running", next=found.again)
        result, files = found
        applied = self._apply(wanted, result) if apply and result.best else ""
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

    async def _work(
        self, job: Job, key: str, wanted: Wanted, backend: Backend, arch: str, also: Sequence[str]
    ) -> Found:
        committed, task, rules = wanted.found.committed, wanted.found.folder, wanted.found.task.file.rules
        if key not in self._unwritten:
            async with with_model(backend, arch, committed, task, rules) as (measuring, modelling):
                result = await search(wanted, backend, modelling, measuring, job.tell)
            others = {}
            for other in also if result.status is Status.PASSED else ():
                job.tell(f"the same for {other}")
                async with with_model(Backend.CPU, other, committed, task, rules) as (runs, _):
                    others[other] = await search(wanted, Backend.CPU, runs, runs, job.tell)
            self._unwritten = {key: (result, others)}
        result, others = self._unwritten[key]
        job.tell("writing what was found")
        self._checkout.repository.exclude_sandbox()
        folder = self._checkout.sandbox / "autotune"
        files = await in_thread(_write, folder, key, wanted, result, others)
        del self._unwritten[key]
        return result, files

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


def _write(
    folder: Path, key: str, wanted: Wanted, result: SearchResult, others: Mapping[str, SearchResult]
) -> dict[str, str]:
    """Where everything is that the search leaves, by what it is; of what is not written, why."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, str] = {}
    for what, one in {"result": result, **others}.items():
        path = folder / (f"{key}.json" if one is result else f"{key}-{what}.json")
        write_atomically(path, one.model_dump_json(indent=1))
        found[what] = str(path)
        if result.status is not Status.PASSED:
            return found
    if wanted.found.task.file.frontend is not Frontend.CUTILE:
        return found
    known = {arch: one for arch, one in others.items() if one.status is Status.PASSED}
    if why := launchcode.why_not(wanted, result, known.values()):
        return found | {"launch": f"not written: {why}"}
    code, table = launchcode.write(wanted, result, known)
    launch = folder / key / f"tuned_{wanted.found.task.module.rpartition('.')[2]}.py"
    launch.parent.mkdir(exist_ok=True)
    write_atomically(launch, code)
    write_atomically(launch.with_suffix(".json"), table)
    return found | {"launch": str(launch)}


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

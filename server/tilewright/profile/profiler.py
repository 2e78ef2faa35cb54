"""`profile` as a tool: the candidate timed alone, its launches and code looked at, and a diagnosis of each case."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tilewright.compiler.findings import findings
from tilewright.compiler.treatments import Finding
from tilewright.errors import UsageError
from tilewright.evaluation.results import BenchmarkResult, CaseTiming, Environment, Status, Surveyed
from tilewright.evaluation.seeds import new_secret
from tilewright.evaluation.snapshot import content_id
from tilewright.gpu.lease import GpuBusy, lease
from tilewright.gpu.specs import spec_by_arch, spec_by_name
from tilewright.knobs import Value
from tilewright.profile.counters import Counters, read_counters
from tilewright.profile.diagnosis import Facts, diagnose
from tilewright.profile.recording import Kernels, record_kernels
from tilewright.profile.report import ProfileReport
from tilewright.programs.format import program_file
from tilewright.roofline.model import CallProfile, estimate_call
from tilewright.session.beginning import Working, backend_for, working_candidate
from tilewright.session.checkout import Checkout
from tilewright.session.jobs import WAIT_S, Job, Jobs, Progress, Results, in_thread
from tilewright.session.outcomes import Dumped, SurveyResult
from tilewright.session.runs import with_model
from tilewright.task import Backend, Frontend, Work, case_label

LIMIT_S = 600.0
LEASE_WAIT_S = 20.0
COMPILE_S = 60.0
COUNTERS = "ncu's counters show stall reasons, cache hit rates, bank conflicts and uncoalesced access; none were read: "
UNSEEN = SurveyResult(status=Status.PASSED, variants=[Surveyed()])
"""Of a Triton kernel: no model sees it."""
UNCOMPARED = "results: run_correctness compares them with the reference"
FEW_BLOCKS = "all but a few blocks of each launch, and clocks: the model saw those blocks"
MORE = "`ncu --set full --clock-control none` on the fixed config would add counters by source line"


class _Seen(NamedTuple):
    """All that was looked at, as it came."""

    environment: Environment
    works: list[Work]
    survey: SurveyResult
    benchmark: BenchmarkResult
    dumped: Dumped
    counters: Counters
    kernels: Kernels


class Profiler:
    """Profiles of one checkout's tasks."""

    def __init__(self, checkout: Checkout, jobs: Jobs | None = None) -> None:
        """`jobs` is the server's."""
        self._checkout = checkout
        self._jobs = jobs or Jobs()
        self.counters = Counters(why_not="nothing was profiled")
        """What ncu counted for the latest profile, in full."""
        self.kernels = Kernels(why_not="nothing was profiled")
        """The kernels that the latest profile recorded, in full."""
        self._results: Results[ProfileReport] = Results(
            self._jobs, "profile", lambda report: report.status is Status.VOID
        )

    async def profile(
        self,
        folder: PurePosixPath,
        progress: Progress,
        backend: Backend | None = None,
        arch: str = "sm_90",
        wait_s: float = WAIT_S,
        config: Mapping[str, Value] | None = None,
    ) -> ProfileReport:
        """Diagnose the working tree's candidate as it is, but for the knobs of `config`: nothing is tuned. Raises
        `UsageError`."""
        found = working_candidate(self._checkout, folder).with_config(config or {})
        backend = backend_for(self._checkout, folder, backend)
        if found.task.file.frontend is Frontend.TRITON and backend is Backend.CPU:
            raise UsageError(
                "a Triton task is profiled on a GPU: no model sees Triton kernels; without one use dump_ir"
            )
        key = f"{folder} {found.head} {content_id(found.files)} {backend} {arch}"
        report = await self._results.get(key, lambda job: self._work(job, found, backend, arch), wait_s, progress)
        if isinstance(report, Job):
            return ProfileReport(summary=f"profiling: {report.message}", state="running", next=report.again)
        return report

    async def close(self) -> None:
        await self._jobs.close()

    async def _work(self, job: Job, found: Working, backend: Backend, arch: str) -> ProfileReport:
        with tempfile.TemporaryDirectory(prefix="tilewright-profile-") as name:
            store = Path(name)
            async with with_model(backend, arch, found.committed, found.folder, found.task.file.rules) as (
                measuring,
                modelling,
            ):
                environment = await measuring.environment()
                triton = found.task.file.frontend is Frontend.TRITON
                survey = UNSEEN if triton else await modelling.survey([found.files], backend, LIMIT_S, job.tell)
                dumped = await modelling.dump(found.files, [environment.arch], COMPILE_S, LIMIT_S, job.tell)
                job.tell("timing the candidate alone")
                benchmark = await measuring.benchmark(
                    found.files, None, new_secret(), LIMIT_S, job.tell, store=store, with_inputs=True
                )
                works = await measuring.work()
            self.counters = Counters(why_not="nothing ran on a GPU")
            self.kernels = Kernels(why_not="nothing ran on a GPU")
            if backend is Backend.CUDA and benchmark.passed:
                programs = [_program(store, timing) for timing in benchmark.cases]
                size, own = [float(work.bytes) for work in works], _names(survey, dumped)
                await self._look(job, programs, size, own, environment.device_uuid)
        return _report(_Seen(environment, works, survey, benchmark, dumped, self.counters, self.kernels)).fitted()

    async def _look(
        self, job: Job, programs: Sequence[Path | str], work_bytes: Sequence[float], own: set[str], uuid: str
    ) -> None:
        """Replay the programs for what they launch and for ncu, with the GPU held meanwhile."""
        with contextlib.ExitStack() as held:
            try:
                if uuid:
                    await in_thread(held.enter_context, lease(uuid, LEASE_WAIT_S, lambda _: None))
            except GpuBusy as busy:
                self.counters, self.kernels = Counters(why_not=str(busy)), Kernels(why_not=str(busy))
                return
            job.tell("recording the kernels of a call")
            self.kernels = await in_thread(record_kernels, programs, work_bytes, own)
            job.tell("reading counters with ncu")
            self.counters = await read_counters(programs)


def _program(store: Path, timing: CaseTiming) -> Path | str:
    """Where a case's program lies, or why there is none."""
    if timing.program is None:
        return f"a call that cannot be replayed is not looked at: {timing.note}"
    path = program_file(store, timing.program.sha256)
    return path if path.is_file() else f"its program was {timing.program.note}"


def _names(survey: SurveyResult, dumped: Dumped) -> set[str]:
    """The names of the candidate's kernels, as written and as compiled."""
    compiled = {name for kernel in dumped.kernels for name in (kernel.made.kernel, kernel.made.symbol) if name}
    calls = [call for one in survey.variants for call in one.profiles]
    return compiled | {launch.kernel for call in calls for launch in call.launches}


def _report(seen: _Seen) -> ProfileReport:
    original = seen.survey.variants[0] if seen.survey.variants else Surveyed(status=seen.survey.status)
    for status, message in (
        (seen.survey.status, seen.survey.message),
        (original.status, original.message),
        (seen.benchmark.status, seen.benchmark.message),
    ):
        if status is not Status.PASSED:
            first = message.splitlines()[0] if message else ""
            fix = "make the candidate pass run_correctness first"
            return ProfileReport(summary=f"{status.upper()}: {first}", status=status, message=message, next=fix)
    device = spec_by_name(seen.environment.device) or spec_by_arch(seen.environment.arch)
    measured = not seen.benchmark.modelled
    diagnoses = []
    for index, timing in enumerate(seen.benchmark.cases):
        profile = original.profiles[index] if original.profiles else CallProfile(launches=[])
        facts = Facts(
            case_label(timing.case),
            seen.works[index],
            timing.latency_ms,
            measured,
            profile,
            estimate_call(profile, device),
            [kernel.made for kernel in seen.dumped.kernels],
            seen.counters.cases[index] if index < len(seen.counters.cases) else [],
            seen.kernels.cases[index] if index < len(seen.kernels.cases) else None,
        )
        diagnoses.append(diagnose(facts, device, seen.environment.ceilings, _findings(seen.dumped, profile)))
    worst = min(diagnoses, key=lambda one: one.roofline_percent if one.roofline_percent is not None else 100.0)
    share = f" ({worst.roofline_percent:.0f}% of its roofline)" if worst.roofline_percent is not None else ""
    mark = "" if measured else "~"
    first = worst.treatments[0] if worst.treatments else worst.stop
    if worst.root_cause in ("unknown", "scheduling"):
        advice = "ask the user how to go on: the cause is not known (append_result takes it as root_cause)"
    elif worst.stop and not worst.treatments:
        advice = "stop: this is the ceiling"
    else:
        advice = f"try first: {first}; then check and measure it (append_result takes root_cause={worst.root_cause})"
    return ProfileReport(
        summary=f"bound by {worst.bound}: {worst.case}, {mark}{worst.latency_ms:.6f} ms{share}",
        status=Status.PASSED,
        device=seen.environment.device,
        modelled=not measured,
        cases=diagnoses,
        counters=seen.counters.summary,
        kernels=seen.kernels.summary if measured else "",
        would_add=COUNTERS + seen.counters.why_not if seen.counters.why_not else MORE,
        left_out="; ".join(filter(None, [UNCOMPARED, "" if measured else FEW_BLOCKS, seen.dumped.message])),
        next=advice,
    )


def _findings(dumped: Dumped, profile: CallProfile) -> list[Finding]:
    """What costs time in the compiled kernels, the dearest first, at the case's shapes where a model saw them."""
    shapes = {launch.kernel: launch.shapes for launch in reversed(profile.launches)}
    found = [
        one for kernel in dumped.kernels for one in findings(kernel.made, shapes.get(kernel.made.kernel, kernel.shapes))
    ]
    return sorted(found, key=lambda one: -one.cost)

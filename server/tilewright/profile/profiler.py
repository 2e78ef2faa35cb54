"""`profile` as a tool: what bounds the working tree's candidate.

On a GPU its calls are captured and timed. Then nothing but the programs runs: CUPTI records their kernels, ncu counts,
and the machine code of the kernel that takes longest is read. Without a GPU a model says what its calls do.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from tilewright.errors import UsageError
from tilewright.evaluation.results import ORIGINAL, CaseTiming, Environment, Status
from tilewright.evaluation.seeds import new_secret
from tilewright.evaluation.snapshot import content_id
from tilewright.gpu.lease import GpuBusy, lease
from tilewright.gpu.specs import spec_by_arch, spec_by_name
from tilewright.knobs import MATMUL, Value
from tilewright.profile.counters import read_counters
from tilewright.profile.diagnosis import Facts, ProfileReport, diagnose
from tilewright.profile.kernels import function_names
from tilewright.profile.programs import read_code, record_kernels
from tilewright.programs.format import program_file
from tilewright.repository import Files
from tilewright.session.beginning import Working, backend_for, working_candidate
from tilewright.session.jobs import WAIT_S, Job, Progress, in_thread
from tilewright.session.loop import Loop
from tilewright.task import Backend, Frontend, case_label

LIMIT_S = 600.0
LEASE_WAIT_S = 20.0
COMPILE_S = 60.0
UNCOMPARED = "results: run_correctness compares them with the reference"
FEW_BLOCKS = "all but a few blocks of each launch, and clocks: the model saw those blocks"
COMPILER = "what the compiler says of TMA, gathers and tile shapes: dump_ir shows it"
_FUNCTION = re.compile(rb"^def (\w+)", re.MULTILINE)


async def profile(
    loop: Loop,
    folder: PurePosixPath,
    progress: Progress,
    backend: Backend | None = None,
    arch: str = "sm_90",
    wait_s: float = WAIT_S,
    config: Mapping[str, Value] | None = None,
) -> ProfileReport:
    """Diagnose the working tree's candidate as it is, but for the knobs of `config`: nothing is tuned. Raises
    `UsageError`."""
    found = working_candidate(loop.checkout, folder).with_config(config or {})
    backend = backend_for(loop.checkout, folder, backend)
    if found.task.file.frontend is Frontend.TRITON and backend is Backend.CPU:
        raise UsageError("a Triton task is profiled on a GPU: no model sees Triton kernels; without one use dump_ir")

    looked = _measured if backend is Backend.CUDA else _modelled
    key = f"{folder} {found.head} {content_id(found.files)} {backend} {arch}"
    job = loop.jobs.start("profile", key, lambda job: looked(loop, job, found, arch))
    if not await job.attend(wait_s, progress):
        return ProfileReport(summary=f"profiling: {job.message}", state="running", next=job.again)
    report: ProfileReport = job.result
    return report


async def _measured(loop: Loop, job: Job, found: Working, arch: str) -> ProfileReport:
    with tempfile.TemporaryDirectory(prefix="tilewright-profile-") as name:
        store = Path(name)
        async with loop.runs_on(found, Backend.CUDA, arch) as runs:
            environment = await runs.environment()
            job.tell("capturing and timing the candidate")
            benchmark = await runs.benchmark(
                found.files, None, new_secret(), LIMIT_S, job.tell, store=store, with_inputs=True
            )
            if not benchmark.passed:
                return _failed(benchmark.status, benchmark.message)
            works = await runs.work()
        programs = [_program(store, timing) for timing in benchmark.cases]
        triton = found.task.file.frontend is Frontend.TRITON
        files = found.committed | found.files
        try:
            with contextlib.ExitStack() as held:
                await in_thread(held.enter_context, lease(environment.device_uuid, LEASE_WAIT_S, lambda _: None))
                job.tell("recording the kernels of a call")
                kernels, why_not = await in_thread(record_kernels, programs, function_names(files))
                job.tell("reading counters with ncu")
                longest = [one.longest for one in kernels]
                read, (code, unread) = await asyncio.gather(
                    read_counters(programs), in_thread(read_code, programs, longest, triton)
                )
        except GpuBusy as busy:
            return _failed(Status.VOID, str(busy))
    products = _products(files)
    counted = read.cases or [[] for _ in programs]
    facts = [
        Facts(case_label(timing.case), work, timing.latency_ms, None, made, counters, one.call, one.longest, products)
        for timing, work, made, counters, one in zip(benchmark.cases, works, code, counted, kernels, strict=True)
    ]
    left = [UNCOMPARED, why_not, unread, "" if triton else COMPILER]
    return _report(environment, facts, left, read.summary or f"none: {read.why_not}")


async def _modelled(loop: Loop, job: Job, found: Working, arch: str) -> ProfileReport:
    async with loop.runs_on(found, Backend.CPU, arch) as runs:
        environment = await runs.environment()
        modelled = await runs.model([found.files], LIMIT_S, job.tell)
        if modelled.status is not Status.PASSED:
            return _failed(modelled.status, modelled.message)
        variant = modelled.variants[ORIGINAL]
        if variant.status is not Status.PASSED:
            return _failed(variant.status, variant.message)
        dumped = await runs.dump(found.files, [environment.arch], COMPILE_S, LIMIT_S, job.tell)
        works = await runs.work()
    compiled = [kernel.made for kernel in dumped.kernels]
    facts = [
        Facts(case_label(case), work, ms, profile, compiled)
        for case, work, ms, profile in zip(modelled.cases, works, variant.ms, variant.profiles, strict=True)
    ]
    return _report(environment, facts, [UNCOMPARED, FEW_BLOCKS, dumped.message], "none: nothing ran on a GPU")


def _program(store: Path, timing: CaseTiming) -> Path | str:
    """Where a case's program lies, or why there is none."""
    if timing.program is None:
        return f"a call that cannot be replayed is not looked at: {timing.note}"
    path = program_file(store, timing.program.sha256)
    return path if path.is_file() else f"its program was {timing.program.note}"


def _products(files: Files) -> frozenset[str]:
    """The names of the functions whose source multiplies matrices."""
    found = set()
    for name, source in files.items():
        if name.endswith(".py"):
            _, *parts = _FUNCTION.split(source)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            found |= {function.decode() for function, body in pairs if MATMUL.search(body)}
    return frozenset(found)


def _failed(status: Status, message: str) -> ProfileReport:
    first = message.splitlines()[0] if message else ""
    fix = "call profile again" if status is Status.VOID else "make the candidate pass run_correctness first"
    return ProfileReport(summary=f"{status.upper()}: {first}", status=status, message=message, next=fix)


def _report(environment: Environment, facts: list[Facts], left_out: list[str], counters: str) -> ProfileReport:
    device = spec_by_name(environment.device) or spec_by_arch(environment.arch)
    diagnoses = [diagnose(one, device, environment.ceilings) for one in facts]
    modelled = facts[0].profile is not None
    worst = min(diagnoses, key=lambda one: one.roofline_percent if one.roofline_percent is not None else 100.0)
    share = f" ({worst.roofline_percent:.0f}% of its roofline)" if worst.roofline_percent is not None else ""
    if worst.root_cause in ("unknown", "scheduling"):
        advice = "ask the user how to go on: the cause is not known (run_iteration takes it as root_cause)"
    elif worst.stop and not worst.treatments:
        advice = "stop: this is the ceiling"
    else:
        first = worst.treatments[0] if worst.treatments else worst.stop
        advice = f"try first: {first}; then run_iteration (it takes root_cause={worst.root_cause})"
    return ProfileReport(
        summary=f"bound by {worst.bound}: {worst.case}, {'~' if modelled else ''}{worst.latency_ms:.6f} ms{share}",
        status=Status.PASSED,
        device=environment.device,
        modelled=modelled,
        cases=diagnoses,
        counters=counters,
        left_out="; ".join(filter(None, left_out)),
        next=advice,
    )

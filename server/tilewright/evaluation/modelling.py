"""The worker's side of the `cpu` backend: what a call launches, for the latency model, for the checker and for
dumps."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tilewright.compiler.assembling import assemble
from tilewright.compiler.compilation import Lowered
from tilewright.compiler.cutile import lower
from tilewright.compiler.resources import Resources
from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status
from tilewright.frontends.protocol import FRONTENDS, Choice, MissingPackage, need_packages
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.checker import findings_of
from tilewright.interpreter.hostops import counting
from tilewright.interpreter.undetermined import Undetermined
from tilewright.roofline.model import CallProfile, LaunchProfile
from tilewright.task import Frontend

COMPILE_S = 60.0
DEFECTS = 20
"""That are told."""


def prepare(arch: str) -> None:
    """Make this process a stand-in for one with a GPU of `arch`. What torch.compile is given runs as it is, and tuners
    take their first config."""
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    host.install(spec_by_arch(arch))
    FRONTENDS["cutile"].runtime().choose(Choice(0))


def prepare_triton(arch: str, running: bool) -> None:
    """Make Triton run kernels in its interpreter, or, where the candidate is not to be run, note its launches down."""
    try:
        need_packages(FRONTENDS[Frontend.TRITON])
    except MissingPackage as missing:
        raise CandidateFailure(Status.IMPORT_ERROR, str(missing)) from None
    from tilewright.interpreter import tritonhost

    tritonhost.install(spec_by_arch(arch), interpret=running)
    FRONTENDS["triton"].runtime().choose(Choice(0))


def profile_call(
    candidate: Candidate,
    arguments: dict[str, Any],
    arch: str,
    frontend: Frontend,
) -> dict[str, Any]:
    """One call with a few blocks of each launch run, as a `CallProfile`. What a first call prepares is not counted.

    Raises `CandidateFailure` where a cuTile task launches no block, or a torch task computes nothing.
    """
    torch.set_num_threads(1)  # tiles are small, and there is a worker for each processor: threads would only wait
    with contextlib.suppress(CandidateFailure), host.running(host.Mode.CAPTURE):
        candidate(arguments)
    with host.running(host.Mode.SAMPLE) as launches, counting() as ops:
        candidate(arguments)
    launched = any(launch.blocks for launch in launches)
    if frontend is Frontend.TORCH and not launched and not ops:
        raise CandidateFailure(Status.RAISED, "the entry point made no torch operation, so there is nothing to model")
    if frontend is Frontend.CUTILE and not launched:
        raise CandidateFailure(
            Status.RAISED,
            "the entry point launched no block of a cuTile kernel, so there is nothing to model; measure it on a GPU",
        )
    profiles = [profile_launch(launch, arch) for launch in launches if launch.blocks]
    return CallProfile(launches=profiles, host=ops).model_dump()


def check_call(
    candidate: Candidate,
    arguments: dict[str, Any],
    empty: list[str],
    watching: Callable[[], AbstractContextManager[None]],
) -> list[dict[str, Any]]:
    """What is wrong with a call, as `Defect`s without their case. `empty` are the arguments that nobody has written.
    Each call is made in `watching`."""
    state = torch.get_rng_state()

    def call(undetermined: Undetermined) -> Sequence[torch.Tensor]:
        torch.set_rng_state(state)
        with torch._C.DisableTorchFunction():
            fresh = copy.deepcopy(arguments)
        for name in empty:
            undetermined.fill(fresh[name])
        with watching():
            return candidate(fresh)

    found = [dataclasses.asdict(finding) for finding in findings_of(call)]
    for finding in found:
        finding["file"] = finding["file"].removeprefix(f"{candidate.folder}/")
    return found[:DEFECTS]


def profile_launch(launch: host.Launch, arch: str) -> LaunchProfile:
    """A launch as the model sees it: what it does, on average over the blocks that were run, and what it occupies.
    Raises `CandidateFailure` where its kernel does not compile."""
    counts, sampled = launch.counts, max(launch.counts.blocks, 1)
    return LaunchProfile(
        kernel=launch.name,
        blocks=launch.blocks,
        bytes_loaded=counts.loaded.total() / sampled,
        bytes_stored=counts.stored.total() / sampled,
        load_rounds=counts.loads / sampled,
        matrix_flops={dtype: flops / sampled for dtype, flops in counts.matrix_flops.items()},
        scalar_flops=counts.scalar_flops / sampled,
        special_functions=counts.special_functions / sampled,
        loop_trips=counts.loop_trips / sampled,
        reductions={results: count / sampled for results, count in counts.reductions.items()},
        dram_bytes=launch.dram_bytes(),
        resources=_compiled(lower(launch.kernel, launch.signature, arch)),
    )


@cache
def _compiled(source: Lowered) -> Resources:
    """What a kernel occupies; another case mostly launches the same kernels."""
    made = assemble(source, COMPILE_S, Path.cwd())
    if made.resources is None:
        status = Status.TIMEOUT if made.timed_out else Status.COMPILE_ERROR
        raise CandidateFailure(status, f"{source.kernel} for {source.arch}: {made.error}")
    return made.resources


def listed_call(candidate: Candidate, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The torch operations of one call, as `HostWork`s; what a first call prepares is left out."""
    with contextlib.suppress(CandidateFailure), host.running(host.Mode.CAPTURE):
        candidate(arguments)
    with host.running(host.Mode.CAPTURE), counting() as ops:
        candidate(arguments)
    return [work.model_dump() for work in ops]


def compiled_call(
    candidate: Candidate, arguments: dict[str, Any], archs: list[str], root: Path, compile_s: float
) -> list[bytes]:
    """The distinct kernels that one call launches, compiled for each architecture, in `compile_s` seconds each at most;
    as JSON of `DumpedKernel`s. `root` is the snapshot's folder. Raises `CandidateFailure` where nothing is launched."""
    with host.running(host.Mode.CAPTURE) as launches:
        candidate(arguments)
    if not launches:
        raise CandidateFailure(Status.RAISED, "the entry point launched no cuTile kernel: there is nothing to compile")
    distinct = {(launch.kernel, launch.signature.symbol): launch for launch in launches}
    return _assembled(
        [
            (lower(launch.kernel, launch.signature, arch, root), {"grid": list(launch.grid)})
            for launch in distinct.values()
            for arch in archs
        ],
        compile_s,
    )


def compiled_triton_call(
    candidate: Candidate, arguments: dict[str, Any], archs: list[str], root: Path, compile_s: float
) -> list[bytes]:
    """The same of Triton kernels."""
    from tilewright.compiler import tritonfront
    from tilewright.interpreter import tritonhost

    with host.running(host.Mode.CAPTURE), tritonhost.captured() as launches:
        candidate(arguments)
    if not launches:
        raise CandidateFailure(Status.RAISED, "the entry point launched no Triton kernel: there is nothing to compile")
    distinct: dict[str, tritonhost.TritonLaunch] = {}
    for launch in launches:
        distinct.setdefault(f"{tritonfront.signature_text(launch.source)} {sorted(launch.options.items())}", launch)
    kernels: list[tuple[Lowered, dict[str, Any]]] = []
    for launch in distinct.values():
        for arch in archs:
            with tritonhost.device_of(arch):
                made = tritonfront.lower(launch.source, launch.options, arch, tritonhost.target_of(arch), root)
            if not made.error and any(size > limit for size, limit in zip(launch.grid, host.GRID_LIMITS, strict=True)):
                made = dataclasses.replace(made, error=f"grid {launch.grid}: CUDA takes at most {host.GRID_LIMITS}")
            kernels.append((made, {"grid": list(launch.grid)}))
    return _assembled(kernels, compile_s)


def _assembled(kernels: list[tuple[Lowered, dict[str, Any]]], compile_s: float) -> list[bytes]:
    """Compile as many kernels at a time as there are processors."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        made = threads.map(lambda kernel: assemble(kernel[0], compile_s, Path.cwd()), kernels)
        return [
            json.dumps(about | {"made": one.model_dump(mode="json")}).encode()
            for (_, about), one in zip(kernels, made, strict=True)
        ]

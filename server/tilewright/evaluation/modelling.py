"""The worker's side of the `cpu` backend: what a call launches, for the latency model and for dumps."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tilewright.compiler.assembling import Lowered, assemble
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import lower
from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.hostops import counting
from tilewright.roofline.model import SEARCHED, CallProfile, LaunchProfile
from tilewright.task import Frontend

COMPILE_S = 60.0


def prepare(arch: str) -> None:
    """Make this process a stand-in for one with a GPU of `arch`. What torch.compile is given runs as it is."""
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    host.install(spec_by_arch(arch))


def prepare_triton(arch: str, running: bool) -> None:
    """Make Triton run kernels in its interpreter, or, where the candidate is not to be run, note its launches down."""
    if importlib.util.find_spec("triton") is None:
        raise CandidateFailure(Status.IMPORT_ERROR, "triton is not installed here: pip install 'triton>=3.6'")
    from tilewright.interpreter import tritonhost

    tritonhost.install(spec_by_arch(arch), interpret=running)


def profile_call(
    candidate: Candidate,
    arguments: dict[str, Any],
    arch: str,
    seed: int,
    frontend: Frontend,
    limit_s: float = math.inf,
) -> dict[str, Any]:
    """One call with a few blocks of each launch run, as a `CallProfile`. What a first call prepares is not counted.
    Blocks that take over `limit_s` seconds count as what the interpreter cannot run.

    Raises `CandidateFailure` where a cuTile task launches no block, or a torch task computes nothing.
    """
    before = len(host.searched)
    torch.set_num_threads(1)  # tiles are small, and there is a worker for each processor: threads would only wait
    with contextlib.suppress(CandidateFailure), host.running(host.Mode.CAPTURE):
        candidate(arguments)
    with host.running(host.Mode.SAMPLE, seed, limit_s) as launches, counting() as ops:
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
    searched = host.searched[before:] or host.searched[-1:]  # one that is kept for all cases was made in the first
    return CallProfile(launches=profiles, host=ops, searched=[*dict.fromkeys(searched)][:SEARCHED]).model_dump()


def profile_launch(launch: host.Launch, arch: str) -> LaunchProfile:
    """A launch as the model sees it. Raises `CandidateFailure` where its kernel does not compile."""
    made = _compiled(lower(launch.kernel, launch.signature, arch))
    if made.resources is None:
        raise CandidateFailure(
            Status.TIMEOUT if made.timed_out else Status.COMPILE_ERROR, f"{made.kernel} for {arch}: {made.error}"
        )
    counts, sampled = launch.counts, launch.counts.blocks
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
        streams=launch.streams(),
        written=sorted(launch.names.get(address, "") for address in counts.stored),
        overwritten=sorted(launch.names.get(address, "") for address in counts.stored if address in counts.loaded),
        resources=made.resources,
    )


@cache
def _compiled(source: Lowered) -> Compilation:
    """What is made of `source`; another case mostly launches the same kernels."""
    return assemble(source, COMPILE_S, Path.cwd())


def listed_call(candidate: Candidate, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """The torch operations of one call, as `HostWork`s; what a first call prepares is left out."""
    with contextlib.suppress(CandidateFailure), host.running(host.Mode.CAPTURE):
        candidate(arguments)
    with host.running(host.Mode.CAPTURE), counting() as ops:
        candidate(arguments)
    return [work.model_dump() for work in ops]


def lowered_triton_call(
    candidate: Candidate, arguments: dict[str, Any], archs: list[str], root: Path
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """What `lowered_call` gives, of Triton kernels: TTIR takes the place of bytecode."""
    from tilewright.compiler import tritonfront
    from tilewright.interpreter import tritonhost

    with host.running(host.Mode.CAPTURE), tritonhost.captured() as launches:
        candidate(arguments)
    if not launches:
        raise CandidateFailure(Status.RAISED, "the entry point launched no Triton kernel: there is nothing to compile")
    distinct: dict[str, tritonhost.TritonLaunch] = {}
    for launch in launches:
        distinct.setdefault(f"{tritonfront.signature_text(launch.source)} {sorted(launch.options.items())}", launch)
    found, texts = [], []
    for launch in distinct.values():
        for arch in archs:
            with tritonhost.device_of(arch):
                made = tritonfront.lower(launch.source, launch.options, arch, tritonhost.target_of(arch), root)
            lowered = dataclasses.asdict(made)
            texts.append(lowered.pop("bytecode"))
            found.append(lowered | {"grid": list(launch.grid)})
    return found, texts


def lowered_call(
    candidate: Candidate, arguments: dict[str, Any], archs: list[str], root: Path
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The distinct kernels that one call launches, as the front end hands them on for each architecture, and bytecodes.

    `root` is the snapshot's folder. Raises `CandidateFailure` where nothing is launched.
    """
    with host.running(host.Mode.CAPTURE) as launches:
        candidate(arguments)
    if not launches:
        raise CandidateFailure(Status.RAISED, "the entry point launched no cuTile kernel: there is nothing to compile")
    distinct = {(launch.kernel, launch.signature.symbol): launch for launch in launches}
    found, bytecodes = [], []
    for launch in distinct.values():
        for arch in archs:
            lowered = dataclasses.asdict(lower(launch.kernel, launch.signature, arch, root))
            bytecodes.append(lowered.pop("bytecode"))
            found.append(lowered | {"grid": list(launch.grid)})
    return found, bytecodes

"""The worker's side of the `cpu` backend: what a call launches, for the latency model and for `dump_ir`."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from tilewright.compiler.cutile import Compilation, compile_kernel
from tilewright.evaluation.candidate import Candidate, CandidateFailure
from tilewright.evaluation.results import Status
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import host
from tilewright.interpreter.hostops import counting
from tilewright.roofline.model import CallProfile, LaunchProfile

TEXT_LIMIT = 400_000


def prepare(arch: str) -> None:
    """Make this process a stand-in for one with a GPU of `arch`."""
    host.install(spec_by_arch(arch))


def profile_call(candidate: Candidate, arguments: dict[str, Any], arch: str, seed: int) -> dict[str, Any]:
    """One call with a few blocks of each launch run, as a `CallProfile`. What a first call prepares is not counted."""
    with contextlib.suppress(CandidateFailure), host.running(host.Mode.CAPTURE):
        candidate(arguments)
    with host.running(host.Mode.SAMPLE, seed) as launches, counting() as ops:
        candidate(arguments)
    if not any(launch.blocks for launch in launches):
        raise CandidateFailure(
            Status.RAISED,
            "the entry point launched no block of a cuTile kernel, so there is nothing to model; measure it on a GPU",
        )
    compiled: dict[Any, Compilation] = {}
    profiles = [profile_launch(launch, arch, compiled) for launch in launches if launch.blocks]
    return CallProfile(launches=profiles, host=ops).model_dump()


def profile_launch(launch: host.Launch, arch: str, compiled: dict[Any, Compilation]) -> LaunchProfile:
    """A launch as the model sees it; `compiled` keeps what was compiled for the next launch of the same kernel."""
    key = (launch.kernel, launch.signature.symbol)
    if key not in compiled:
        compiled[key] = compile_kernel(launch.kernel, launch.signature, arch)
    made = compiled[key]
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
        dram_bytes=launch.dram_bytes(),
        resources=made.resources,
    )


def dump_call(
    candidate: Candidate, arguments: dict[str, Any], archs: list[str], timeout_s: float
) -> list[dict[str, Any]]:
    """The distinct kernels that one call launches, each compiled for each architecture, with texts."""
    with host.running(host.Mode.CAPTURE) as launches:
        candidate(arguments)
    if not launches:
        raise CandidateFailure(Status.RAISED, "the entry point launched no cuTile kernel: there is nothing to compile")
    distinct = {(launch.kernel, launch.signature.symbol): launch for launch in launches}
    found = []
    for launch in distinct.values():
        for arch in archs:
            made = compile_kernel(launch.kernel, launch.signature, arch, timeout_s, with_text=True)
            entry = dataclasses.asdict(made) | {
                "resources": made.resources.model_dump() if made.resources else None,
                "grid": list(launch.grid),
                "hints": str(launch.kernel._compiler_options),
            }
            entry["cutile_ir"] = entry["cutile_ir"][:TEXT_LIMIT]
            entry["tile_ir"] = entry["tile_ir"][:TEXT_LIMIT]
            found.append(entry)
    return found

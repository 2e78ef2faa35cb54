"""From figures to a diagnosis: what bounds a call, by which evidence, what to try in which order, and when to stop.

Each piece of evidence says how it is known: measured (a clock on the device), ncu (its counters), traced (kernel by
kernel), counted (from the grid, the launches and the compiled code), or modelled (roofline/model.py). What the counters
say is read in reading.py, what the trace says in tracing.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.treatments import Finding, Treatment, for_more_warps
from tilewright.gpu.specs import DeviceSpec
from tilewright.policy import RootCause
from tilewright.profile.counters import KernelCounters
from tilewright.profile.reading import (
    LARGER,
    SWIZZLE,
    TERMS,
    WIDER_LOADS,
    Bound,
    Found,
    by_counters,
    counted,
    launching,
)
from tilewright.profile.tracing import CaseTrace
from tilewright.profile.tracing import evidence as traced
from tilewright.profile.unmodelled import bound_unmodelled
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.roofline.model import (
    CallProfile,
    Estimate,
    LaunchProfile,
    estimate_launch,
    traffic_bytes,
)
from tilewright.task import Work
from tilewright.wire.record import Record

AT_CEILING = 0.95
"""Of what the ceilings allow: the rest is not worth an iteration."""
NEAR_CEILING = 0.8
SPILL_SHARE = 0.15
RAGGED = 1.15
"""Time of the last wave, as a multiple of a full one's share, from which the tail bounds a launch."""
EXCESS = 1.25
"""Times the compulsory bytes from which a memory-bound call has traffic to save."""
UNEXPLAINED = 2.5
"""Measured over modelled latency, either way, from which the model does not explain the kernel."""
ONCE = "one-pass: load each input once, and keep what several loops need in registers"
SHOWN = 3
"""Of the parameters that a block loads several times."""


class CaseDiagnosis(Record):
    """What bounds one case."""

    case: str
    latency_ms: float
    bound: Bound
    root_cause: RootCause
    roofline_percent: float | None = Field(None, description="of what the device's ceilings allow for the work")
    bandwidth_gb_s: float = Field(description="compulsory bytes over latency")
    tflops: float = Field(description="compulsory flops over latency")
    evidence: list[str] = Field(default_factory=list)
    treatments: list[str] = Field(default_factory=list, description="to try, in this order")
    stop: str = Field("", description="when there is nothing left to try")
    without_counters: Bound | None = Field(None, description="the bound by all but ncu's counters, where it is another")
    trace: CaseTrace | None = Field(None, description="the kernels of a call, as they were traced on the GPU")


class Facts(NamedTuple):
    """What is known of a case: `modelled` is the model's estimate of it, `latency_ms` is measured or the same,
    `compiled` are its kernels, `counters` ncu's of one call, `trace` the kernels of a call by themselves. Of a
    call that the model does not see, a Triton kernel's, `profile` and `modelled` are empty."""

    case: str
    work: Work
    latency_ms: float
    measured: bool
    profile: CallProfile
    modelled: Estimate
    compiled: Sequence[Compilation] = ()
    counters: Sequence[KernelCounters] = ()
    trace: CaseTrace | None = None


def diagnose(facts: Facts, device: DeviceSpec, ceilings: Ceilings, findings: Sequence[Finding]) -> CaseDiagnosis:
    """What bounds a case. `findings` are those of the compiled kernels, the likely dearest first."""
    share, reached = _reached(facts, ceilings)
    near = share is not None and share >= NEAR_CEILING
    found = _at_roofline(facts, ceilings) if near else _bound(facts, device)
    if found.bound == "DRAM bandwidth" and not near:
        found = _reread(found, facts, device)
    if found.bound == "bytes in flight" and (main := _main(facts.profile, device)) is not None:
        found = found._replace(treatments=_of_limits(main, device))
    larger = [str(finding) for finding in findings if finding.treatment is Treatment.TILE_SHAPE]
    if larger and found.bound in ("DRAM bandwidth", "L2 bandwidth"):
        found = found._replace(treatments=(*larger, SWIZZLE))
    again = _again(facts.profile, device) if found.root_cause in ("memory", "latency") else ""
    products = any(launch.matrix_flops for launch in facts.profile.launches)
    if again and not products and found.bound in _TERM_OF:
        found = found._replace(treatments=(ONCE, *found.treatments))
    blind = _bound(facts._replace(counters=()), device) if facts.counters and not near else found
    evidence = [reached, found.evidence, again, counted(facts.counters)]
    if facts.trace is not None:
        evidence += traced(facts.trace, facts.latency_ms if facts.measured else 0.0)
    evidence += _context(facts, device)
    treatments = [*found.treatments]
    for finding in findings:
        if str(finding) not in treatments and not any(one.startswith(f"{finding.treatment}:") for one in treatments):
            treatments.append(
                str(finding) if finding.where else f"{finding.treatment}: {finding.do} ({finding.evidence})"
            )
    stop = ""
    if share is not None and near and share >= AT_CEILING:
        stop = f"{share:.0%} of what the ceilings allow: the rest is not worth an iteration"
        treatments = []
    elif share is not None and near:
        stop = (
            f"{share:.0%} of what the ceilings allow: at most {1 / share:.2f}x is left; stop when one try gains nothing"
        )
    return CaseDiagnosis(
        case=facts.case,
        latency_ms=facts.latency_ms,
        bound=found.bound,
        root_cause=found.root_cause,
        roofline_percent=None if share is None else round(100 * share, 1),
        bandwidth_gb_s=round(facts.work.bytes / facts.latency_ms / 1e6, 1),
        tflops=round(facts.work.flops / facts.latency_ms / 1e9, 2),
        evidence=[one for one in evidence if one],
        treatments=treatments,
        stop=stop,
        without_counters=blind.bound if blind.bound != found.bound else None,
        trace=facts.trace,
    )


def _at_roofline(facts: Facts, ceilings: Ceilings) -> Found:
    """A call that is near what the device can do is bound by that."""
    bound = roofline_ms(facts.work, ceilings)
    name: Bound = "DRAM bandwidth" if bound is not None and bound[1] == "memory" else "tensor cores"
    if facts.work.dtype in ("float32", "float64") and name == "tensor cores":
        name = "arithmetic"
    return Found(name, "memory" if name == "DRAM bandwidth" else "compute", "", TERMS[_TERM_OF[name]][2])


def _bound(facts: Facts, device: DeviceSpec) -> Found:
    """The first that holds, from what hides all else to what is left."""
    profile, estimate = facts.profile, facts.modelled
    if not (profile.launches or profile.host):
        return bound_unmodelled(facts.latency_ms, facts.work, facts.compiled, facts.counters, facts.trace)
    if (found := launching(len(profile.launches) + len(profile.host), facts.latency_ms)) is not None:
        return found
    main = _main(profile, device)
    host_ms = estimate.terms.get("torch operations beside the kernels", estimate.terms.get("torch operations", 0.0))
    if main is None or host_ms > 0.5 * estimate.ms:
        names = ", ".join(dict.fromkeys(work.name for work in sorted(profile.host, key=lambda work: -work.bytes)[:4]))
        return Found(
            "torch operations", "memory",
            f"counted: {len(profile.host)} torch operations, each through memory ({names})",
            ("fuse the operations that follow each other into one kernel", "let torch.compile fuse them"),
        )  # fmt: skip
    if (found := _of_code(main, estimate)) is not None:
        return found
    if (found := _of_grid(main, device)) is not None:
        return found
    if (found := by_counters(facts.counters, facts.work)) is not None:
        return found
    if facts.measured and not 1 / UNEXPLAINED < facts.latency_ms / estimate.ms < UNEXPLAINED:
        return Found(
            "unexplained", "unknown",
            f"measured at {facts.latency_ms:.4f} ms, modelled at {estimate.ms:.4f} ms: neither its launches nor its "
            "code explain the latency; a profiler's stall reasons and hit rates would (ncu --set full)",
            (),
        )  # fmt: skip
    return _of_terms(facts, main, device)


def _main(profile: CallProfile, device: DeviceSpec) -> LaunchProfile | None:
    """The launch that takes longest by the model."""
    return max(profile.launches, key=lambda launch: estimate_launch(launch, device).ms, default=None)


def _of_code(main: LaunchProfile, estimate: Estimate) -> Found | None:
    """What the compiled code shows."""
    resources = main.resources
    if main.matrix_flops and not resources.tensor_core:
        return Found(
            "missing tensor cores", "compute",
            f"counted: {main.kernel} multiplies {' and '.join(main.matrix_flops)}, and has no tensor-core instruction",
            (f"{Treatment.TENSOR_CORE_DTYPE}: operands that tensor cores take",),
        )  # fmt: skip
    if resources.spill_bytes and estimate.terms.get("spills", 0.0) > SPILL_SHARE * estimate.ms:
        return Found(
            "spilled registers", "memory",
            f"counted: each thread stores {resources.spill_bytes} bytes of registers; modelled: "
            f"{estimate.terms['spills'] / estimate.ms:.0%} of the latency",
            (f"{Treatment.MORE_WORKER_WARPS}: num_worker_warps=8", f"{Treatment.SMALLER_TILES}: half a tile dimension"),
        )  # fmt: skip
    return None


def _of_grid(main: LaunchProfile, device: DeviceSpec) -> Found | None:
    """What the grid shows: SMs without work."""
    resident = max(main.resources.ctas_per_sm or 1, 1)
    slots = device.sms * resident
    ctas = main.blocks * main.resources.cluster_ctas
    waves = ctas / slots
    ragged = -(-waves // 1) / waves if waves > 1 else 1.0
    idle = 1 - min(ctas / device.sms, 1.0)
    if idle > 0.25:
        return Found(
            "tail wave", "latency",
            f"counted: {ctas} CTAs for {device.sms} SMs, {idle:.0%} of which have nothing to do",
            ("smaller tiles, so that there are more blocks", "split the longest dimension over blocks (split-K)"),
        )  # fmt: skip
    if ragged > RAGGED:
        return Found(
            "tail wave", "latency",
            f"counted: {ctas} CTAs in waves of {slots}: {waves:.2f} waves take the time of {-(-waves // 1):.0f}",
            ("tiles that divide the grid into whole waves", "the heaviest blocks first, where they differ"),
        )  # fmt: skip
    return None


def _again(profile: CallProfile, device: DeviceSpec) -> str:
    """What each block of the longest launch loads several times, in words; empty where it is nothing."""
    main = _main(profile, device)
    if main is None:
        return ""
    most = sorted(filter(str.isidentifier, main.repeated), key=lambda name: -main.repeated[name])[:SHOWN]
    times = ", ".join(f"{name} {main.repeated[name]:.1f} times" for name in most)
    return f"counted: each block of {main.kernel} loads {times}" if times else ""


def _largest(terms: Mapping[str, float]) -> str:
    """Of what is busy while the others are, what takes longest."""
    return max(TERMS, key=lambda name: terms.get(name, 0.0))


def _of_terms(facts: Facts, main: LaunchProfile, device: DeviceSpec) -> Found:
    """What the model spends the latency on."""
    terms = facts.modelled.terms
    name = _largest(terms)
    share = terms.get(name, 0.0) / facts.modelled.ms
    bound, root, treatments = TERMS[name]
    evidence = f"modelled: {share:.0%} of the latency by {name}"
    if bound == "bytes in flight":
        resources = main.resources
        warps = f"{resources.warps_per_sm} warps" if resources.warps_per_sm is not None else "few warps"
        evidence += f"; counted: {resources.ctas_per_sm} CTAs a SM ({warps}), limited by {resources.limited_by}"
    return Found(bound, root, evidence, treatments)


def _reread(found: Found, facts: Facts, device: DeviceSpec) -> Found:
    """The same with what moves beyond the work, and how to save it, where that is much."""
    moved, least = traffic_bytes(facts.profile, device), facts.work.bytes
    if moved <= EXCESS * least:
        return found
    evidence = f"{found.evidence}; counted: {moved / 1e6:.1f} MB move, and the work is {least / 1e6:.1f} MB"
    if any(launch.matrix_flops for launch in facts.profile.launches):
        return found._replace(evidence=evidence, treatments=(SWIZZLE, LARGER))
    return found._replace(
        evidence=evidence,
        treatments=("read each input once: fuse passes, keep a row in registers", *found.treatments),
    )


def _of_limits(main: LaunchProfile, device: DeviceSpec) -> tuple[str, ...]:
    """How to have more bytes in flight, by what limits the CTAs of an SM: its registers, shared memory, threads or
    slots for CTAs, or the grid."""
    resources = main.resources
    ctas = main.blocks * resources.cluster_ctas
    if resources.ctas_per_sm is not None and ctas <= device.sms * resources.ctas_per_sm:
        return (f"{Treatment.SMALLER_TILES}: more blocks, since the SMs hold all {ctas} CTAs at once", WIDER_LOADS)
    limited_by = resources.limited_by
    treatment = for_more_warps(limited_by)
    if treatment is Treatment.TILE_SHAPE:
        return (f"{treatment}: {WIDER_LOADS}, since an SM holds no more than its {resources.warps_per_sm} warps",)
    if treatment is Treatment.SMALLER_TILES:
        return (f"{treatment}: half a tile dimension, so that shared memory holds more CTAs",)
    return TERMS["bytes in flight"][2]


_TERM_OF = {bound: term for term, (bound, _, _) in TERMS.items()}


def _reached(facts: Facts, ceilings: Ceilings) -> tuple[float | None, str]:
    """The share of the roofline that the latency reaches, and that in words."""
    bound = roofline_ms(facts.work, ceilings)
    how = "measured" if facts.measured else "modelled"
    if bound is None:
        return None, f"{how}: {facts.latency_ms:.4f} ms; no ceiling is known for {facts.work.dtype}"
    share = bound[0] / facts.latency_ms
    of = "measured ceilings" if ceilings.measured else "assumed ceilings"
    rate = (
        f"{facts.work.bytes / facts.latency_ms / 1e9:.2f} TB/s"
        if bound[1] == "memory"
        else f"{facts.work.flops / facts.latency_ms / 1e9:.0f} TFLOP/s"
    )
    return (
        share,
        f"{how}: {facts.latency_ms:.4f} ms, {rate} of compulsory work: {share:.0%} of the {of}' {bound[1]} bound",
    )


def _context(facts: Facts, device: DeviceSpec) -> list[str]:
    """What to know when reading the figures."""
    notes = []
    if facts.work.bytes < device.l2_bytes:
        notes.append(
            f"counted: {facts.work.bytes / 1e6:.1f} MB fit in the L2 cache ({device.l2_bytes / 2**20:.0f} MiB): a "
            "caller that has just written them reads them from there, faster than the cold inputs of the measurement"
        )
    return notes

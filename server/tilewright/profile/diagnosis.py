"""From figures to a diagnosis: what bounds a call, by which evidence, what to try in which order, and when to stop.

Each piece of evidence says how it is known: measured (a clock on the device), counted (from the grid, the launches and
the compiled code), or modelled (roofline/model.py). What needs a profiler's counters is named as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pydantic import Field

from tilewright.compiler.treatments import Finding, Treatment
from tilewright.gpu.specs import DeviceSpec
from tilewright.policy import RootCause
from tilewright.records import Record
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.roofline.model import LAUNCH_MS, CallProfile, Estimate, LaunchProfile, estimate_launch
from tilewright.task import Work

AT_CEILING = 0.95
"""Of what the ceilings allow: the rest is not worth an iteration."""
NEAR_CEILING = 0.8
LAUNCH_SHARE = 0.3
"""Share of the latency that launching takes, from which it bounds the call."""
SPILL_SHARE = 0.15
RAGGED = 1.15
"""Time of the last wave, as a multiple of a full one's share, from which the tail bounds a launch."""
EXCESS = 1.25
"""Times the compulsory bytes from which a memory-bound call has traffic to save."""
UNEXPLAINED = 2.5
"""Measured over modelled latency, either way, from which the model does not explain the kernel."""

Bound = Literal[
    "DRAM bandwidth", "L2 bandwidth", "tensor cores", "missing tensor cores", "arithmetic", "instruction issue",
    "bytes in flight", "launch overhead", "tail wave", "spilled registers", "torch operations", "unexplained",
]  # fmt: skip


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


class Facts(NamedTuple):
    """What is known of a case: `modelled` is the model's estimate of it, `latency_ms` is measured or the same."""

    case: str
    work: Work
    latency_ms: float
    measured: bool
    profile: CallProfile
    modelled: Estimate


class _Found(NamedTuple):
    bound: Bound
    root_cause: RootCause
    evidence: str
    treatments: tuple[str, ...]


def diagnose(facts: Facts, device: DeviceSpec, ceilings: Ceilings, findings: Sequence[Finding]) -> CaseDiagnosis:
    """What bounds a case. `findings` are those of the compiled kernels, the likely dearest first."""
    share, reached = _reached(facts, ceilings)
    near = share is not None and share >= NEAR_CEILING
    found = _at_roofline(facts, ceilings) if near else _bound(facts, device)
    evidence = [reached, found.evidence, *_context(facts, device)]
    treatments = [*found.treatments]
    for finding in findings:
        if str(finding) not in treatments and not any(one.startswith(f"{finding.treatment}:") for one in treatments):
            treatments.append(
                str(finding) if finding.where else f"{finding.treatment}: {finding.do} ({finding.evidence})"
            )
    stop = ""
    if share is not None and share >= AT_CEILING:
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
    )


def _at_roofline(facts: Facts, ceilings: Ceilings) -> _Found:
    """A call that is near what the device can do is bound by that."""
    bound = roofline_ms(facts.work, ceilings)
    name: Bound = "DRAM bandwidth" if bound is not None and bound[1] == "memory" else "tensor cores"
    if facts.work.dtype in ("float32", "float64") and name == "tensor cores":
        name = "arithmetic"
    return _Found(name, "memory" if name == "DRAM bandwidth" else "compute", "", _TERMS[_TERM_OF[name]][2])


def _bound(facts: Facts, device: DeviceSpec) -> _Found:
    """The first that holds, from what hides all else to what is left."""
    profile, estimate = facts.profile, facts.modelled
    launches = len(profile.launches) + len(profile.host)
    launching = launches * LAUNCH_MS
    if launching >= LAUNCH_SHARE * facts.latency_ms:
        return _Found(
            "launch overhead", "launch",
            f"counted: {launches} launches of about {LAUNCH_MS * 1e3:.0f} us each in {facts.latency_ms * 1e3:.1f} us",
            ("fuse the launches into one kernel", "let the caller capture its calls in a CUDA graph"),
        )  # fmt: skip
    main = max(profile.launches, key=lambda launch: estimate_launch(launch, device).ms, default=None)
    host_ms = estimate.terms.get("torch operations beside the kernels", estimate.terms.get("torch operations", 0.0))
    if main is None or host_ms > 0.5 * estimate.ms:
        names = ", ".join(dict.fromkeys(work.name for work in sorted(profile.host, key=lambda work: -work.bytes)[:4]))
        return _Found(
            "torch operations", "memory",
            f"counted: {len(profile.host)} torch operations, each through memory ({names})",
            ("fuse the operations that follow each other into one kernel", "let torch.compile fuse them"),
        )  # fmt: skip
    if (found := _of_code(main, estimate)) is not None:
        return found
    if (found := _of_grid(main, device)) is not None:
        return found
    if facts.measured and not 1 / UNEXPLAINED < facts.latency_ms / estimate.ms < UNEXPLAINED:
        return _Found(
            "unexplained", "unknown",
            f"measured at {facts.latency_ms:.4f} ms, modelled at {estimate.ms:.4f} ms: neither its launches nor its "
            "code explain the latency; a profiler's stall reasons and hit rates would (ncu --set full)",
            (),
        )  # fmt: skip
    return _of_terms(facts, main, device)


def _of_code(main: LaunchProfile, estimate: Estimate) -> _Found | None:
    """What the compiled code shows."""
    resources = main.resources
    if main.matrix_flops and not resources.tensor_core:
        return _Found(
            "missing tensor cores", "compute",
            f"counted: {main.kernel} multiplies {' and '.join(main.matrix_flops)}, and has no tensor-core instruction",
            (f"{Treatment.TENSOR_CORE_DTYPE}: operands that tensor cores take",),
        )  # fmt: skip
    if resources.spill_bytes and estimate.terms.get("spills", 0.0) > SPILL_SHARE * estimate.ms:
        return _Found(
            "spilled registers", "memory",
            f"counted: each thread stores {resources.spill_bytes} bytes of registers; modelled: "
            f"{estimate.terms['spills'] / estimate.ms:.0%} of the latency",
            (f"{Treatment.MORE_WORKER_WARPS}: num_worker_warps=8", f"{Treatment.SMALLER_TILES}: half a tile dimension"),
        )  # fmt: skip
    return None


def _of_grid(main: LaunchProfile, device: DeviceSpec) -> _Found | None:
    """What the grid shows: SMs without work."""
    resident = max(main.resources.ctas_per_sm or 1, 1)
    slots = device.sms * resident
    ctas = main.blocks * main.resources.cluster_ctas
    waves = ctas / slots
    ragged = -(-waves // 1) / waves if waves > 1 else 1.0
    idle = 1 - min(ctas / device.sms, 1.0)
    if idle > 0.25:
        return _Found(
            "tail wave", "latency",
            f"counted: {ctas} CTAs for {device.sms} SMs, {idle:.0%} of which have nothing to do",
            ("smaller tiles, so that there are more blocks", "split the longest dimension over blocks (split-K)"),
        )  # fmt: skip
    if ragged > RAGGED:
        return _Found(
            "tail wave", "latency",
            f"counted: {ctas} CTAs in waves of {slots}: {waves:.2f} waves take the time of {-(-waves // 1):.0f}",
            ("tiles that divide the grid into whole waves", "a persistent kernel: as many blocks as fit, in a loop"),
        )  # fmt: skip
    return None


def _of_terms(facts: Facts, main: LaunchProfile, device: DeviceSpec) -> _Found:
    """What the model spends the latency on."""
    terms = facts.modelled.terms
    overlapping = {name: terms.get(name, 0.0) for name in _TERMS}
    name = max(overlapping, key=lambda one: overlapping[one])
    share = overlapping[name] / facts.modelled.ms
    bound, root, treatments = _TERMS[name]
    evidence = f"modelled: {share:.0%} of the latency by {name}"
    moved = facts.profile.dram_bytes
    if bound == "DRAM bandwidth" and moved > EXCESS * facts.work.bytes:
        evidence += f"; counted: {moved / 1e6:.1f} MB move, and the work is {facts.work.bytes / 1e6:.1f} MB"
        treatments = ("read each input once: fuse passes, keep a row in registers", *treatments)
    if bound == "bytes in flight":
        resources = main.resources
        warps = f"{resources.warps_per_sm} warps" if resources.warps_per_sm is not None else "few warps"
        evidence += f"; counted: {resources.ctas_per_sm} CTAs a SM ({warps}), limited by {resources.limited_by}"
    return _Found(bound, root, evidence, treatments)


_TERMS: dict[str, tuple[Bound, RootCause, tuple[str, ...]]] = {
    "DRAM bandwidth": ("DRAM bandwidth", "memory", ("narrower storage types where the task allows them",)),
    "bytes in flight": (
        "bytes in flight", "latency",
        (f"{Treatment.RAISE_OCCUPANCY}: more CTAs a SM", "larger loads a block, or several rows of them at once"),
    ),
    "L2 bandwidth": (
        "L2 bandwidth", "memory",
        ("larger tiles: each input is read again once a tile", "swizzle the blocks, so that neighbours share inputs"),
    ),
    "matrix products": (
        "tensor cores", "compute",
        ("autotune: tiles, num_worker_warps and num_ctas together", "a shorter dtype where the tolerance allows it"),
    ),
    "arithmetic": (
        "arithmetic", "compute",
        ("exp2 for exp, with the factor folded in", f"{Treatment.FEWER_DIVISIONS}: one reciprocal a row"),
    ),
    "instruction issue": (
        "instruction issue", "compute",
        (f"{Treatment.WIDER_ACCESS}: fewer, wider loads", "num_worker_warps=8, so that more warps issue"),
    ),
}  # fmt: skip


_TERM_OF = {bound: term for term, (bound, _, _) in _TERMS.items()}


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

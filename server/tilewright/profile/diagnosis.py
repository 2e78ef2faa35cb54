"""From figures to a diagnosis: what bounds a call, by which evidence, what to try in which order, and when to stop.

Each piece of evidence says how it is known: measured (a clock on the device), ncu (its counters), CUPTI (kernel by
kernel), counted (from the grid, the launches and the compiled code), or modelled (roofline/model.py). The rules that
name a bound are in rules.py; the kernels of a call are in kernels.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.treatments import Finding, Treatment, for_more_warps
from tilewright.gpu.specs import DeviceSpec
from tilewright.policy import RootCause
from tilewright.profile.counters import KernelCounters
from tilewright.profile.kernels import CallKernels
from tilewright.profile.kernels import evidence as recorded
from tilewright.profile.rules import NOTHING, SWIZZLE, TERMS, WIDER_LOADS, Bound, Rule, Signs, holding
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.roofline.model import CallProfile, Estimate, LaunchProfile, estimate_launch, traffic_bytes
from tilewright.task import Work
from tilewright.wire.record import Record

AT_CEILING = 0.95
"""Of what the ceilings allow: the rest is not worth an iteration."""
NEAR_CEILING = 0.8
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
    kernels: CallKernels | None = Field(None, description="of a call, as they were recorded on the GPU")


class Facts(NamedTuple):
    """What is known of a case: `modelled` is the model's estimate of it, `latency_ms` is measured or the same,
    `compiled` are its kernels, `counters` ncu's of one call, `kernels` those of a call by themselves. Of a
    call that the model does not see, a Triton kernel's, `profile` and `modelled` are empty."""

    case: str
    work: Work
    latency_ms: float
    measured: bool
    profile: CallProfile
    modelled: Estimate
    compiled: Sequence[Compilation] = ()
    counters: Sequence[KernelCounters] = ()
    kernels: CallKernels | None = None


def diagnose(facts: Facts, device: DeviceSpec, ceilings: Ceilings, findings: Sequence[Finding]) -> CaseDiagnosis:
    """What bounds a case. `findings` are those of the compiled kernels, the likely dearest first."""
    share, reached = _roofline_share(facts, ceilings)
    near = share is not None and share >= NEAR_CEILING
    signs = _signs(facts, device)
    rule, evidence = (_at_roofline(facts, ceilings), "") if near else holding(signs)
    without = rule if near else holding(signs._replace(counters=NOTHING))[0]
    main = _main(facts.profile, device)
    remedies, more = _remedies(rule, facts, main, device, near, findings)
    stop = ""
    if share is not None and near and share >= AT_CEILING:
        stop = f"{share:.0%} of what the ceilings allow: the rest is not worth an iteration"
        remedies = []
    elif share is not None and near:
        stop = (
            f"{share:.0%} of what the ceilings allow: at most {1 / share:.2f}x is left; stop when one try gains nothing"
        )
    lines = [reached, evidence, *more, _counted(facts.counters)]
    if facts.kernels is not None:
        lines.append(recorded(facts.kernels))
    if facts.work.bytes < device.l2_bytes:
        lines.append(
            f"counted: {facts.work.bytes / 1e6:.1f} MB fit in the L2 cache ({device.l2_bytes / 2**20:.0f} MiB): a "
            "caller that has just written them reads them from there, faster than the cold inputs of the measurement"
        )
    return CaseDiagnosis(
        case=facts.case,
        latency_ms=facts.latency_ms,
        bound=rule.bound,
        root_cause=rule.root_cause,
        roofline_percent=None if share is None else round(100 * share, 1),
        bandwidth_gb_s=round(facts.work.bytes / facts.latency_ms / 1e6, 1),
        tflops=round(facts.work.flops / facts.latency_ms / 1e9, 2),
        evidence=[line for line in lines if line],
        treatments=remedies,
        stop=stop,
        without_counters=without.bound if without.bound != rule.bound else None,
        kernels=facts.kernels,
    )


def _roofline_share(facts: Facts, ceilings: Ceilings) -> tuple[float | None, str]:
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


def _at_roofline(facts: Facts, ceilings: Ceilings) -> Rule:
    """A call that is near what the device can do is bound by that."""
    bound = roofline_ms(facts.work, ceilings)
    if bound is not None and bound[1] == "memory":
        return TERMS["DRAM bandwidth"]
    return TERMS["arithmetic" if facts.work.dtype in ("float32", "float64") else "matmuls"]


def _signs(facts: Facts, device: DeviceSpec) -> Signs:
    """What the rules look at."""
    profile, counters = facts.profile, max(facts.counters, key=lambda launch: launch.time_ns, default=NOTHING)
    signs = Signs(facts.latency_ms, facts.work.bytes, counters=counters)
    if not (profile.launches or profile.host):
        return _unmodelled(signs, facts)
    terms, ms = facts.modelled.terms, facts.modelled.ms
    host = sorted(profile.host, key=lambda work: -work.bytes)
    host_ms = terms.get("torch operations beside the kernels", terms.get("torch operations", 0.0))
    signs = signs._replace(
        launches=len(profile.launches) + len(host),
        torch_operations=len(host),
        torch_names=", ".join(dict.fromkeys(work.name for work in host[:4])),
        torch_share=host_ms / ms,
    )
    main = _main(profile, device)
    if main is None:
        return signs._replace(torch_share=1.0)
    resources, fits = main.resources, not facts.measured or 1 / UNEXPLAINED < facts.latency_ms / ms < UNEXPLAINED
    term = max(TERMS, key=lambda name: terms.get(name, 0.0))
    slots = device.sms * max(resources.ctas_per_sm or 1, 1)
    ctas = main.blocks * resources.cluster_ctas
    waves = ctas / slots
    warps = f"{resources.warps_per_sm} warps" if resources.warps_per_sm is not None else "few warps"
    held = f"; counted: {resources.ctas_per_sm} CTAs a SM ({warps}), limited by {resources.limited_by}"
    return signs._replace(
        kernel=main.kernel,
        lacks_tensor_cores=bool(main.matrix_flops) and not resources.tensor_core,
        spill_bytes=resources.spill_bytes,
        spill_share=terms.get("spills", 0.0) / ms if resources.spill_bytes else 0.0,
        grid=f"counted: {ctas} CTAs for {device.sms} SMs, {waves:.2f} waves of {slots}",
        idle_sms=1 - min(ctas / device.sms, 1.0),
        last_wave=-(-waves // 1) / waves if waves > 1 else 1.0,
        term=term if fits else "",
        term_share=terms.get(term, 0.0) / ms,
        warps=held if term == "bytes in flight" else "",
    )


def _unmodelled(signs: Signs, facts: Facts) -> Signs:
    """The signs of a call that no model sees, by what it launched and its compiled kernels."""
    rows = facts.kernels.kernels if facts.kernels is not None else []
    longest = signs.counters.kernel or max(rows, key=lambda row: row.launches * row.med_us).kernel if rows else ""
    kernels = [made for made in facts.compiled if made.kernel in longest] or facts.compiled
    known = [(made, made.resources) for made in kernels if made.resources is not None]
    percents = [100 * (one.warps_per_sm or 0) / max(one.max_warps_per_sm, 1) for _, one in known if one.warps_per_sm]
    return signs._replace(
        launches=facts.kernels.launches if facts.kernels is not None else len(facts.counters),
        launches_by="replayed" if facts.kernels is not None else "ncu",
        kernel=known[0][0].kernel if known else longest,
        lacks_tensor_cores=any(made.has_products and not one.tensor_core for made, one in known),
        spill_bytes=max((one.spill_bytes for _, one in known), default=0),
        grid="ncu: SMs work for part of the time only",
        warps_percent=min(percents, default=100.0),
    )


def _main(profile: CallProfile, device: DeviceSpec) -> LaunchProfile | None:
    """The launch that takes longest by the model."""
    return max(profile.launches, key=lambda launch: estimate_launch(launch, device).ms, default=None)


def _remedies(
    rule: Rule,
    facts: Facts,
    main: LaunchProfile | None,
    device: DeviceSpec,
    near: bool,
    findings: Sequence[Finding],
) -> tuple[list[str], list[str]]:
    """What to try, in this order, and evidence for it."""
    triton = any(made.is_triton for made in facts.compiled)
    remedies = list(rule.in_triton if triton and rule.in_triton else rule.remedies)
    lines = []
    matmuls = any(launch.matrix_flops for launch in facts.profile.launches)
    moved = traffic_bytes(facts.profile, device)
    if rule.bound == "DRAM bandwidth" and not near and moved > EXCESS * facts.work.bytes:
        lines.append(f"counted: {moved / 1e6:.1f} MB move, and the work is {facts.work.bytes / 1e6:.1f} MB")
        once = "read each input once: fuse passes, keep a row in registers"
        remedies = list(TERMS["L2 bandwidth"].remedies) if matmuls else [once, *remedies]
    if rule.bound == "bytes in flight" and main is not None:
        remedies = _more_in_flight(main, device)
    larger = [str(finding) for finding in findings if finding.treatment is Treatment.TILE_SHAPE]
    if larger and rule.bound in ("DRAM bandwidth", "L2 bandwidth"):
        remedies = [*larger, SWIZZLE]
    if main is not None and rule.root_cause in ("memory", "latency") and (repeated := _repeated_loads(main)):
        lines.append(repeated)
        if rule.term and not matmuls:
            remedies.insert(0, ONCE)
    for finding in findings:
        if str(finding) not in remedies and not any(one.startswith(f"{finding.treatment}:") for one in remedies):
            remedies.append(
                str(finding) if finding.where else f"{finding.treatment}: {finding.do} ({finding.evidence})"
            )
    return remedies, lines


def _more_in_flight(main: LaunchProfile, device: DeviceSpec) -> list[str]:
    """How to have more bytes in flight, by what limits the CTAs of an SM: its registers, shared memory, threads or
    slots for CTAs, or the grid."""
    resources = main.resources
    ctas = main.blocks * resources.cluster_ctas
    if resources.ctas_per_sm is not None and ctas <= device.sms * resources.ctas_per_sm:
        return [f"{Treatment.SMALLER_TILES}: more blocks, since the SMs hold all {ctas} CTAs at once", WIDER_LOADS]
    treatment = for_more_warps(resources.limited_by)
    if treatment is Treatment.TILE_SHAPE:
        return [f"{treatment}: {WIDER_LOADS}, since an SM holds no more than its {resources.warps_per_sm} warps"]
    if treatment is Treatment.SMALLER_TILES:
        return [f"{treatment}: half a tile dimension, so that shared memory holds more CTAs"]
    return list(TERMS["bytes in flight"].remedies)


def _repeated_loads(main: LaunchProfile) -> str:
    """What each block of the longest launch loads several times, in words; empty where it is nothing."""
    most = sorted(filter(str.isidentifier, main.repeated), key=lambda name: -main.repeated[name])[:SHOWN]
    times = ", ".join(f"{name} {main.repeated[name]:.1f} times" for name in most)
    return f"counted: each block of {main.kernel} loads {times}" if times else ""


def _counted(counters: Sequence[KernelCounters]) -> str:
    """The counters of the longest launch in one line; empty where there are none."""
    main = max(counters, key=lambda launch: launch.time_ns, default=None)
    if main is None:
        return ""
    parts = [
        f"{name} {main.get(key):.0f}%"
        for name, key in (
            ("DRAM", "dram_percent"), ("L2", "l2_percent"), ("L1 and shared memory", "l1_percent"),
            ("shared memory's pipe", "shared_percent"), ("issue", "issue_percent"),
            ("occupancy", "occupancy_percent"),
        )
        if key in main.values
    ]  # fmt: skip
    parts.append(f"tensor pipe {main.tensor:.0f}%")
    if (stall := main.worst_stall) and main.stalls[stall] > 0:
        parts.append(f"most warps wait for {stall} ({main.stalls[stall]:.1f} an issue)")
    more = f"; {len(counters) - 1} further launches" if len(counters) > 1 else ""
    return f"ncu: {main.time_ns / 1e3:.1f} us, {', '.join(parts)}{more}"

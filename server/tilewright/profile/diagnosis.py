"""From figures to a diagnosis: what bounds a call, by which evidence, what to try in which order, and when to stop.

Each piece of evidence says how it is known: measured (a clock on the device), ncu (its counters), CUPTI (kernel by
kernel), counted (from the grid, the launches and the machine code), or modelled (roofline/model.py). On a GPU no model
is asked, and without one nothing is measured. The rules that name a bound are in rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.findings import DO, Finding, Treatment, by_cost, findings, for_more_warps
from tilewright.compiler.resources import Resources
from tilewright.evaluation.results import Status
from tilewright.gpu.specs import DeviceSpec
from tilewright.policy import RootCause
from tilewright.profile.counters import KernelCounters
from tilewright.profile.kernels import CallKernels
from tilewright.profile.kernels import evidence as recorded
from tilewright.profile.rules import NOTHING, SWIZZLE, TERMS, UNEXPLAINED, WIDER_LOADS, Bound, Rule, Signs, holding
from tilewright.roofline.bounds import Ceilings, roofline_ms
from tilewright.roofline.model import CallProfile, LaunchProfile, estimate_call, estimate_launch
from tilewright.session.reports import RunState
from tilewright.task import Work
from tilewright.text import own_name
from tilewright.wire.launches import KernelLaunch
from tilewright.wire.record import Record

AT_CEILING = 0.95
"""Of what the ceilings allow: the rest is not worth an iteration."""
NEAR_CEILING = 0.8
EXCESS = 1.25
"""Times the compulsory bytes from which a memory-bound call has traffic to save."""
SHOWN = 4
"""Names of torch operations."""


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


class ProfileReport(Record):
    """What `profile` answers: what bounds the candidate."""

    summary: str = Field(description="about the case furthest from its roofline")
    state: RunState = "done"
    status: Status | None = None
    message: str = ""
    device: str = ""
    modelled: bool = Field(False, description="a model gave the latency")
    cases: list[CaseDiagnosis] = Field(default_factory=list)
    counters: str = Field("", description="how they were read, or why not")
    left_out: str = Field("", description="what was not looked at, and why")
    next: str = ""


class Kernel(NamedTuple):
    """The kernel of a call that takes longest."""

    name: str
    ctas: int
    resources: Resources
    products: bool
    """Whether it multiplies matrices."""


class Facts(NamedTuple):
    """What is known of a case. Its latency is modelled where `profile` says what the call does. Else it was measured:
    `kernels` were recorded, `counters` are ncu's of one call, and `launch` is that of the kernel that takes longest.
    `compiled` are the call's kernels, or that one by its machine code. `products`: names of the kernels whose source
    multiplies matrices."""

    case: str
    work: Work
    latency_ms: float
    profile: CallProfile | None = None
    compiled: Sequence[Compilation] = ()
    counters: Sequence[KernelCounters] = ()
    kernels: CallKernels | None = None
    launch: KernelLaunch | None = None
    products: frozenset[str] = frozenset()


def diagnose(facts: Facts, device: DeviceSpec, ceilings: Ceilings) -> CaseDiagnosis:
    """What bounds a case."""
    bound = roofline_ms(facts.work, ceilings)
    share = bound[0] / facts.latency_ms if bound is not None else None
    near = share is not None and NEAR_CEILING <= share <= 1
    profile = facts.profile
    kernel = _measured_kernel(facts) if profile is None else _modelled_kernel(profile, device)
    if near:
        rule, evidence = _at_roofline(facts.work, ceilings), ""
    elif profile is None:
        rule, evidence = holding(_measured_signs(facts, kernel, device))
    else:
        rule, evidence = _modelled_bound(profile, facts, kernel, device)
    remedies, more = _remedies(rule, facts, kernel, device, near)
    stop = ""
    if share is not None and near and share >= AT_CEILING:
        stop = f"{share:.0%} of what the ceilings allow: the rest is not worth an iteration"
        remedies = []
    elif share is not None and near:
        stop = (
            f"{share:.0%} of what the ceilings allow: at most {1 / share:.2f}x is left; stop when one try gains nothing"
        )
    lines = [_reached(facts, ceilings), evidence, *more, _counted(facts.counters)]
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
    )


def _reached(facts: Facts, ceilings: Ceilings) -> str:
    """The share of the roofline that the latency reaches, in words."""
    bound, work, ms = roofline_ms(facts.work, ceilings), facts.work, facts.latency_ms
    how = "measured" if facts.profile is None else "modelled"
    if bound is None:
        return f"{how}: {ms:.4f} ms; no ceiling is known for {work.dtype}"
    of = "measured ceilings" if ceilings.measured else "assumed ceilings"
    rate = f"{work.bytes / ms / 1e9:.2f} TB/s" if bound[1] == "memory" else f"{work.flops / ms / 1e9:.0f} TFLOP/s"
    share = bound[0] / ms
    said = f"{how}: {ms:.4f} ms, {rate} of compulsory work: {share:.0%} of the {of}' {bound[1]} bound"
    return said if share <= 1 else f"{said}, which is too low for this call"


def _at_roofline(work: Work, ceilings: Ceilings) -> Rule:
    """A call that is near what the device can do is bound by that."""
    bound = roofline_ms(work, ceilings)
    if bound is not None and bound[1] == "memory":
        return TERMS["DRAM bandwidth"]
    return TERMS["arithmetic" if work.dtype in ("float32", "float64") else "matmuls"]


def _measured_kernel(facts: Facts) -> Kernel | None:
    made = facts.compiled[0] if facts.compiled else None
    if facts.launch is None or made is None or made.resources is None:
        return None
    x, y, z = facts.launch.grid
    name = own_name(facts.launch.symbol)
    return Kernel(name, x * y * z, made.resources, bool(made.resources.tensor_core) or name in facts.products)


def _modelled_kernel(profile: CallProfile, device: DeviceSpec) -> Kernel | None:
    launch = _longest(profile, device)
    if launch is None:
        return None
    ctas = launch.blocks * launch.resources.cluster_ctas
    return Kernel(launch.kernel, ctas, launch.resources, bool(launch.matrix_flops))


def _longest(profile: CallProfile, device: DeviceSpec) -> LaunchProfile | None:
    return max(profile.launches, key=lambda launch: estimate_launch(launch, device).ms, default=None)


def _measured_signs(facts: Facts, kernel: Kernel | None, device: DeviceSpec) -> Signs:
    """The signs of a call that ran."""
    others = [one for one in facts.kernels.kernels if one.whose != "ours"] if facts.kernels is not None else []
    counters = max(facts.counters, key=lambda launch: launch.time_ns, default=NOTHING)
    signs = Signs(
        facts.latency_ms,
        facts.work.bytes,
        launches=facts.kernels.launches if facts.kernels is not None else len(facts.counters),
        launches_by="CUPTI" if facts.kernels is not None else "ncu",
        kernel=counters.kernel,
        counters=counters,
    )
    if (count := sum(one.launches for one in others)) > 1 and facts.kernels is not None:
        names = ", ".join(one.name for one in others[:SHOWN])
        share = sum(one.us for one in others) / facts.kernels.us
        signs = signs._replace(torch_operations=count, torch_names=names, torch_share=share)
    return signs if kernel is None else _with_kernel(signs, kernel, device)


def _modelled_bound(profile: CallProfile, facts: Facts, kernel: Kernel | None, device: DeviceSpec) -> tuple[Rule, str]:
    """The rule that holds for a call by the model, else that of the model's largest term, and its evidence."""
    terms, ms = estimate_call(profile, device).terms, facts.latency_ms
    host = sorted(profile.host, key=lambda work: -work.bytes)
    host_ms = terms.get("torch operations beside the kernels", terms.get("torch operations", 0.0))
    signs = Signs(
        ms,
        facts.work.bytes,
        launches=len(profile.launches) + len(host),
        torch_operations=len(host),
        torch_names=", ".join(dict.fromkeys(work.name for work in host[:SHOWN])),
        torch_share=host_ms / ms,
    )
    if kernel is not None:
        share = terms.get("spills", 0.0) / ms if kernel.resources.spill_bytes else 0.0
        signs = _with_kernel(signs, kernel, device)._replace(spill_share=share, warps_percent=100.0)
    rule, evidence = holding(signs)
    if rule is not UNEXPLAINED:
        return rule, evidence
    term = max(TERMS, key=lambda name: terms.get(name, 0.0))
    return TERMS[term], f"modelled: {terms.get(term, 0.0) / ms:.0%} of the latency by {term}"


def _with_kernel(signs: Signs, kernel: Kernel, device: DeviceSpec) -> Signs:
    resources = kernel.resources
    slots = device.sms * max(resources.ctas_per_sm or 1, 1)
    waves = kernel.ctas / slots
    warps = 100.0
    if resources.warps_per_sm and not kernel.products:  # tensor cores need few warps
        warps = 100 * resources.warps_per_sm / max(resources.max_warps_per_sm, 1)
    return signs._replace(
        kernel=kernel.name,
        lacks_tensor_cores=kernel.products and not resources.tensor_core,
        spill_bytes=resources.spill_bytes,
        grid=f"counted: {kernel.ctas} CTAs for {device.sms} SMs, {waves:.2f} waves of {slots}",
        idle_sms=1 - min(kernel.ctas / device.sms, 1.0),
        last_wave=-(-waves // 1) / waves if waves > 1 else 1.0,
        warps_percent=warps,
    )


def _remedies(
    rule: Rule, facts: Facts, kernel: Kernel | None, device: DeviceSpec, near: bool
) -> tuple[list[str], list[str]]:
    """What to try, in this order, and evidence for it."""
    triton = any(made.is_triton for made in facts.compiled)
    remedies = list(rule.in_triton if triton and rule.in_triton else rule.remedies)
    lines = []
    found = _findings(facts)
    matmuls = kernel is not None and kernel.products
    if facts.profile is not None:
        moved, by = facts.profile.dram_bytes, "counted"
    else:
        moved, by = sum(launch.dram_read + launch.dram_write for launch in facts.counters), "ncu"
    if rule.bound == "DRAM bandwidth" and not near and moved > EXCESS * facts.work.bytes:
        lines.append(f"{by}: {moved / 1e6:.1f} MB move, and the work is {facts.work.bytes / 1e6:.1f} MB")
        once = "read each input once: fuse passes, keep a row in registers"
        remedies = list(TERMS["L2 bandwidth"].remedies) if matmuls else [once, *remedies]
    if rule.bound == "bytes in flight" and kernel is not None:
        held = kernel.resources
        lines.append(f"counted: {held.ctas_per_sm} CTAs a SM ({held.warps_per_sm} warps), limited by {held.limited_by}")
        remedies = remedies if triton else _more_in_flight(kernel, device)
    larger = [str(finding) for finding in found if finding.treatment is Treatment.TILE_SHAPE]
    if larger and rule.bound in ("DRAM bandwidth", "L2 bandwidth"):
        remedies = [*larger, SWIZZLE]
    for finding in found:
        if str(finding) not in remedies and not any(one.startswith(f"{finding.treatment}:") for one in remedies):
            remedies.append(
                str(finding) if finding.where else f"{finding.treatment}: {finding.do} ({finding.evidence})"
            )
    return remedies, lines


def _findings(facts: Facts) -> list[Finding]:
    """What costs time in the compiled kernels, by the order of treatments."""
    return by_cost([finding for made in facts.compiled for finding in findings(made)])


def _more_in_flight(kernel: Kernel, device: DeviceSpec) -> list[str]:
    """How to have more bytes in flight, by what limits the CTAs of an SM, which may be the grid."""
    resources = kernel.resources
    if resources.ctas_per_sm is not None and kernel.ctas <= device.sms * resources.ctas_per_sm:
        return [f"{Treatment.SMALLER_TILES}: more CTAs, since the SMs hold all {kernel.ctas} at once", WIDER_LOADS]
    treatment = for_more_warps(resources.limited_by)
    return [f"{treatment}: {DO[treatment]}", WIDER_LOADS]


def _counted(counters: Sequence[KernelCounters]) -> str:
    """The counters of the longest launch in one line; empty where there are none."""
    main = max(counters, key=lambda launch: launch.time_ns, default=None)
    if main is None:
        return ""
    parts = [
        f"DRAM {main.dram_percent:.0f}%", f"L2 {main.l2_percent:.0f}%", f"shared memory {main.shared_percent:.0f}%",
        f"tensor pipe {main.tensor_percent:.0f}%", f"issue {main.issue_percent:.0f}%",
        f"occupancy {main.occupancy_percent:.0f}%",
    ]  # fmt: skip
    if (stall := main.worst_stall) and main.stalls[stall] > 0:
        parts.append(f"most warps wait for {stall} ({main.stalls[stall]:.1f} an issue)")
    more = f"; {len(counters) - 1} further launches" if len(counters) > 1 else ""
    return f"ncu: {main.time_ns / 1e3:.1f} us, {', '.join(parts)}{more}"

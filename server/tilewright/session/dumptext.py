"""How a dump is shown: the line that answers, findings, and the start of the stage asked for; a file has all of it."""

from __future__ import annotations

from itertools import zip_longest
from typing import Literal

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.differences import changes, ir_difference, opcode_difference
from tilewright.compiler.findings import findings
from tilewright.compiler.sass import mix_table
from tilewright.evaluation.results import Status
from tilewright.roofline.model import HostWork
from tilewright.session.outcomes import Dumped, DumpedKernel
from tilewright.session.reports import DumpReport
from tilewright.skillpack import treatment_pages

Stage = Literal["resources", "cutile_ir", "tile_ir", "ttir", "ttgir", "ptx", "sass", "remarks", "mix"]

TEXT_SHOWN = 2500
"""Characters of a stage's text in an answer."""
FINDINGS_SHOWN = 8
"""Of all kernels together."""
NOTHING = "plain torch: there is nothing to compile"

Pair = tuple[DumpedKernel | None, DumpedKernel | None]


def report(dumped: Dumped, before: Dumped | None, stage: Stage, whole: str, place: str) -> DumpReport:
    """The report on a dump; with `before`, the incumbent's, on what changed since. `whole` is the stage's text in full,
    which lies in the file `place`."""
    made = [kernel.made for kernel in dumped.kernels]
    each = zip_longest(*([(one, finding) for finding in findings(one)] for one in made))
    all_found = [pair for pairs in each for pair in pairs if pair is not None]
    found = all_found[:FINDINGS_SHOWN]
    left = len(all_found) - len(found)
    explained: dict[str, list[str]] = {}
    for name in dict.fromkeys(finding.treatment.value for _, finding in found):
        explained.setdefault(treatment_pages()[name], []).append(name)
    failed = [one for one in made if one.error]
    stuck = Status.TIMEOUT if all(one.timed_out for one in failed) else Status.COMPILE_ERROR
    return DumpReport(
        summary=_summary(dumped, before),
        status=stuck if failed else Status.PASSED,
        message=dumped.message,
        case=dumped.case,
        findings=[
            *(f"{one.kernel} on {one.arch}: {finding}" for one, finding in found),
            *([f"{left} more: see stage resources"] if left else []),
        ],
        text=shown(whole, place),
        file=place,
        next="; ".join(f"{page} explains {', '.join(names)}" for page, names in explained.items()),
    )


def shown(whole: str, place: str) -> str:
    """The start of a text, and where the rest is."""
    left = len(whole) - TEXT_SHOWN
    return f"{whole[:TEXT_SHOWN]}\n... {left} characters more in {place}" if left > 0 else whole


def whole_text(dumped: Dumped, before: Dumped | None, stage: Stage) -> str:
    """A stage of every kernel, in full; of a torch task, its operations. With `before`, what changed since, where the
    front end's IR stands for `resources`."""
    if not dumped.kernels:
        tables = [table(dumped.operations)]
        return "\n".join(
            tables if before is None else ["-- incumbent", table(before.operations), "-- candidate", *tables]
        )
    parts = []
    for old, new in paired(before, dumped):
        known = _known(old, new)
        name = f"==== {known.made.kernel} for {known.made.arch}:"
        if before is None:
            text = _resources_text(known) if stage == "resources" else _stage_text(known.made, stage)
            parts += [f"{name} {stage} ====", text]
            continue
        of: Stage = ("ttir" if known.made.is_triton else "cutile_ir") if stage == "resources" else stage
        lines = [_in_short(old, new)] if old is None or new is None else _difference(old.made, new.made, of)
        if old is not None and new is not None and stage == "resources":
            lines = [*(f"{name}: {change}" for name, change in changes(old.made, new.made).items()), *lines]
        heading = of if stage == of else f"{stage} and {of}"
        parts += [f"{name} {heading}, incumbent against candidate ====", *(lines or ["no difference"])]
    return "\n".join(parts)


def table(operations: list[HostWork]) -> str:
    """A line for each operation of a torch task, in the order of the calls."""
    lines = [f"{work.name} {work.dtype}: {work.bytes:.0f} bytes, {work.flops:.0f} flops" for work in operations]
    return "\n".join(lines or ["(no torch operation)"])


def _counted(operations: list[HostWork]) -> str:
    moved, flops = (sum(getattr(work, name) for work in operations) for name in ("bytes", "flops"))
    count = f"{len(operations)} torch operation{'s' if len(operations) != 1 else ''}"
    return f"{count}, {moved / 1e6:.1f} MB and {flops / 1e9:.1f} Gflop of matmuls"


def _summary(dumped: Dumped, before: Dumped | None) -> str:
    """A line for each kernel; one for a torch task."""
    if dumped.kernels:
        lines = []
        for old, new in paired(before, dumped):
            made = _known(old, new).made
            lines.append(f"{made.kernel} on {made.arch}: {made.headline if before is None else _in_short(old, new)}")
        more = [f"... {len(lines) - 16} kernels more"] if len(lines) > 16 else []
        return "\n".join([*lines[:16], *more])
    if before is None:
        return f"{NOTHING}; {_counted(dumped.operations)}"
    return f"{NOTHING}; {_counted(dumped.operations)}; the incumbent: {_counted(before.operations)}"


def paired(before: Dumped | None, after: Dumped) -> list[Pair]:
    """The kernels of two dumps side by side, by name and architecture, in the candidate's order; then what is gone."""
    earlier = before.kernels if before is not None else []
    pairs: list[Pair] = []
    for name in dict.fromkeys((kernel.made.kernel, kernel.made.arch) for kernel in (*after.kernels, *earlier)):
        old, new = (
            [kernel for kernel in kernels if (kernel.made.kernel, kernel.made.arch) == name]
            for kernels in (earlier, after.kernels)
        )
        pairs += zip_longest(old, new)
    return pairs


def _known(old: DumpedKernel | None, new: DumpedKernel | None) -> DumpedKernel:
    kernel = new or old
    assert kernel is not None
    return kernel


def _in_short(old: DumpedKernel | None, new: DumpedKernel | None) -> str:
    if new is None:
        return "the candidate launches it no longer"
    if old is None:
        return f"new in the candidate; {new.made.headline}"
    changed = changes(old.made, new.made)
    if not changed:
        return "the same error" if new.made.error else "compiles to the same"
    first = [name for name in _TELLING if name in changed] or list(changed)
    listed = ", ".join(f"{name.replace('_', ' ')} {changed[name]}" for name in first[:5])
    return f"{listed}; now {new.made.headline}"


_TELLING = (
    "error", "spill_bytes", "tensor_core", "tma", "ctas_per_sm", "registers", "shared_bytes", "threads", "instructions",
)  # fmt: skip


def _difference(old: Compilation, new: Compilation, stage: Stage) -> list[str]:
    if stage in ("ptx", "sass"):
        return opcode_difference(getattr(old, stage), getattr(new, stage))
    if stage in ("cutile_ir", "tile_ir", "ttir", "ttgir"):
        return ir_difference(getattr(old, stage), getattr(new, stage))
    before, after = (_stage_text(made, stage) for made in (old, new))
    return [] if before == after else ["-- incumbent", before, "-- candidate", after]


def _stage_text(made: Compilation, stage: Stage) -> str:
    match stage:
        case "remarks":
            text = "\n".join(map(str, made.remarks))
        case "mix":
            text = mix_table(made.mix) if made.mix else ""
        case _:
            text = getattr(made, stage)
    return text or made.error or f"(the compiler gave no {stage}: {_HAVE[made.is_triton]})"


_HAVE = {
    False: "of a cuTile kernel there are cutile_ir, tile_ir, sass, remarks and mix",
    True: "of a Triton kernel there are ttir, ttgir, ptx, sass and mix",
}
"""The stages of a kernel, by whether it is Triton's."""


def _resources_text(kernel: DumpedKernel) -> str:
    made = kernel.made
    present = made.resources.model_dump().items() if made.resources is not None else ()
    return "\n".join([
        made.headline,
        *(f"- {finding}" for finding in findings(made)),
        *([made.error] if made.error else []),
        f"grid: {' x '.join(map(str, kernel.grid))}",
        *(f"hint {name}: {value}" for name, value in made.hints.items()),
        *(f"{name}: {value}" for name, value in present if value),
        f"compiled in {made.seconds:.2f} s",
    ])  # fmt: skip

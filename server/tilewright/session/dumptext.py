"""How a dump is shown: the line that answers, findings, the stage asked for, cut to what an agent can read at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, Literal, get_args

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.differences import changes, ir_difference, opcode_difference
from tilewright.compiler.findings import findings
from tilewright.compiler.sass import mix_table
from tilewright.evaluation.results import Status
from tilewright.session import operations
from tilewright.session.outcomes import Dumped, DumpedKernel
from tilewright.session.reports import DumpReport, KernelReport
from tilewright.skillpack import treatment_pages
from tilewright.text import cut

Stage = Literal["resources", "cutile_ir", "tile_ir", "ttir", "ttgir", "ptx", "sass", "remarks", "mix"]
STAGES: tuple[Stage, ...] = get_args(Stage)

SHOWN_CHARACTERS = 6000
"""Of a report as JSON; about 1,500 tokens."""
SHORTEST_TEXT = 600
NOTE_ROOM = 50
"""For the note on what was cut, less the place that it names."""
MOST_LINES = 16
ERROR_SHOWN = 600

Pair = tuple[DumpedKernel | None, DumpedKernel | None]


def report(dumped: Dumped, stage: Stage, resource: str, whole: str, place: str) -> DumpReport:
    """The report on a dump. `whole` is the stage's text in full, which `resource` names; a note on what was cut sends
    the reader to `place`, its file."""
    if not dumped.kernels:
        return operations.report(dumped, resource, _cut(whole, SHOWN_CHARACTERS // 2, place))
    pairs: list[Pair] = [(None, kernel) for kernel in dumped.kernels]
    lines = [f"{kernel.made.kernel} on {kernel.made.arch}: {kernel.made.headline}" for kernel in dumped.kernels]
    return _fitted(dumped, "\n".join(lines), pairs, resource, "" if stage == "resources" else whole, place)


def comparison(before: Dumped, after: Dumped, resource: str, whole: str, place: str) -> DumpReport:
    """The report on what changed from the incumbent to the candidate."""
    if not before.kernels and not after.kernels:
        return operations.comparison(before, after, resource, _cut(whole, SHOWN_CHARACTERS // 2, place))
    pairs = paired(before, after)
    lines = []
    for old, new in pairs:
        known = new or old
        assert known is not None
        lines.append(f"{known.made.kernel} on {known.made.arch}: {_in_short(old, new)}")
    return _fitted(after, "\n".join(lines), pairs, resource, whole, place)


def whole_text(dumped: Dumped, stage: Stage) -> str:
    """A stage of every kernel, in full; of a torch task, its operations."""
    if not dumped.kernels:
        return operations.table(dumped.operations)
    parts = []
    for kernel in dumped.kernels:
        made = kernel.made
        text = _resources_text(kernel) if stage == "resources" else _STAGE_TEXT[stage](made)
        parts.append(f"==== {made.kernel} for {made.arch}: {stage} ====\n{text}")
    return "\n".join(parts)


def whole_comparison(before: Dumped, after: Dumped, stage: Stage) -> str:
    """What changed in a stage (the front end's IR for `resources`), kernel by kernel, in full; of a torch task, the
    operations of both."""
    if not before.kernels and not after.kernels:
        return operations.difference(before, after)
    parts = []
    for old, new in paired(before, after):
        known = new or old
        assert known is not None
        shown: Stage = _first_ir(known.made) if stage == "resources" else stage
        title = f"==== {known.made.kernel} for {known.made.arch}: {shown}, incumbent against candidate ===="
        lines = [] if old is None or new is None else _difference(old.made, new.made, shown)
        parts.append("\n".join([title, *(lines or [_in_short(old, new) if not (old and new) else "no difference"])]))
    return "\n".join(parts)


def paired(before: Dumped, after: Dumped) -> list[Pair]:
    """The kernels of two dumps side by side, by name and architecture, in the candidate's order; then what is gone."""
    found: list[Pair] = []
    names = dict.fromkeys((kernel.made.kernel, kernel.made.arch) for kernel in (*after.kernels, *before.kernels))
    for name in names:
        old, new = (
            [kernel for kernel in dumped.kernels if (kernel.made.kernel, kernel.made.arch) == name]
            for dumped in (before, after)
        )
        found += zip_longest(old, new)
    return found


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
    before, after = (_STAGE_TEXT[stage](one) for one in (old, new))
    return [] if before == after else ["-- incumbent", before, "-- candidate", after]


def _first_ir(made: Compilation) -> Literal["cutile_ir", "ttir"]:
    return "ttir" if made.is_triton else "cutile_ir"


def _of_cutile(made: Compilation, text: str) -> str:
    return "(a Triton kernel has no such stage: ask for ttir or ttgir)" if made.is_triton else text


def _of_triton(made: Compilation, text: str) -> str:
    return text if made.is_triton else "(only Triton kernels have this stage: ask for cutile_ir, tile_ir or sass)"


def _remarks_text(made: Compilation) -> str:
    if made.is_triton:
        return "(Triton's compiler makes no remarks)"
    return "\n".join(map(str, made.remarks)) or "(the compiler made no remark)"


def _resources_text(kernel: DumpedKernel) -> str:
    made = kernel.made
    lines = [made.headline, *(f"- {finding}" for finding in findings(made))]
    if made.error:
        lines.append(made.error)
    if made.resources is not None:
        lines += [f"{name}: {value}" for name, value in _present(made).items()]
    return "\n".join([*lines, f"compiled in {made.seconds:.2f} s"])


_STAGE_TEXT: dict[Stage, Callable[[Compilation], str]] = {
    "cutile_ir": lambda made: _of_cutile(made, made.cutile_ir),
    "tile_ir": lambda made: _of_cutile(made, made.tile_ir),
    "ttir": lambda made: _of_triton(made, made.ttir),
    "ttgir": lambda made: _of_triton(made, made.ttgir),
    "ptx": lambda made: _of_triton(made, made.ptx),
    "sass": lambda made: made.sass,
    "remarks": _remarks_text,
    "mix": lambda made: mix_table(made.mix) if made.mix else "(no machine code)",
}


def _present(made: Compilation) -> dict[str, Any]:
    """The resources that are not zero."""
    if made.resources is None:
        return {}
    return {name: value for name, value in made.resources.model_dump().items() if value}


def _fitted(dumped: Dumped, summary: str, pairs: list[Pair], resource: str, whole: str, place: str) -> DumpReport:
    """The report with as many findings, kernels, and as much of `whole`, as fit; `place` holds what does not."""
    lines = summary.splitlines()
    if len(lines) > MOST_LINES:
        summary = "\n".join([*lines[:MOST_LINES], f"... {len(lines) - MOST_LINES} kernels more in {place}"])
    least = min(_escaped(whole), SHORTEST_TEXT)
    known = [pair for pair in pairs if pair[1] is not None]
    shown = len(known)
    for most, with_resources in ((5, True), (3, True), (2, True), (1, True), (1, False)):
        result = _report(dumped, summary, known, resource, most, with_resources)
        if _length(result) + least <= SHOWN_CHARACTERS:
            break
    while _length(result) + least > SHOWN_CHARACTERS and shown > 1:
        shown -= 1
        result = _report(dumped, summary, known[:shown], resource, 1, False)
        note = f"only the first {shown} of {len(known)} kernels are listed; ask for fewer architectures"
        result = result.model_copy(update={"message": note})
    return result.model_copy(update={"text": _cut(whole, SHOWN_CHARACTERS - _length(result), place)})


def _length(result: DumpReport) -> int:
    return len(result.model_dump_json())


def _escaped(text: str) -> int:
    """How many characters of JSON a text takes."""
    return len(json.dumps(text, ensure_ascii=False))


def _cut(whole: str, room: int, place: str) -> str:
    """The start of a text that takes `room` characters of JSON at most, and where the rest is."""
    if _escaped(whole) <= room:
        return whole
    left = room - NOTE_ROOM - len(place)
    shown = whole[: max(left, 0)]
    while shown and _escaped(shown) > left:
        shown = shown[: len(shown) - max((_escaped(shown) - left) // 2, 1)]
    return f"{shown}\n... {len(whole) - len(shown)} characters more in {place}"


def _report(
    dumped: Dumped, summary: str, pairs: list[Pair], resource: str, most: int, with_resources: bool
) -> DumpReport:
    kernels = []
    for old, new in pairs:
        assert new is not None
        made = new.made
        found = findings(made)
        kernels.append(
            KernelReport(
                kernel=made.kernel,
                arch=made.arch,
                grid=new.grid,
                hints=made.hints,
                findings=found[:most],
                more_findings=max(len(found) - most, 0),
                resources=_present(made) if with_resources and made.resources else None,
                changes=changes(old.made, made) if old is not None else {},
                compile_seconds=round(made.seconds, 2),
                error=cut(made.error, ERROR_SHOWN),
            )
        )
    explained: dict[str, list[str]] = {}
    for name in dict.fromkeys(finding.treatment.value for kernel in kernels for finding in kernel.findings):
        explained.setdefault(treatment_pages()[name], []).append(name)
    return DumpReport(
        summary=summary,
        status=_status([kernel.made for kernel in dumped.kernels]),
        message=dumped.message,
        case=dumped.case,
        kernels=kernels,
        resource=resource,
        next="; ".join(f"{page} explains {', '.join(names)}" for page, names in explained.items()),
    )


def _status(made: list[Compilation]) -> Status:
    if any(one.error and not one.timed_out for one in made):
        return Status.COMPILE_ERROR
    return Status.TIMEOUT if any(one.timed_out for one in made) else Status.PASSED

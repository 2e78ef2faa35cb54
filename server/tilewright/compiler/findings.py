"""What a compilation shows that costs time: each finding with its line, its evidence and the treatment to try."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.remarks import Remark
from tilewright.compiler.resources import has_tma
from tilewright.wire.record import Record

FEW_WARPS = 0.25
NARROW_BYTES, FULL_BYTES = 4, 16
FEW_ELEMENTS = 64
"""Gathers of so few elements are of indices or lengths, in a kernel that also loads tiles."""
SMALL_EXTENT, LARGE_TILE = 32, 128 * 128
"""Output tiles of fewer rows or columns are for matrices that have no more; tiles of so many elements are large."""
MANY_NARROW, MANY_PERMUTES, MANY_CALLS = 16, 32, 4


class Treatment(StrEnum):
    """What to try: each has an entry of that name on a page `references/playbook-*.md`. What the first are for costs
    most, by the pairs that were measured; in this order findings are listed."""

    TENSOR_CORE_DTYPE = "tensor-core-dtype"
    MORE_WORKER_WARPS = "more-worker-warps"
    SMALLER_TILES = "smaller-tiles"
    ALIGN_16_BYTES = "align-16-bytes"
    EIGHT_BIT_OPERANDS = "eight-bit-operands"
    WIDER_ACCESS = "wider-access"
    TMA_RULES = "tma-rules"
    TILES_FOR_GATHERS = "tiles-for-gathers"
    RAISE_OCCUPANCY = "raise-occupancy"
    TILE_SHAPE = "tile-shape"
    FEWER_DIVISIONS = "fewer-divisions"
    ZERO_PADDING = "zero-padding"


DO = {
    Treatment.TENSOR_CORE_DTYPE: "cast both operands of mma with .astype(ct.tfloat32), or use 16-bit inputs",
    Treatment.MORE_WORKER_WARPS: "replace_hints(num_worker_warps=8)",
    Treatment.SMALLER_TILES: "halve a tile dimension",
    Treatment.ALIGN_16_BYTES: "pad rows so that every stride but the last is a multiple of 16 bytes, matmuls first; "
    "where they cannot be padded, see rows of odd length in cutile-patterns",
    Treatment.EIGHT_BIT_OPERANDS: "give mma's second operand as (N, K): transpose it once, in a kernel of its own",
    Treatment.WIDER_ACCESS: "make rows and their stride multiples of 16 elements",
    Treatment.TMA_RULES: "bring the load within TMA's rules",
    Treatment.TILES_FOR_GATHERS: "replace gather or scatter by a tile load or store where indices are regular",
    Treatment.RAISE_OCCUPANCY: "replace_hints with an occupancy above the present CTAs per SM, while nothing spills; "
    "if registers limit it, with num_worker_warps=8",
    Treatment.TILE_SHAPE: "larger tiles, while nothing spills",
    Treatment.FEWER_DIVISIONS: "divide once and multiply by the reciprocal, or divide with rounding_mode APPROX",
    Treatment.ZERO_PADDING: "last of all, load with PaddingMode.ZERO and put the other value in with ct.where",
}
DO_IN_TRITON = {
    Treatment.TENSOR_CORE_DTYPE: 'give tl.dot 16-bit operands, or float32 ones with input_precision="tf32"',
    Treatment.MORE_WORKER_WARPS: "launch with num_warps=8",
    Treatment.WIDER_ACCESS: "make rows and their stride multiples of 16, which Triton specialises for",
    Treatment.FEWER_DIVISIONS: "divide once and multiply by the reciprocal, or use a fast division of libdevice",
}
"""The same treatments in Triton's words, where they differ."""


class Finding(Record):
    """One thing that costs time."""

    treatment: Treatment
    where: str = Field("", description="source line")
    evidence: str
    do: str = Field(description="the treatment in a few words; the playbook says more")

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.evidence} -> {self.treatment}: {self.do}"


class Sign(NamedTuple):
    """What a rule sees: the treatment, the evidence and its source line."""

    treatment: Treatment
    evidence: str
    where: str = ""


Rule = Callable[[Compilation], Iterator[Sign]]


def findings(made: Compilation) -> list[Finding]:
    """What costs time in `made`, by the order of treatments."""
    do = DO | DO_IN_TRITON if made.is_triton else DO
    rules = (*CODE_RULES, *CUTILE_RULES) if made.cutile_ir else CODE_RULES
    return by_cost([Finding(**sign._asdict(), do=do[sign.treatment]) for rule in rules for sign in rule(made)])


def by_cost(signs: list[Finding]) -> list[Finding]:
    """Findings in the order of their treatments."""
    order = list(Treatment)
    return sorted(signs, key=lambda finding: order.index(finding.treatment))


def for_more_warps(limited_by: str) -> Treatment:
    """What gives an SM more to wait for, by what keeps a further CTA off it. A hint frees registers and a smaller tile
    frees shared memory, but an SM that is full of threads or of CTAs takes no more: each of them has to load more."""
    if "threads" in limited_by or "CTAs" in limited_by:
        return Treatment.TILE_SHAPE
    return Treatment.RAISE_OCCUPANCY if "registers" in limited_by else Treatment.SMALLER_TILES


def _spills(made: Compilation) -> Iterator[Sign]:
    held = made.resources
    if held is None or not held.spill_bytes:
        return
    worst = max(made.mix, key=lambda line: line.local, default=None)
    evidence = f"{held.spill_bytes} bytes stored and {held.spill_load_bytes} loaded back by each thread"
    if worst is not None:
        evidence += f"; {worst.local} of {held.local_memory} local accesses belong to this line"
    warps = made.hints.get("num_warps" if made.is_triton else "num_worker_warps", 4)
    treatment = Treatment.MORE_WORKER_WARPS if warps < 8 else Treatment.SMALLER_TILES  # which share a tile's registers
    yield Sign(treatment, evidence, worst.where if worst else "")


def _missing_tensor_cores(made: Compilation) -> Iterator[Sign]:
    if made.resources is None or not made.has_products:
        return
    dtypes = " and ".join(sorted(made.product_dtypes)) or "its operands"
    refused = [remark for remark in made.remarks if remark.category == "tensor-core" and not remark.good]
    for remark in refused:
        evidence = f"mma of {dtypes} runs on {remark.instruction or 'FMA'} instructions, not on tensor cores"
        yield Sign(Treatment.TENSOR_CORE_DTYPE, evidence, remark.where)
    if not refused and not made.resources.tensor_core:
        evidence = f"mma of {dtypes}, and no tensor-core instruction in the machine code"
        yield Sign(Treatment.TENSOR_CORE_DTYPE, evidence)


def _divisions(made: Compilation) -> Iterator[Sign]:
    for line in made.mix:
        if line.calls >= MANY_CALLS and line.special:
            evidence = f"{line.calls} calls of the slow path of exact divisions or roots, {line.total} instructions"
            yield Sign(Treatment.FEWER_DIVISIONS, evidence, line.where)


def _narrow(made: Compilation) -> Iterator[Sign]:
    unaligned = {remark.where for remark in made.remarks if any("aligned" in reason for reason in remark.reasons)}
    for line in made.mix:
        widths = (*line.loads.items(), *line.stores.items())
        count = sum(count for width, count in widths if width <= NARROW_BYTES)
        if count >= MANY_NARROW and line.where not in unaligned:
            evidence = f"{count} plain loads and stores of {NARROW_BYTES} bytes or fewer a thread"
            yield Sign(Treatment.WIDER_ACCESS, evidence, line.where)


def _transposed_operands(made: Compilation) -> Iterator[Sign]:
    """Hopper's products of 8 bits take operands whose K lies together; others are transposed in registers each time."""
    if made.arch != "sm_90" or not any("8" in dtype for dtype in made.product_dtypes):
        return
    for line in made.mix:
        if line.tensor_core and line.permutes >= MANY_PERMUTES:
            evidence = (
                f"{line.total} instructions on a line with {line.tensor_core} tensor-core ones, {line.permutes} of "
                f"them PRMT: {' and '.join(sorted(made.product_dtypes))} operands are transposed in registers"
            )
            yield Sign(Treatment.EIGHT_BIT_OPERANDS, evidence, line.where)


def _small_tile(made: Compilation) -> Iterator[Sign]:
    """A kernel of one matmul on tensor cores whose output tile leaves registers free."""
    results = re.findall(r"Tile\[\w+,\((\d+),(\d+)\)\] = tile_mma\(", made.cutile_ir)
    held = made.resources
    if held is None or not held.tensor_core or held.spill_bytes or held.cluster_ctas > 1 or len(results) != 1:
        return
    rows, columns = map(int, results[0])
    if min(rows, columns) >= SMALL_EXTENT and rows * columns < LARGE_TILE:
        where = max(made.mix, key=lambda line: line.tensor_core, default=None)
        evidence = (
            f"an output tile of {rows}x{columns}, without spills: one of 128x128 reads each input less often, if the "
            "matrices are larger than a tile and the grid still fills the SMs"
        )
        yield Sign(Treatment.TILE_SHAPE, evidence, where.where if where else "")


def _without_tma(made: Compilation) -> Iterator[Sign]:
    for remark in made.remarks if has_tma(made.arch) else ():
        reason = "; ".join(remark.reasons) or remark.text
        if remark.category != "memory" or remark.good or "tile dimension" in reason:  # a tile of a few bytes
            continue
        treatment = Treatment.ALIGN_16_BYTES if "16-byte aligned" in reason else Treatment.TMA_RULES
        treatment = Treatment.ZERO_PADDING if "zero padding" in reason else treatment
        what = "store" if "store" in remark.text.lower() else "load"
        instead = _instead(made.remarks, remark)
        yield Sign(treatment, f"no TMA {what}{f', {instead} instead' if instead else ''}: {reason}", remark.where)


def _instead(remarks: list[Remark], failed: Remark) -> str:
    same = (remark for remark in remarks if remark.good and remark.where == failed.where and remark.instruction)
    return next((remark.instruction for remark in same), "")


def _gathers(made: Compilation) -> Iterator[Sign]:
    """Loads and stores with an address for each element, where tiles would do better: by TMA, or wider."""
    if made.resources is None:
        return
    by_tma = made.has_products and has_tma(made.arch)
    shapes = re.findall(r"Tile\[\w+,\(([\d,]*)\)\][^\n]*= load_pointer", made.cutile_ir)
    large = any(math.prod(int(size) for size in shape.split(",") if size) > FEW_ELEMENTS for shape in shapes)
    if large or (shapes and "= tile_load" not in made.cutile_ir):
        for line in sorted(made.mix, key=lambda line: -line.async_copies - sum(line.loads.values()))[:2]:
            narrow = min(line.loads, default=FULL_BYTES) < FULL_BYTES
            if (line.async_copies or line.loads) and not line.tma_loads and (by_tma or narrow):
                copies = f"{line.async_copies} cp.async" if line.async_copies else ""
                plain = f"plain loads of {_widths(line.loads)} a thread" if line.loads else ""
                evidence = f"an address for each element: {' and '.join(filter(None, (copies, plain)))}, no TMA"
                yield Sign(Treatment.TILES_FOR_GATHERS, evidence, line.where)
    worst = max(made.mix, key=lambda line: sum(line.stores.values()), default=None)
    if worst is not None and "= store_pointer" in made.cutile_ir and min(worst.stores, default=FULL_BYTES) < FULL_BYTES:
        evidence = f"an address for each element: plain stores of {_widths(worst.stores)} a thread"
        yield Sign(Treatment.TILES_FOR_GATHERS, evidence, worst.where)


def _widths(widths: dict[int, int]) -> str:
    return " and ".join(str(width) for width in sorted(widths)) + " bytes"


def _few_warps(made: Compilation) -> Iterator[Sign]:
    held = made.resources
    if held is None or made.has_products or held.warps_per_sm is None or not held.limited_by:
        return
    share = held.warps_per_sm / max(held.max_warps_per_sm, 1)
    if share <= FEW_WARPS:
        hinted = f", at occupancy={made.hints['occupancy']}" if "occupancy" in made.hints else ""
        evidence = (
            f"{held.ctas_per_sm} CTA{'s' if held.ctas_per_sm != 1 else ''} of {held.threads // 32} warps per SM "
            f"({share:.0%} of what it holds), limited by {held.limited_by}: {held.registers} registers a thread, "
            f"{held.shared_bytes} bytes of shared memory{hinted}"
        )
        yield Sign(for_more_warps(held.limited_by), evidence)


CODE_RULES: tuple[Rule, ...] = (_spills, _missing_tensor_cores, _divisions, _narrow)
"""Rules that rest on the machine code alone."""
CUTILE_RULES: tuple[Rule, ...] = (_transposed_operands, _small_tile, _without_tma, _gathers, _few_warps)

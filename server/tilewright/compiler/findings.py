"""What a compilation shows that costs time: each finding with its line, its evidence and the treatment to try.

`cost` orders them. It is a guess at how many times slower the kernel is for it, from figures that were measured or that
data sheets give; a measurement decides.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping

from tilewright.compiler.compilation import Compilation
from tilewright.compiler.remarks import Remark
from tilewright.compiler.resources import has_tma
from tilewright.compiler.sass import LineMix
from tilewright.compiler.treatments import DO, DO_IN_TRITON, Finding, Treatment, for_more_warps

SPILL_COST = 17.0
"""What the same tile cost with 4 worker warps, which spilled, against 8, on an H200."""
FMA_COST = 7.4
"""An H200's tfloat32 peak over its float32 peak."""
SLOW_COMPILE_S = 20.0
FEW_WARPS = 0.25
NARROW_BYTES = 4
FULL_BYTES = 16
FEW_ELEMENTS = 64
"""Of a gather, up to which it is held to be of indices or lengths where a kernel loads tiles besides."""
SMALL_EXTENT, LARGE_TILE = 32, 128 * 128
"""Output tiles of fewer rows or columns are for matrices that have no more; tiles of so many elements are large."""
MANY_NARROW = 16
MANY_PERMUTES = 32
MANY_CALLS = 4


def findings(made: Compilation) -> list[Finding]:
    """What costs time in `made`, the likely dearest first."""
    looks = _LOOKS if made.cutile_ir else _CODE_LOOKS
    do = DO | DO_IN_TRITON if made.is_triton else DO
    found = [_finding(*one, do) for look in looks for one in look(made)]
    return sorted(found, key=lambda one: -one.cost)


_Found = tuple[Treatment, str, str, float]


def _finding(treatment: Treatment, where: str, evidence: str, cost: float, do: Mapping[Treatment, str]) -> Finding:
    return Finding(treatment=treatment, where=where, evidence=evidence, do=do[treatment], cost=cost)


def _timeouts(made: Compilation) -> Iterator[_Found]:
    tool, tiles = "Triton" if made.is_triton else "tileiras", _largest_tile(made)
    held = f"; the largest tile is {tiles}" if tiles else ""
    if made.timed_out:
        yield Treatment.SMALLER_TILES, "", f"{tool} was stopped after {made.seconds:.0f} s{held}", 1000.0
    elif made.seconds > SLOW_COMPILE_S:
        yield Treatment.SMALLER_TILES, "", f"{tool} took {made.seconds:.0f} s{held}", 1.0


def _spills(made: Compilation) -> Iterator[_Found]:
    found = made.resources
    if found is None or not found.spill_bytes:
        return
    worst = max(made.mix, key=lambda one: one.local, default=None)
    evidence = f"{found.spill_bytes} bytes stored and {found.spill_load_bytes} loaded back by each thread"
    if worst is not None:
        evidence += f"; {worst.local} of {found.local_memory} local accesses belong to this line"
    share = found.local_memory / max(found.instructions, 1)
    worst_case = FMA_COST - 0.1 if any(_on_fma(made)) else SPILL_COST  # tensor cores need no registers for FMA's terms
    yield _relief(made), worst.where if worst else "", evidence, min(worst_case, 1.0 + 40 * share)


def _relief(made: Compilation) -> Treatment:
    """More warps share a tile's registers, until there are 8 of them."""
    warps = made.hints.get("num_warps" if made.is_triton else "num_worker_warps", 4)
    return Treatment.MORE_WORKER_WARPS if warps < 8 else Treatment.SMALLER_TILES


def _on_fma(made: Compilation) -> Iterator[Remark]:
    return (remark for remark in made.remarks if remark.category == "tensor-core" and not remark.good)


def _products(made: Compilation) -> Iterator[_Found]:
    if made.resources is None or not made.has_products:
        return
    failed = [*_on_fma(made)]
    dtypes = " and ".join(sorted(made.product_dtypes)) or "its operands"
    for remark in failed:
        evidence = f"mma of {dtypes} runs on {remark.instruction or 'FMA'} instructions, not on tensor cores"
        yield Treatment.TENSOR_CORE_DTYPE, remark.where, evidence, FMA_COST
    if not failed and not made.resources.tensor_core:
        evidence = f"mma of {dtypes}, and no tensor-core instruction in the machine code"
        yield Treatment.TENSOR_CORE_DTYPE, "", evidence, FMA_COST


def _operands(made: Compilation) -> Iterator[_Found]:
    """Hopper's products of 8 bits take operands whose K lies together; others are transposed in registers each time."""
    if made.arch != "sm_90" or not any("8" in dtype for dtype in made.product_dtypes):
        return
    for one in made.mix:
        if one.tensor_core and one.permutes >= MANY_PERMUTES:
            evidence = (
                f"{one.total} instructions on a line with {one.tensor_core} tensor-core ones, {one.permutes} of them "
                f"PRMT: {' and '.join(sorted(made.product_dtypes))} operands are transposed in registers"
            )
            yield Treatment.EIGHT_BIT_OPERANDS, one.where, evidence, 3.0


def _tile_shape(made: Compilation) -> Iterator[_Found]:
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
        yield Treatment.TILE_SHAPE, where.where if where else "", evidence, 1.4


def _without_tma(made: Compilation) -> Iterator[_Found]:
    if not has_tma(made.arch):
        return
    for remark in made.remarks:
        if remark.category == "memory" and not remark.good:
            reason = "; ".join(remark.reasons) or remark.text
            if "tile dimension" in reason:  # a tile of a few bytes, which is no loss
                continue
            what = "store" if "store" in remark.text.lower() else "load"
            instead = _instead(made.remarks, remark)
            evidence = f"no TMA {what}{f', {instead} instead' if instead else ''}: {reason}"
            treatment = _tma_treatment(reason)
            yield treatment, remark.where, evidence, _cost_without_tma(made, treatment, what)


def _cost_without_tma(made: Compilation, treatment: Treatment, what: str) -> float:
    """As the playbook's pairs were measured: it is products that are hurt, and padding is best left as it is."""
    if treatment is Treatment.ZERO_PADDING:
        return 1.0
    if what == "store":
        return 1.2
    return 5.0 if treatment is Treatment.ALIGN_16_BYTES and made.has_products else 1.6


def _instead(remarks: list[Remark], failed: Remark) -> str:
    same = (one for one in remarks if one.good and one.where == failed.where and one.instruction)
    return next((one.instruction for one in same), "")


def _tma_treatment(reason: str) -> Treatment:
    if "zero padding" in reason:
        return Treatment.ZERO_PADDING
    return Treatment.ALIGN_16_BYTES if "16-byte aligned" in reason else Treatment.TMA_RULES


def _gathers(made: Compilation) -> Iterator[_Found]:
    """Loads and stores with an address for each element, where tiles would do better: by TMA, or wider."""
    if made.resources is None:
        return
    by_tma = made.has_products and has_tma(made.arch)
    shapes = re.findall(r"Tile\[\w+,\(([\d,]*)\)\][^\n]*= load_pointer", made.cutile_ir)
    large = any(math.prod(int(one) for one in shape.split(",") if one) > FEW_ELEMENTS for shape in shapes)
    if large or (shapes and "= tile_load" not in made.cutile_ir):
        for one in sorted(made.mix, key=lambda one: -one.async_copies - sum(one.loads.values()))[:2]:
            narrow = min(one.loads, default=FULL_BYTES) < FULL_BYTES
            if (one.async_copies or one.loads) and not one.tma_loads and (by_tma or narrow):
                copies = f"{one.async_copies} cp.async" if one.async_copies else ""
                plain = f"plain loads of {_widths(one.loads)} a thread" if one.loads else ""
                evidence = f"an address for each element: {' and '.join(filter(None, (copies, plain)))}, no TMA"
                yield Treatment.TILES_FOR_GATHERS, one.where, evidence, 1.5
    if "= store_pointer" in made.cutile_ir:
        worst = max(made.mix, key=lambda one: sum(one.stores.values()))
        if min(worst.stores, default=FULL_BYTES) < FULL_BYTES:
            evidence = f"an address for each element: plain stores of {_widths(worst.stores)} a thread"
            yield Treatment.TILES_FOR_GATHERS, worst.where, evidence, 1.5


def _occupancy(made: Compilation) -> Iterator[_Found]:
    found = made.resources
    if found is None or made.has_products or found.warps_per_sm is None or found.limited_by == "":
        return
    share = found.warps_per_sm / max(found.max_warps_per_sm, 1)
    if share <= FEW_WARPS:
        evidence = (
            f"{found.ctas_per_sm} CTA{'s' if found.ctas_per_sm != 1 else ''} of {found.threads // 32} warps per SM "
            f"({share:.0%} of what it holds), limited by {found.limited_by}: {found.registers} registers a thread, "
            f"{found.shared_bytes} bytes of shared memory{_hinted(made)}"
        )
        yield for_more_warps(found.limited_by), "", evidence, 1.8 if share < 0.2 else 1.4


def _hinted(made: Compilation) -> str:
    return f", at occupancy={made.hints['occupancy']}" if "occupancy" in made.hints else ""


def _divisions(made: Compilation) -> Iterator[_Found]:
    for one in made.mix:
        if one.calls >= MANY_CALLS and one.special:
            evidence = f"{one.calls} calls of the slow path of exact divisions or roots, {one.total} instructions"
            yield Treatment.FEWER_DIVISIONS, one.where, evidence, 1.3


def _narrow(made: Compilation) -> Iterator[_Found]:
    named = {remark.where for remark in made.remarks if any("aligned" in reason for reason in remark.reasons)}
    for one in made.mix:
        count = _narrow_count(one)
        if count >= MANY_NARROW and one.where not in named:
            evidence = f"{count} plain loads and stores of {NARROW_BYTES} bytes or fewer a thread"
            yield Treatment.WIDER_ACCESS, one.where, evidence, 2.0


def _narrow_count(one: LineMix) -> int:
    return sum(count for part in (one.loads, one.stores) for width, count in part.items() if width <= NARROW_BYTES)


def _widths(widths: dict[int, int]) -> str:
    return " and ".join(str(width) for width in sorted(widths)) + " bytes"


def _largest_tile(made: Compilation) -> str:
    shapes = re.findall(r"Tile\[\w+,\(([\d,]+)\)\]", made.cutile_ir)
    shapes += [shape.replace("x", ",") for shape in re.findall(r"tensor<((?:\d+x)+)", made.ttir)]
    extents = [[int(extent) for extent in shape.split(",") if extent] for shape in shapes]
    return "x".join(map(str, max(extents, key=math.prod, default=[])))


_LOOKS: tuple[Callable[[Compilation], Iterator[_Found]], ...] = (
    _timeouts, _spills, _products, _operands, _tile_shape, _without_tma, _gathers, _occupancy, _divisions, _narrow,
)  # fmt: skip
_CODE_LOOKS = (_timeouts, _spills, _products, _divisions, _narrow)
"""Those that rest on the machine code alone."""

"""What is read from a compilation: machine code by source line, remarks, spills, findings, differences."""

from __future__ import annotations

import gzip
import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from benchmarks.advice import treatments

from tests.unit import kernels
from tilewright.compiler import sass
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cubin import occupancy
from tilewright.compiler.differences import changes, ir_difference, opcode_difference
from tilewright.compiler.findings import Treatment, findings
from tilewright.compiler.remarks import parse_remarks
from tilewright.compiler.signature import signature_of
from tilewright.compiler.texts import raised
from tilewright.gpu.specs import KIB, SM_LIMITS, SmLimits
from tilewright.skillpack import treatment_pages

ROOT = Path(__file__).parents[2]
SOURCE = Path(kernels.__file__).read_text().splitlines()


def line_of(text: str, after: str) -> int:
    """The number of the first line with `text` at or after the first one with `after`."""
    start = next(number for number, line in enumerate(SOURCE) if after in line)
    return next(number for number, line in enumerate(SOURCE[start:], start + 1) if text in line)


@cache
def matmul(tile: tuple[int, int, int], arch: str, **hints: int) -> Compilation:
    a = torch.empty(1024, 1024, dtype=torch.bfloat16)
    kernel = kernels.matmul.replace_hints(**hints)
    return kernels.compiled(kernel, signature_of(kernel, (a, a, a, *tile)), arch, timeout_s=60)


@cache
def softmax(arch: str, length: int = 1024) -> Compilation:
    x = torch.empty(1024, length)
    return kernels.compiled(kernels.softmax, signature_of(kernels.softmax, (x, x, length)), arch)


def test_instructions_belong_to_the_lines_that_caused_them() -> None:
    mma = line_of("ct.mma(", "def matmul(")
    for arch in ("sm_80", "sm_90", "sm_100"):
        lines = {one.line: one for one in matmul((64, 64, 64), arch).mix if one.file == "kernels.py"}
        assert [number for number, one in lines.items() if one.tensor_core] == [mma]
        loads = [lines[mma - 2], lines[mma - 1]]
        assert all(bool(one.tma_loads) == (arch != "sm_80") for one in loads)
        assert all(bool(one.async_copies) == (arch == "sm_80") for one in loads)
    found = {one.line: one for one in softmax("sm_90").mix}
    assert found[line_of("ct.load(", "def softmax(")].loads == {16: 2}
    assert found[line_of("ct.store(", "def softmax(")].tma_stores
    assert found[line_of("ct.exp(", "def softmax(")].special >= 8
    table = sass.mix_table(softmax("sm_90").mix)
    assert re.search(r"kernels\.py:\d+ .* 2x16B", table)


def test_inlined_code_belongs_to_the_line_that_called_it() -> None:
    text = """
        //## File "/pip/cuda/tile/_stub.py", line 678 inlined at "/home/me/k.py", line 12
        //## File "/home/me/k.py", line 12
        /*0000*/                   STL.64 [R1+0x508], R150                 (*"SpillRefill"*);
        //## File "/home/me/helper.py", line 3 inlined at "/home/me/k.py", line 13
        //## File "/home/me/k.py", line 13
        /*0010*/              @!P0 LDG.E.U16 R12, desc[UR4][R8.64] ;
        //## File "/home/me/k.py", line 14
        //## File "/home/me/k.py", line 15
        /*0020*/              @UP1 USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xe8 ;
    """
    listed = list(sass.instructions(text))
    assert [(one.name, one.file, one.line) for one in listed] == [
        ("STL", "k.py", 12), ("LDG", "helper.py", 3), ("USETMAXREG", "k.py", 15),
    ]  # fmt: skip
    assert (sass.moved(listed, "STL"), sass.moved(listed, "LDG")) == (8, 2)
    assert sass.register_counts(listed) == [232]


@pytest.mark.parametrize(
    ("arch", "told"), [("sm_80", (1112, 1660, 1656, 98304)), ("sm_90", (1808, 4728, 4216, 213128))]
)
def test_spilled_bytes_and_shared_memory_are_what_ptxas_says(arch: str, told: tuple[int, ...]) -> None:
    """`told` is what `ptxas -v` of CUDA 13.4 said of the same PTX: stack, spill stores and loads, shared memory."""
    found = matmul((128, 256, 64), arch, num_worker_warps=4).resources
    assert found is not None
    assert (found.stack_bytes, found.spill_bytes, found.spill_load_bytes, found.shared_bytes) == told


def test_occupancy_is_what_runs_out_first() -> None:
    limits = SmLimits(100 * KIB, 1536, 24)
    assert occupancy(32, 0, 128, limits) == (12, "threads")
    assert occupancy(255, 0, 128, limits) == (2, "registers")
    assert occupancy(16, 49 * KIB, 32, limits) == (2, "shared memory")
    assert occupancy(16, 0, 32, limits) == (24, "CTAs per SM")
    hinted = matmul((128, 256, 64), "sm_100", occupancy=2).resources
    assert hinted is not None
    assert hinted.shared_bytes + KIB <= SM_LIMITS["sm_100"].shared_bytes // 2
    assert hinted.ctas_per_sm == 2


def test_warps_that_trade_registers_are_shown() -> None:
    found = matmul((128, 256, 64), "sm_90", num_worker_warps=8).resources
    assert found is not None
    assert found.setmaxnreg == [232, 32]


def test_remarks_are_read_once_each() -> None:
    remarks = softmax("sm_90").remarks
    failed = [remark for remark in remarks if not remark.good]
    assert [(remark.line, remark.reasons) for remark in failed] == [
        (line_of("ct.load(", "def softmax("), ["TMA only supports zero padding"])
    ]
    assert str(failed[0]).endswith("Failed to select TMA load instruction: TMA only supports zero padding")
    assert len(remarks) == 3
    assert parse_remarks("") == parse_remarks("--- !Passed\nnot: [yaml") == []


COSTLY = {Treatment.MORE_WORKER_WARPS, Treatment.SMALLER_TILES, Treatment.TENSOR_CORE_DTYPE}
"""Treatments whose pairs take long to compile; their findings are tested on other kernels."""


@pytest.mark.slow
def test_every_treatment_does_away_with_what_it_is_for() -> None:
    recorded = json.loads(gzip.decompress((ROOT / "benchmarks/evidence/treatments.json.gz").read_bytes()))["rows"]
    for pair in treatments.PAIRS:
        arch = "sm_80" if pair.treatment is Treatment.WIDER_ACCESS else "sm_90"
        (row,) = [row for row in recorded if (row["name"], row["arch"]) == (pair.name, arch)
                  and row["treatment"] == pair.treatment]  # fmt: skip
        sides = [row["before"], row["after"]]
        if pair.treatment not in COSTLY:
            sides += [treatments.described(treatments.compiled(side, arch)) for side in (pair.before, pair.after)]
        named = [any(f"-> {pair.treatment}:" in finding for finding in side["findings"]) for side in sides]
        assert named == [True, False] * (len(sides) // 2), pair.name
    assert {pair.treatment for pair in treatments.PAIRS} == {*Treatment} - {Treatment.TMA_RULES}


def test_the_playbook_has_every_treatment() -> None:
    pages = [path.read_text() for path in sorted((ROOT / "references").glob("playbook*.md"))]
    keys = re.findall(r"^## (\S+)$", "\n".join(pages), re.MULTILINE)
    assert len(keys) == len({*keys})
    assert {*keys} >= {treatment.value for treatment in Treatment}
    assert {*keys} == {*treatment_pages()}, "what `dump_ir` sends the reader to"


def test_findings_come_with_the_dearest_first_and_their_evidence() -> None:
    x = torch.empty(1024, 1024)
    made = kernels.compiled(kernels.matmul, signature_of(kernels.matmul, (x, x, x, 64, 64, 32)), "sm_90")
    first, second = findings(made)
    assert first.treatment is Treatment.TENSOR_CORE_DTYPE
    assert first.where == f"kernels.py:{line_of('ct.mma(', 'def matmul(')}"
    assert "float32" in first.evidence
    assert second.treatment is Treatment.MORE_WORKER_WARPS
    spilled = matmul((128, 256, 64), "sm_90", num_worker_warps=4)
    (finding,) = findings(spilled)
    assert finding.where == first.where
    assert str(spilled.resources and spilled.resources.spill_bytes) in finding.evidence
    assert findings(matmul((128, 256, 64), "sm_100")) == []


def test_a_small_output_tile_is_told_to_be_larger() -> None:
    for tile, hints, named in (
        ((64, 64, 64), {}, True),
        ((64, 128, 64), {}, True),
        ((16, 128, 64), {}, False),  # for a matrix of few rows
        ((64, 64, 64), {"num_ctas": 2}, False),  # its blocks share what they load
        ((128, 128, 64), {}, False),
    ):
        found = findings(matmul(tile, "sm_90", **hints))
        assert any(finding.treatment is Treatment.TILE_SHAPE for finding in found) == named, (tile, hints)
        assert not named or f"tile of {tile[0]}x{tile[1]}, " in found[0].evidence


def test_names_of_values_make_no_difference_and_operations_do() -> None:
    small, large = matmul((64, 64, 64), "sm_90"), matmul((128, 64, 64), "sm_90", num_worker_warps=8)
    assert ir_difference(small.cutile_ir, re.sub(r"\$(\d+)", r"$9\1", small.cutile_ir)) == []
    assert ir_difference(small.tile_ir, re.sub(r"%(\w+)_(\d+)", r"%\1_9\2", small.tile_ir)) == []
    told = "\n".join(ir_difference(small.cutile_ir, large.cutile_ir))
    assert "-    $: Tile[float32,(64,64)] = tile_mma(x=$, y=$, acc=total, use_fast_acc=False)" in told
    assert "+    $: Tile[float32,(128,64)] = tile_mma(x=$, y=$, acc=total, use_fast_acc=False)" in told
    swapped = small.cutile_ir.replace("tile_bid(axis=0)", "tile_bid(axis=2)")
    assert any("tile_bid(axis=2)" in line for line in ir_difference(small.cutile_ir, swapped))


def test_resources_and_instructions_are_set_side_by_side() -> None:
    few = matmul((128, 256, 64), "sm_90", num_worker_warps=4)
    many = matmul((128, 256, 64), "sm_90", num_worker_warps=8)
    found = changes(few, many)
    assert found["num_worker_warps"] == "4 -> 8"
    assert found["registers"] == "255 -> 168"
    assert found["spill_bytes"].endswith(" -> 0")
    assert changes(few, few) == {}
    counted = opcode_difference(few.sass, many.sass)
    assert any(line.startswith("STL.64") and line.endswith("-> 0") for line in counted)
    assert opcode_difference(few.sass, few.sass) == []


class CompilationError(Exception):
    """Like Triton's."""

    def __init__(self, error_message: str | None) -> None:
        self.error_message = error_message
        super().__init__("at 3:4:\n    x = y\n    ^" + (f"\n{error_message}" if error_message else ""))


def test_what_was_raised_begins_with_what_is_wrong() -> None:
    assert raised(ValueError("no\nmore")) == "ValueError: no\nmore"
    plain = raised(CompilationError("y is not defined\nreally"))
    assert plain.splitlines()[:2] == ["CompilationError: y is not defined, at 3:4:", "    x = y"]
    outer = CompilationError(None)
    outer.__cause__ = CompilationError("arange's range must be a power of 2")
    assert raised(outer).splitlines()[0] == "CompilationError: arange's range must be a power of 2, at 3:4:"
    outer.__cause__ = None
    assert raised(outer).splitlines()[0] == "CompilationError: at 3:4:"

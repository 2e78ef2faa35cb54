"""How a dump is shown: within its budget, whatever it holds, and kernels paired by name."""

from __future__ import annotations

import pytest

from tilewright.compiler.compilation import Compilation, Lowered
from tilewright.compiler.remarks import Remark
from tilewright.compiler.resources import Resources
from tilewright.evaluation.results import Status
from tilewright.session import dumptext
from tilewright.session.outcomes import Dumped, DumpedKernel

RESOURCES = Resources(
    registers=255, spill_bytes=4728, shared_bytes=213128, threads=256, ctas_per_sm=1, limited_by="registers",
    max_threads_per_sm=2048, instructions=2832, tensor_core={"HGMMA": 16}, tma={"UTMALDG": 5},
)  # fmt: skip


def compilation(kernel: str = "matmul", arch: str = "sm_90", **fields: object) -> Compilation:
    remarks = [
        Remark(good=False, category="memory", file="kernel.py", line=line, text="no TMA load", reasons=["zero padding"])
        for line in range(1, 9)
    ]
    plain = Lowered(kernel, arch, 3, cutile_ir='quoted "text"\n' * 1000).compiled()
    return plain.model_copy(update={"resources": RESOURCES, "remarks": remarks} | fields)


def dumped(*made: Compilation) -> Dumped:
    return Dumped(status=Status.PASSED, case="N=1", kernels=[DumpedKernel(grid=[1, 1, 1], made=one) for one in made])


@pytest.mark.parametrize("count", [1, 4, 30])
def test_a_report_shows_the_start_and_says_where_the_rest_is(count: int) -> None:
    held = dumped(*(compilation(f"kernel_{number}") for number in range(count)))
    whole = dumptext.whole_text(held, None, "cutile_ir")
    report = dumptext.report(held, None, "cutile_ir", whole, "a file")
    assert report.summary.startswith("kernel_0 on sm_90: spills 4728 bytes a thread")
    assert report.text.startswith("==== kernel_0 for sm_90: cutile_ir ====")
    assert report.text.endswith(f"\n... {len(whole) - dumptext.TEXT_SHOWN} characters more in a file")
    assert report.file == "a file"
    *findings, more = report.findings
    assert len(findings) == dumptext.FINDINGS_SHOWN or not more.endswith("more: see stage resources")
    named = {line.partition(" on ")[0] for line in report.findings if " on " in line}
    assert named == {f"kernel_{number}" for number in range(min(count, dumptext.FINDINGS_SHOWN))}
    assert report.summary.endswith("... 14 kernels more") == (count == 30)
    whole = dumptext.whole_text(held, None, "resources")
    assert "registers: 255\n" in whole and "barriers" not in whole  # zero
    assert whole.count("-> zero-padding") == 8 * count


def test_kernels_are_paired_by_name_and_what_came_or_went_is_said() -> None:
    before = dumped(compilation("same"), compilation("gone"))
    after = dumped(compilation("new"), compilation("same", resources=RESOURCES.model_copy(update={"registers": 168})))
    whole = dumptext.whole_text(after, before, "resources")
    report = dumptext.report(after, before, "resources", whole, "a file")
    new, same, gone = report.summary.splitlines()
    assert new.startswith("new on sm_90: new in the candidate; spills")
    assert same.startswith("same on sm_90: registers 255 -> 168; now spills")
    assert gone == "gone on sm_90: the candidate launches it no longer"
    assert (
        "==== same for sm_90: resources and cutile_ir, incumbent against candidate ====\nregisters: 255 -> 168\n"
        in whole
    )


def test_a_failed_kernel_and_a_slow_one_have_their_statuses() -> None:
    slow = compilation(resources=None, timed_out=True, error="COMPILE TIMEOUT: 1 s")
    wrong = compilation(resources=None, error="tile 48 is no power of two\nmore")
    assert dumptext.report(dumped(slow), None, "resources", "", "").status is Status.TIMEOUT
    report = dumptext.report(dumped(slow, wrong), None, "resources", "", "")
    assert report.status is Status.COMPILE_ERROR
    assert report.summary.splitlines()[1] == "matmul on sm_90: tile 48 is no power of two"
    for stage in ("resources", "sass"):
        assert "power of two\nmore" in dumptext.whole_text(dumped(wrong), None, stage)

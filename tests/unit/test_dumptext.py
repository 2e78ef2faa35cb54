"""How a dump is shown: within its budget, whatever it holds, and kernels paired by name."""

from __future__ import annotations

import pytest

from tilewright.compiler.assembling import Lowered
from tilewright.compiler.compilation import Compilation
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
    plain = Lowered(kernel, arch, 3, cutile_ir='quoted "text"\n' * 1000).failed("")
    return plain.model_copy(update={"resources": RESOURCES, "remarks": remarks} | fields)


def dumped(*made: Compilation) -> Dumped:
    return Dumped(status=Status.PASSED, case="N=1", kernels=[DumpedKernel(grid=[1, 1, 1], made=one) for one in made])


@pytest.mark.parametrize("count", [1, 2, 5, 30])
@pytest.mark.parametrize("stage", ["resources", "cutile_ir"])
def test_a_report_keeps_to_its_budget(count: int, stage: dumptext.Stage) -> None:
    held = dumped(*(compilation(f"kernel_{number}") for number in range(count)))
    whole = dumptext.whole_text(held, stage)
    report = dumptext.report(held, stage, "tilewright://dump/x", whole, "a file")
    assert len(report.model_dump_json()) <= dumptext.SHOWN_CHARACTERS
    assert report.summary.startswith("kernel_0 on sm_90: spills 4728 bytes a thread")
    assert report.kernels[0].findings
    if stage == "cutile_ir":
        assert report.text.startswith("==== kernel_0 for sm_90: cutile_ir ====")
        assert "characters more in a file" in report.text
    else:
        assert report.text == ""
        assert whole.count("-> zero-padding") == 8 * count
    if len(report.kernels) < count:
        assert f"only the first {len(report.kernels)} of {count} kernels are listed" in report.message


@pytest.mark.parametrize("count", [1, 20])
def test_what_was_cut_is_where_the_report_says(count: int) -> None:
    held = dumped(*(compilation(f"kernel_{number}") for number in range(count)))
    whole, place = dumptext.whole_text(held, "cutile_ir"), "sandbox/dumps/cutile_ir-0123456789abcdef.txt"
    for made in (
        dumptext.report(held, "cutile_ir", "tilewright://dump/x", whole, place),
        dumptext.comparison(held, held, "tilewright://dump/x", whole, place),
    ):
        assert len(made.model_dump_json()) <= dumptext.SHOWN_CHARACTERS
        assert made.text.endswith(f" characters more in {place}")
        assert made.resource == "tilewright://dump/x"
        if count > dumptext.MOST_LINES:
            assert made.summary.endswith(f"kernels more in {place}")


def test_the_first_findings_stay_and_the_rest_are_counted() -> None:
    held = dumped(compilation())
    (kernel,) = dumptext.report(held, "resources", "", "", "").kernels
    assert len(kernel.findings) == 5
    assert kernel.more_findings > 0
    assert "barriers" not in (kernel.resources or {})  # zero


def test_kernels_are_paired_by_name_and_what_came_or_went_is_said() -> None:
    before = dumped(compilation("same"), compilation("gone"))
    after = dumped(compilation("new"), compilation("same", resources=RESOURCES.model_copy(update={"registers": 168})))
    whole = dumptext.whole_comparison(before, after, "resources")
    report = dumptext.comparison(before, after, "tilewright://dump/x", whole, "a file")
    new, same, gone = report.summary.splitlines()
    assert new.startswith("new on sm_90: new in the candidate; spills")
    assert same.startswith("same on sm_90: registers 255 -> 168; now spills")
    assert gone == "gone on sm_90: the candidate launches it no longer"
    assert [kernel.changes for kernel in report.kernels] == [{}, {"registers": "255 -> 168"}]
    assert "==== same for sm_90: cutile_ir, incumbent against candidate ====\nno difference" in whole


def test_a_failed_kernel_and_a_slow_one_have_their_statuses() -> None:
    slow = compilation(resources=None, timed_out=True, error="COMPILE TIMEOUT: 1 s")
    wrong = compilation(resources=None, error="tile 48 is no power of two\nmore")
    assert dumptext.report(dumped(slow), "resources", "", "", "").status is Status.TIMEOUT
    report = dumptext.report(dumped(slow, wrong), "resources", "", "", "")
    assert report.status is Status.COMPILE_ERROR
    assert report.summary.splitlines()[1] == "matmul on sm_90: tile 48 is no power of two"

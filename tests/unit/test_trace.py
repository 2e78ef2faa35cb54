"""What is read from traces, and what they are found to say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_model import H200, profile
from tests.unit.test_profile import CEILINGS, facts
from tilewright.profile.activity import Activity, Unreadable, in_calls, read_events, reduces, short, whose
from tilewright.profile.diagnosis import diagnose
from tilewright.profile.report import ProfileReport
from tilewright.profile.tracing import CaseTrace, analysed, evidence, is_wide, table
from tilewright.roofline.model import CallProfile
from tilewright.session.dumptext import SHOWN_CHARACTERS

EVIDENCE = Path(__file__).parents[2] / "benchmarks" / "evidence" / "gemv.json.gz"
RECORDED = json.loads(gzip.decompress(EVIDENCE.read_bytes()))["parts"]
GEMV = "gemv_kernel_Kt1_A2f16_1v8l0_2t1_3i16_p16_A1f16_1i16t1_p16_A1f16_1i16t1_p16_I2_I4096"
NVJET = "nvjet_sm90_hsh_128x8_64x12_4x1_v_bz_splitK_TNT"
REDUCE = (
    "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, false>(cublasLt::cublasSplitKParams<float>, long)"
)
SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
OWN = {"gemv_kernel"}


def test_events_of_torch_s_profiler_are_read_and_others_left_out() -> None:
    good = [["k", 1, 2.5, 9], ["l", 4.0, 1.0, 0]]
    found = read_events([*good, ["k", "1", 2, 3], ["k", 1.0], None, 7, ["k", 1.0, -2.0, 3]])
    assert found == [Activity("k", 1.0, 2.5, 9), Activity("l", 4.0, 1.0, 0)]
    assert read_events({"events": []}) == []


def marked(*calls: list[tuple[str, float]], gap: float = 1.0, outside: str = "") -> list[Activity]:
    """Calls one after the other, each between two marks."""
    found: list[Activity] = []

    def add(name: str, us: float) -> None:
        start = found[-1].end_us + gap if found else 0.0
        found.append(Activity(name, start, us, len(found) + 1))

    for call in calls:
        if outside:
            add(outside, 5.0)
        add(SPIN, 1.0)
        for name, us in call:
            add(name, us)
        add(SPIN, 1.0)
    return found


def test_what_lies_between_marks_is_a_call_s() -> None:
    calls = in_calls(marked([("a", 1.0), ("b", 2.0)], [], [("a", 1.5)], outside="warm-up"))
    assert [[one.name for one in call] for call in calls] == [["a", "b"], [], ["a"]]


def test_a_stream_beside_the_marks_is_told_apart_by_its_launches() -> None:
    late = Activity("late", 900.0, 3.0, 3)
    activities = [Activity(SPIN, 0.0, 1.0, 2), Activity(SPIN, 5.0, 1.0, 4), late]
    assert in_calls(activities) == [[late]]
    unnumbered = [one._replace(launch=0) for one in activities]
    assert in_calls(unnumbered) == [[]]
    for few in ([], [late], activities[:1]):
        with pytest.raises(Unreadable, match="marks among"):
            in_calls(few)


FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
CUTLASS = "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128>"
SOFTMAX = "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>(float*, int)"


NAMES = [
    (GEMV, "gemv_kernel", "ours"), ("gemv_kernel", "gemv_kernel", "ours"),
    ("gemv_kernels(int)", "gemv_kernels", "library"), (NVJET, NVJET, "library"),
    (REDUCE, "splitKreduce_kernel", "library"), ("Memset (Device)", "Memset (Device)", "copy or fill"),
    ("[CUDA memcpy Device-to-Device]", "[CUDA memcpy Device-to-Device]", "copy or fill"),
    (FILL, "native::vectorized_elementwise_kernel<FillFunctor>", "copy or fill"),
    (f"void {CUTLASS}(x::Params)", CUTLASS, "library"), (SOFTMAX, "native::cunn_SoftMaxForward", "library"),
    ("", "", "library"), ("<<(>>", "<<(>>", "library"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shown", "of"), NAMES)
def test_names_are_shortened_and_owned(name: str, shown: str, of: str) -> None:
    assert (short(name, OWN), whose(name, OWN)) == (shown, of)


def test_what_sums_a_split_product_is_known_by_its_name() -> None:
    cutlass = "void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128>>>(P)"
    assert all(map(reduces, [REDUCE, cutlass, "reduce_splitk_f32"]))
    assert not any(map(reduces, [NVJET, "void k<int>(cublasLt::splitKreduce)"]))


def test_a_split_product_is_one() -> None:
    made = in_calls(marked(*[[(NVJET, 55.5 + 0.1 * (n % 3)), (REDUCE, 1.8)] for n in range(50)]))
    found = analysed(made, OWN, 234928128.0)
    assert [row.whose for row in found.kernels] == ["library", "library"]
    assert [row.product for row in found.kernels] == ["split-K", "split-K"]
    (product,) = found.products
    assert (product.kernels, product.med_us) == ([NVJET, "splitKreduce_kernel"], pytest.approx(57.4))
    assert (found.us, found.kernels_a_call, found.calls, found.warnings) == (pytest.approx(57.4), 2, 50, [])
    assert found.gb_s == pytest.approx(234928128 / 57.4 / 1e3, abs=0.1)
    (line,) = evidence(found, 0.0601)
    assert line == (
        f"traced: 2 kernels a call, 57.4 us: {NVJET} 55.6 us + splitKreduce_kernel 1.8 us (one matmul, split-K); "
        "4,093 GB/s of compulsory bytes by the median"
    )
    assert table(found)[-1].endswith("57.40 us together")


def test_our_kernel_before_a_reduction_is_no_library_product() -> None:
    found = analysed(in_calls(marked([(GEMV, 50.0), (REDUCE, 2.0), ("other", 3.0)])), OWN)
    assert found.products == []
    assert [row.whose for row in found.kernels] == ["ours", "library", "library"]
    assert "gemv_kernel 50.0 us, splitKreduce_kernel 2.0 us, other 3.0 us" in evidence(found)[0]


def test_gaps_between_kernels_are_summed_and_overlap_is_none() -> None:
    kernels = [Activity("a", 0.0, 2.0, 1), Activity("b", 5.0, 4.0, 2), Activity("c", 6.0, 1.0, 3)]
    found = analysed([[*kernels, Activity("d", 10.0, 1.0, 4)]], ())
    assert (found.us, found.gaps_us) == (8.0, 4.0)
    assert any("4.0 us of 12.0 lie between the kernels of a call, 33%" in one for one in evidence(found))
    assert len(evidence(analysed([[Activity("a", 0.0, 50.0, 1), Activity("b", 51.0, 50.0, 2)]], ()))) == 1


def test_a_kernel_on_two_shapes_is_no_contamination() -> None:
    two = analysed(in_calls(marked(*[[("k", 10.0), ("k", 90.0)]] * 20)), ())
    assert (two.warnings, two.kernels[0].launches, two.kernels[0].stddev_us) == ([], 2, 40.0)
    assert "2 x k 50.0 us" in evidence(two)[0]
    mixed = analysed(in_calls(marked(*([[("k", 10.0)]] * 20 + [[("k", 90.0)]] * 10))), ())
    assert any(one.startswith("contaminated: k took 10.0 to 90.0 us") for one in mixed.warnings)


def test_uneven_launches_are_warned_of() -> None:
    calls: list[list[tuple[str, float]]] = [[("k", 10.0)]] * 45 + [[("fill", 3.0), ("k", 10.0), ("k", 10.0)]] * 5
    (warning,) = analysed(in_calls(marked(*calls)), ()).warnings
    assert warning.startswith("uneven: 1 to 3 launches a call, 1 in 45 of 50 calls (k 1 to 2 times, fill 0 to 1 times)")
    taking_turns = [[(f"kernel_{number % 2}", 10.0)] for number in range(10)]
    assert any(one.startswith("uneven: 1 to 1") for one in analysed(in_calls(marked(*taking_turns)), ()).warnings)


def test_a_trace_slower_than_the_clock_is_not_believed() -> None:
    with pytest.raises(Unreadable, match="the calls ran nothing"):
        analysed([[], []], ())
    found = analysed(in_calls(marked(*[[("k", 100.0)]] * 5)), ())
    assert "go by the clock" in evidence(found, 0.05)[1]
    assert len(evidence(found, 0.095)) == 1


def drawn(kernel: dict[str, Any]) -> list[float]:
    """Durations whose average, least, most and standard deviation are about those of a recorded kernel."""
    number, mean, deviation = kernel["launches"], kernel["avg_us"], kernel["stddev_us"]
    middle = [mean + deviation * (1 if place % 2 else -1) for place in range(number - 2)]
    return [kernel["min_us"], *middle, kernel["max_us"]]


def test_what_was_recorded_clean_on_an_h200_is_found_clean() -> None:
    arms = RECORDED["clean"]["arms"]
    for arm in arms.values():
        for kernel in arm["kernels"]:
            assert not is_wide(drawn(kernel)), kernel
    library = arms["torch.matmul(B, a)"]
    main, last = (drawn(kernel) for kernel in library["kernels"])
    names = [kernel["kernel"] for kernel in library["kernels"]]
    calls = in_calls(marked(*[list(zip(names, times, strict=True)) for times in zip(main, last, strict=True)]))
    found = analysed(calls, OWN, 234928128.0)
    assert found.warnings == []
    assert found.us == pytest.approx(library["calls"]["med_us"], rel=0.02)
    assert found.products[0].kernels[1] == "splitKreduce_kernel"
    assert found.gb_s == pytest.approx(library["calls"]["gb_s"], rel=0.02)


def test_what_was_recorded_contaminated_on_an_h200_is_found_so() -> None:
    (searched,) = RECORDED["search in the trace"]["kernels"]
    assert is_wide(drawn(searched))
    several = [one for one in RECORDED["search in the trace"]["names"] if one["launches"] in (40, 60)]
    assert all(is_wide(drawn(one)) for one in several)
    assert not any(is_wide(drawn(one)) for one in RECORDED["search in the trace"]["names"] if one["launches"] == 20)
    copy, gemv = RECORDED["a copy alongside"]["kernels"]
    calls = [[(gemv["kernel"], us)] for us in drawn(gemv)]
    for call in calls[::4]:
        call.insert(0, (copy["kernel"], copy["med_us"]))
    found = analysed(in_calls(marked(*calls)), OWN)
    assert any("Memcpy DtoD (Device -> Device) 0 to 1 times" in one for one in found.warnings)


def case_trace(rows: int) -> CaseTrace:
    call = [(f"a_kernel_with_a_name_that_takes_some_room_{number}", 10.0 + number) for number in range(rows)]
    return analysed(in_calls(marked(*[call] * 10)), ())


def test_a_diagnosis_holds_its_trace() -> None:
    call = CallProfile(launches=[profile(blocks=132 * 128)])
    found = diagnose(facts(call, 0.3)._replace(trace=case_trace(2)), H200, CEILINGS, [])
    assert found.trace is not None
    assert any(one.startswith("traced: 2 kernels a call, 21.0 us: a_kernel") for one in found.evidence)
    assert diagnose(facts(call, 0.3), H200, CEILINGS, []).bound == found.bound


@pytest.mark.parametrize("cases", [1, 2, 8])
def test_an_answer_stays_short(cases: int) -> None:
    call = CallProfile(launches=[profile(blocks=132 * 128)])
    bare = diagnose(facts(call, 0.3), H200, CEILINGS, [])
    case = bare.model_copy(update={"trace": case_trace(40), "evidence": [], "treatments": []})
    report = ProfileReport(summary="x", cases=[case] * cases).fitted()
    assert len(report.model_dump_json()) <= SHOWN_CHARACTERS
    if (first := report.cases[0].trace) is None:
        assert cases > 4
    else:
        assert (first.more_kernels + len(first.kernels), first.kernels[-1].kernel[-3:]) == (40, "_39")

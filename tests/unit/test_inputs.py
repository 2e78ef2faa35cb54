"""From recorded calls to the code that draws such inputs: shapes, dtypes, strides and kinds of values."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from tilewright.attach.capture import tensor_of
from tilewright.attach.inputs import FILL_IN, Call, Inputs, inputs_of, layout_of
from tilewright.attach.writing import adapter_py, task_py


def inputs_like(*calls: dict[str, Any]) -> Inputs:
    return inputs_of(
        [
            Call(
                {name: tensor_of(value) for name, value in call.items() if isinstance(value, torch.Tensor)},
                {name: value for name, value in call.items() if not isinstance(value, torch.Tensor)},
            )
            for call in calls
        ]
    )


def module_of(inputs: Inputs, call: str = "dict") -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(task_py(call, "", inputs), module)
    return module


def drawn(inputs: Inputs, case: int = 0) -> dict[str, Any]:
    made: dict[str, Any] = module_of(inputs)["make_inputs"](inputs.cases[case], torch.Generator().manual_seed(1))
    return made


LAYOUTS = {
    "contiguous": torch.randn(4, 6),
    "transposed": torch.randn(6, 4).t(),
    "rows of a wider tensor": torch.randn(4, 9)[:, :6],
    "every second element": torch.randn(4, 12)[:, ::2],
    "a permuted batch": torch.randn(3, 5, 2, 4).permute(0, 2, 1, 3),
    "expanded": torch.randn(1, 6).expand(4, 6),
    "a single row": torch.randn(1, 6),
    "no dimension": torch.randn(()),
    "8-bit": torch.randn(6, 4).to(torch.float8_e4m3fn).t(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_is_drawn_with_the_strides_of_the_call(layout: str) -> None:
    value = LAYOUTS[layout]
    made = drawn(inputs_like({"x": value}))["x"]
    assert (made.shape, made.dtype, made.stride()) == (value.shape, value.dtype, value.stride())


def test_calls_with_other_strides_are_cases_of_their_own() -> None:
    inputs = inputs_like({"x": torch.randn(6, 4)}, {"x": torch.randn(4, 6).t()})
    assert [case["x_layout"] for case in inputs.cases] == ["contiguous", "1,0:0,0:1"]
    assert drawn(inputs, 1)["x"].stride() == (1, 6)


def test_labels_keep_their_range_and_the_share_of_a_special_value() -> None:
    labels = torch.randint(0, 1000, (500,))
    labels[::5] = -100
    made = drawn(inputs_like({"logits": torch.randn(500, 1000), "labels": labels}))["labels"]
    assert made.dtype is torch.int64
    assert 60 < int((made == -100).sum()) < 140
    rest = made[made != -100]
    assert (int(rest.min()) >= 0, 500 < int(rest.max()) < 1000) == (True, True)
    smaller = inputs_like({"logits": torch.randn(500, 1000), "labels": labels})
    smaller.cases[0]["N"] = 10
    assert int(drawn(smaller)["labels"].max()) < 10, "labels are columns of the logits"


def test_dtypes_are_kept_one_by_one() -> None:
    call = {
        "x": torch.randn(4, 6, dtype=torch.bfloat16),
        "w": torch.randn(6),
        "mask": torch.rand(4, 6) < 0.25,
        "rows": torch.tensor([3, 1, 2, 0], dtype=torch.int32),
        "scale": torch.rand(6) + 2.0,
        "order": torch.arange(6),
    }
    made = drawn(inputs_like(call))
    assert {name: value.dtype for name, value in made.items()} == {name: value.dtype for name, value in call.items()}
    assert bool((made["scale"] >= 0).all())
    assert made["order"].equal(call["order"])


def test_what_cannot_be_drawn_is_marked() -> None:
    inputs = inputs_like({"x": torch.randn(8, 4), "starts": torch.tensor([0, 3, 8])})
    assert inputs.open
    assert f"{FILL_IN}: the values rise from 0 to 8 in the tests" in task_py("f", "", inputs)
    assert not inputs_like({"x": torch.randn(8, 4)}).open


def test_arguments_that_differ_between_calls_are_keys_of_a_case() -> None:
    x = torch.randn(4, 6)
    inputs = inputs_like({"x": x, "causal": True, "eps": 1e-6}, {"x": x, "causal": False, "eps": 1e-6})
    assert [case["causal"] for case in inputs.cases] == [True, False]
    assert (inputs.by_case, inputs.arguments) == (["causal"], {"eps": 1e-6})
    assert drawn(inputs, 1)["causal"] is False


def test_dimensions_are_the_same_if_they_are_equal_in_all_calls() -> None:
    square = {"x": torch.randn(64, 64), "w": torch.randn(64)}
    assert inputs_like(square).shapes == {"x": ["M", "N"], "w": ["N"]}
    inputs = inputs_like(square, {"x": torch.randn(32, 16), "w": torch.randn(32)})
    assert inputs.shapes == {"x": ["M", "N"], "w": ["M"]}
    assert [(case["M"], case["N"]) for case in inputs.cases] == [(64, 64), (32, 16)]


def test_an_empty_call_widens_a_dimension_and_is_no_case() -> None:
    inputs = inputs_like({"x": torch.randn(4, 6)}, {"x": torch.randn(0, 6)})
    assert (inputs.empty, len(inputs.cases)) == ({"M"}, 1)
    always = inputs_like({"x": torch.randn(4, 6), "none": torch.randn(0)})
    assert (always.shapes["none"], drawn(always)["none"].numel()) == (["0"], 0)


def test_the_work_counts_each_tensor_in_its_dtype() -> None:
    inputs = inputs_like({"x": torch.randn(4, 6, dtype=torch.bfloat16), "rows": torch.tensor([3, 1, 2, 0])})
    work = module_of(inputs, "(lambda x, rows: x[rows])")["work"](inputs.cases[0])
    assert (work.bytes, work.dtype) == (2 * 4 * 6 * 2 + 4 * 8, "float32")
    blind = module_of(inputs, "(lambda x, rows: x[:int(rows.max())])")["work"](inputs.cases[0])
    assert blind.bytes == 4 * 6 * 2 + 4 * 8


def test_strides_that_no_layout_tells_are_taken_for_contiguous() -> None:
    assert layout_of([4, 6], [3, 1]) == ""
    assert layout_of([4, 6], [6, 1]) == ""


def test_integers_may_be_those_of_the_calls(tmp_path: Path) -> None:
    offsets, mask = torch.tensor([0, 3, 3, 8]), torch.tensor([[True, False]]).expand(4, 2)
    x = torch.randn(8, 2)
    call: dict[str, Any] = {"x": x, "offsets": offsets, "mask": mask, "top": 7}
    calls = [
        Call({name: tensor_of(value) for name, value in one.items() if name != "top"}, {"top": one["top"]})
        for one in (call, call | {"x": torch.randn(5, 2), "offsets": torch.tensor([0, 1, 1, 5])})
    ]
    inputs = inputs_of(calls, records=True)
    assert not inputs.open
    (tmp_path / "task.py").write_text(task_py("", "", inputs))
    (tmp_path / "calls.json").write_text(json.dumps(inputs.recorded))
    task = runpy.run_path(str(tmp_path / "task.py"))
    made = [task["make_inputs"](case, torch.Generator().manual_seed(1)) for case in inputs.cases]
    assert [one["offsets"].tolist() for one in made] == [[0, 3, 3, 8], [0, 1, 1, 5]]
    assert made[0]["mask"].tolist() == mask.tolist()
    assert made[0]["mask"].stride() == mask.stride()
    assert made[0]["x"].tolist() != x.tolist(), "what is no integer is drawn"


def test_an_adapter_puts_arguments_together() -> None:
    calls = [
        Call(
            {"x_0": tensor_of(torch.ones(n)), "x_1": tensor_of(torch.ones(2))},
            {"shape_0": n, "kind": "float32", "eps": 0.5, "flag": True},
            packed={"x": "[x_0, x_1]", "shape": "(shape_0,)", "dtype": "getattr(torch, kind)"},
        )
        for n in (8, 6)
    ]
    inputs = inputs_of(calls)
    assert (inputs.tied, inputs.by_case) == ({"shape_0": "N"}, [])
    seen: dict[str, Any] = {}
    text = adapter_py("somewhere:function", inputs).replace("from somewhere import function as wrapped", "")
    names: dict[str, Any] = {"wrapped": seen.update}
    exec(text, names)
    names["function"](**drawn(inputs))
    assert ([one.shape for one in seen.pop("x")], seen) == (
        [(8,), (2,)], {"shape": (8,), "dtype": torch.float32, "eps": 0.5, "flag": True},
    )  # fmt: skip


def test_a_dimension_has_no_tensors_name() -> None:
    made = drawn(inputs_like({"A": torch.randn(4, 8, 16), "B": torch.randn(4, 16, 32), "C": torch.randn(4, 8, 32)}))
    assert [list(made[name].shape) for name in "ABC"] == [[4, 8, 16], [4, 16, 32], [4, 8, 32]]


def test_numbers_that_are_not_finite_are_no_keys_of_a_case() -> None:
    calls = [
        {"x": torch.ones(2), "cap": float("inf"), "pad": float("nan")},
        {"x": torch.ones(4), "cap": 1.0, "pad": 0.0},
    ]
    inputs = inputs_like(*calls)
    assert inputs.cases == [{"N": 2, "dtype": "float32"}]
    made = drawn(inputs)
    assert (made["cap"], made["pad"] != made["pad"]) == (float("inf"), True)


@pytest.mark.parametrize(
    ("name", "values"), [("weight", [0.5, 2.0]), ("backend", ["a", "b"]), ("dtype", ["float16", ""])]
)
def test_what_means_something_else_in_a_case_does_not_differ_between_cases(name: str, values: list[Any]) -> None:
    inputs = inputs_like(*({"x": torch.ones(2 + number), name: value} for number, value in enumerate(values)))
    assert (inputs.cases, inputs.arguments) == ([{"N": 2, "dtype": "float32"}], {name: values[0]})


def test_a_call_with_too_many_integers_to_record_leaves_the_others_their_cases() -> None:
    calls = [
        Call({"x": tensor_of(torch.randn(size)), "at": tensor_of(torch.randperm(size))}, {})
        for size in (1 << 18, 100, 300)
    ]
    assert [case["N"] for case in inputs_of(calls, records=True).cases] == [100, 300]
    assert [case["N"] for case in inputs_of(calls[:1], records=True).cases] == [1 << 18]

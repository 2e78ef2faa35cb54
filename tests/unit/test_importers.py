"""Problems of KernelBench and flashinfer-bench as tasks, before anything is run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from tilewright.attach.flashinfer import Definition, _inputs
from tilewright.attach.inputs import FILL_IN, Inputs
from tilewright.attach.kernelbench import _kernel_py, _task_py, describe
from tilewright.attach.writing import task_py

PAGED = {
    "name": "paged",
    "axes": {
        "batch": {"type": "var"},
        "len_indptr": {"type": "var"},
        "num_indices": {"type": "var"},
        "num_pages": {"type": "var"},
        "head_dim": {"type": "const", "value": 16},
    },
    "constraints": ["len_indptr == batch + 1", "num_indices == kv_indptr[-1].item()"],
    "inputs": {
        "q": {"shape": ["batch", "head_dim"], "dtype": "bfloat16"},
        "k_cache": {"shape": ["num_pages", "head_dim"], "dtype": "bfloat16"},
        "kv_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "kv_indices": {"shape": ["num_indices"], "dtype": "int32"},
        "sm_scale": {"shape": None, "dtype": "float32"},
    },
    "reference": "def run(**inputs):\n    return inputs['q']",
}


def drawn(inputs: Inputs) -> dict[str, Any]:
    module: dict[str, Any] = {}
    exec(task_py("dict", "", inputs), module)
    made: dict[str, Any] = module["make_inputs"](inputs.cases[0], torch.Generator().manual_seed(1))
    return made


def test_the_axes_of_a_definition_and_its_constraints_give_the_inputs() -> None:
    workloads = [{"axes": {"batch": rows, "num_indices": 40, "num_pages": 9}, "inputs": {}} for rows in (3, 5)]
    inputs = _inputs(Definition.model_validate(PAGED), workloads, {})
    assert [case["batch"] for case in inputs.cases] == [5, 3]
    assert inputs.sizes == {"batch": 5, "num_pages": 9, "num_indices": 40}, "what follows from another axis is no size"
    made = drawn(inputs)
    assert made["q"].shape == (5, 16)
    assert (int(made["kv_indptr"][0]), int(made["kv_indptr"][-1]), len(made["kv_indptr"])) == (0, 40, 6)
    assert made["kv_indptr"].dtype is torch.int32
    assert (len(made["kv_indices"]), int(made["kv_indices"].max()) < 9) == (40, True)
    assert made["sm_scale"] == 0.25


def test_sizes_and_scalars_are_given_by_arguments_or_workloads() -> None:
    scalar = [{"axes": {"batch": 3}, "inputs": {"sm_scale": {"type": "scalar", "value": 2.0}}}]
    definition = Definition.model_validate(PAGED)
    assert _inputs(definition, scalar, {}).arguments == {"sm_scale": 2.0}
    given = _inputs(definition, [], {"batch": 7, "sm_scale": 3.0})
    assert (given.sizes["batch"], given.sizes["num_pages"], given.arguments) == (7, 128, {"sm_scale": 3.0})
    named = PAGED["inputs"] | {"head_dim": {"shape": None, "dtype": "int64"}}  # type: ignore[operator]
    arguments = _inputs(Definition.model_validate(PAGED | {"inputs": named}), [], {}).arguments
    assert arguments["head_dim"] == 16, "the axis of that name"


def test_integers_that_a_definition_does_not_explain_are_marked() -> None:
    inputs = PAGED["inputs"] | {"seeds": {"shape": ["batch"], "dtype": "int64"}}  # type: ignore[operator]
    assert FILL_IN in "".join(_inputs(Definition.model_validate(PAGED | {"inputs": inputs}), [], {}).lines)


def test_the_function_of_a_reference_is_run_or_the_last() -> None:
    assert Definition.model_validate(PAGED).entry() == "run"
    other = PAGED | {"reference": "def helper(): ...\n\ndef _rope_reference(q): ..."}
    assert Definition.model_validate(other).entry() == "_rope_reference"


PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, eps=1e-5):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.linear = nn.Linear(features, features)

    def forward(self, x, labels):
        return self.linear(self.norm(x)) * labels[:, None]

batch = 8 * 4
features = 16
shape = (features,)
classes = 5

def get_inputs():
    return [torch.rand(batch, *shape), torch.randint(0, classes, (batch,))]

def get_init_inputs():
    return [features]
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], dict[str, Any]]:
    """The task.py and the kernel.py of the problem."""
    (tmp_path / "problem.py").write_text(PROBLEM)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "problem", raising=False)
    about = describe(tmp_path / "problem.py")
    assert about["sizes"] == {"batch": 32, "classes": 5}, "features are the weights' size"
    assert (about["inputs"], about["dtype"], about["init"]) == (["x", "labels"], "float32", "[16]")
    weights = dict(zip(about["weights"], about["weight_names"], strict=True))
    task: dict[str, Any] = {"__file__": str(tmp_path / "task.py")}
    exec(_task_py(about["inputs"], weights, about["sizes"]), task)
    kernel: dict[str, Any] = {}
    text = _kernel_py(PROBLEM, ast.parse(PROBLEM), about, weights)
    assert "get_inputs" not in text
    exec(text, kernel)
    return task, kernel


def test_a_problem_is_drawn_in_other_sizes_with_the_same_weights(
    modules: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    task, _ = modules
    case = {"batch": 6, "classes": 3, "dtype": "float32"}
    one, same, other = (task["make_inputs"](case, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert (one["x"].shape, int(one["labels"].max()) < 3) == ((6, 16), True)
    assert one["x"].equal(same["x"])
    assert not one["x"].equal(other["x"])
    assert one["linear_weight"].equal(other["linear_weight"])
    work = task["work"](case)
    assert work.flops == 2 * 6 * 16 * 16


def test_the_kernel_begins_as_the_model_and_leaves_its_inputs_alone(
    modules: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    task, kernel = modules
    inputs = task["make_inputs"]({"batch": 6, "classes": 3, "dtype": "float32"}, torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in inputs.items()}
    torch.testing.assert_close(kernel["run"](**inputs), task["reference"](**inputs))
    assert all(inputs[name].equal(value) for name, value in before.items()), "batch norm has running statistics"
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    assert task["reference"](**wide).dtype is torch.float64

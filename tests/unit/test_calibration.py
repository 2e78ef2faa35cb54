"""Tolerances from an honest kernel's own error: honest arithmetic passes with room to spare, poorer fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tests.unit.drafted import task_of
from tilewright.bundled import examples
from tilewright.evaluation.calibration import make_trial
from tilewright.evaluation.comparison import _limits
from tilewright.evaluation.correctness import (
    UNCOMPARED,
    _float32_suffices,
    judge,
    judge_drawn,
    judge_trial,
)
from tilewright.evaluation.results import Status
from tilewright.evaluation.taskcode import TaskCode
from tilewright.task import Backend, Case, Values, load_task

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FIXTURES = Path(__file__).parents[1] / "fixtures"
F32 = torch.float32
SEEDS = range(3)
Outputs = Any


@cache
def task(name: str) -> TaskCode:
    own = [BENCHMARKS / "kernels" / name, FIXTURES / name, *examples().glob(f"*{name}*")]
    return TaskCode(load_task(next(folder for folder in own if folder.is_dir())), Backend.CPU)


CASES: dict[str, list[Case]] = {
    "rmsnorm": [{"M": 9, "N": 200, "dtype": "bfloat16"}, {"M": 1, "N": 1000, "dtype": "bfloat16"}],
    "matmul": [{"M": 33, "N": 17, "K": 190, "dtype": name} for name in ("bfloat16", "float16", "float32")],
    "attention": [{"H": 2, "S": 33, "L": 90, "D": 32, "dtype": name} for name in ("float16", "bfloat16")],
    "softmax": [{"M": 7, "N": 150, "dtype": "float32"}],
    "layernorm": [{"M": 7, "N": 150, "dtype": "bfloat16"}, {"M": 1, "N": 33, "dtype": "float16"}],
    "linear": [{"M": 20, "N": 24, "K": 150, "dtype": "float16"}],
    "rowsum": [{"M": 9, "N": 400, "dtype": "float32"}],
    "affine": [{"M": 20, "N": 24, "dtype": "bfloat16"}],
    "xent": [{"M": 9, "N": 150, "dtype": "float32"}],
    "swiglu": [{"M": 9, "N": 50, "dtype": "float32"}],
    "int4gemm": [{"M": rows, "N": 1024, "K": 256, "dtype": "bfloat16"} for rows in (1, 3)],
    "windowattention": [{"B": 1, "H": 4, "G": 2, "S": 200, "D": 32, "W": 70, "dtype": "bfloat16"}],
}


def approximate(x: torch.Tensor) -> torch.Tensor:
    """Off by up to 2 units in the last place of float32, as fast functions are."""
    return x * (1 + (torch.rand(x.shape) * 4 - 2) * 2.0**-24 * 2)


def in_steps(a: torch.Tensor, b: torch.Tensor, step: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """a @ b over slices of K one after the other, the sum kept in `dtype`; everything else in float32."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for start in range(0, a.shape[1], step):
        part = a[:, start : start + step].to(F32) @ b[start : start + step].to(F32)
        total = (total.to(F32) + part).to(dtype)
    return total


def rms_scale(x: torch.Tensor, eps: float) -> torch.Tensor:
    return approximate(torch.rsqrt(x.to(F32).square().mean(-1, keepdim=True) + eps))


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rounded: bool) -> torch.Tensor:
    scores = q.to(F32) @ k.to(F32).transpose(-1, -2) * (q.shape[-1] ** -0.5 * 1.4426950408889634)
    weights = approximate(torch.exp2(scores - scores.amax(-1, keepdim=True)))
    total = weights.sum(-1, keepdim=True)
    weights = weights.to(v.dtype).to(F32) if rounded else weights
    return (weights @ v.to(F32) / total).to(q.dtype)


def windowed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    """A flash kernel's arithmetic: weights relative to the largest, rounded to the values' dtype, their sum not."""
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    place = torch.arange(q.shape[2])
    far = place[:, None] - place[None, :]
    scores = q.to(F32) @ k.to(F32).transpose(-1, -2) * q.shape[-1] ** -0.5
    scores = scores.masked_fill((far < 0) | (far >= window), float("-inf"))
    weights = approximate(torch.exp(scores - scores.amax(-1, keepdim=True)))
    total = weights.sum(-1, keepdim=True)
    return (weights.to(v.dtype).to(F32) @ v.to(F32) / total).to(q.dtype)


def four_bits(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, rounded: bool) -> torch.Tensor:
    """`rounded`: each weight is rounded once it is scaled, as tensor cores want it."""
    wide = torch.cat([packed & 15, packed >> 4]).to(F32) - 8
    weights = wide * scale.to(F32).repeat_interleave(128, 0)
    return in_steps(x, weights.to(x.dtype) if rounded else weights, 128).to(x.dtype)


def one_pass_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.to(F32)
    mean = wide.mean(-1, keepdim=True)
    variance = wide.square().mean(-1, keepdim=True) - mean.square()
    scale = torch.rsqrt(variance.clamp(min=0) + eps)
    return ((wide - mean) * scale * weight.to(F32) + bias.to(F32)).to(x.dtype)


def rounded_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x.to(F32), x.shape[-1:], None, None, eps).to(x.dtype) * weight + bias


def one_by_one(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(x.shape[0])
    for column in range(x.shape[1]):
        total = total + x[:, column]
    return total


def late_difference(logits: torch.Tensor, targets: torch.Tensor, smoothing: float) -> torch.Tensor:
    top = logits.amax(-1, keepdim=True)
    total = torch.log(approximate(torch.exp(logits - top)).sum(-1)) + top[:, 0]
    picked = logits.gather(1, targets.to(torch.int64)[:, None])[:, 0]
    return total - (1 - smoothing) * picked - smoothing * logits.mean(-1)


HONEST: dict[str, tuple[str, Callable[..., Outputs]]] = {
    "rounded once": ("rmsnorm", lambda x, weight, eps: (x.to(F32) * rms_scale(x, eps) * weight.to(F32)).to(x.dtype)),
    "rounded before the gain": ("rmsnorm", lambda x, weight, eps: (x.to(F32) * rms_scale(x, eps)).to(x.dtype) * weight),
    "in steps of 64": ("matmul", lambda a, b: in_steps(a, b, 64).to(a.dtype)),
    "one term at a time": ("matmul", lambda a, b: in_steps(a, b, 1).to(a.dtype)),
    "backwards": ("matmul", lambda a, b: in_steps(a.flip(1), b.flip(0), 16).to(a.dtype)),
    "weights in float32": ("attention", lambda q, k, v: flash(q, k, v, rounded=False)),
    "weights rounded": ("attention", lambda q, k, v: flash(q, k, v, rounded=True)),
    "by exp2": (
        "softmax",
        lambda x: (e := approximate(torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)))
        * (1 / one_by_one(e)[:, None]),
    ),
    "variance in one pass": ("layernorm", one_pass_norm),
    "norm rounded before the gain": ("layernorm", rounded_norm),
    "epilogue in float32": (
        "linear",
        lambda x, w, bias, scale: (torch.relu(in_steps(x, w, 16) + bias.to(F32)) * scale).to(x.dtype),
    ),
    "epilogue rounded": ("linear", lambda x, w, bias, scale: torch.relu(in_steps(x, w, 16).to(x.dtype) + bias) * scale),
    "sums one by one": ("rowsum", lambda x: (one_by_one(x), one_by_one(x * x))),
    "map in float32": (
        "affine",
        lambda x, gain, shift, low: torch.clamp(
            x.to(F32) * gain.to(F32) + shift.to(F32)[:, None], min=low
        ).to(x.dtype),
    ),
    "map in the inputs' dtype": (
        "affine", lambda x, gain, shift, low: torch.clamp(x * gain + shift[:, None], min=low),
    ),
    "late difference": ("xent", late_difference),
    "scaled weights rounded": ("int4gemm", lambda x, packed, scale: four_bits(x, packed, scale, rounded=True)),
    "scaled weights in float32": ("int4gemm", lambda x, packed, scale: four_bits(x, packed, scale, rounded=False)),
    "weights in a window rounded": ("windowattention", windowed),
    "by division": (
        "swiglu",
        lambda x: (h := x.shape[1] // 2) and x[:, :h] / (1 + approximate(torch.exp(-x[:, :h]))) * x[:, h:],
    ),
}  # fmt: skip


def outputs_of(result: Outputs) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("what", list(HONEST))
def test_honest_arithmetic_passes_with_room_to_spare(what: str) -> None:
    name, function = HONEST[what]
    code = task(name)
    worst = 0.0
    for case in CASES[name]:
        for values in Values:
            for seed in SEEDS:
                trial = make_trial(code, case, seed, values)
                torch.manual_seed(seed)
                outputs = outputs_of(function(**trial.inputs))
                found = judge(code.task, outputs, trial.expected, trial.contract, trial.honest)
                assert found.status is Status.PASSED, f"{case} {values} {seed}: {found.message}"
                for output, wanted, honest in zip(outputs, trial.expected, trial.honest, strict=True):
                    limit, _ = _limits(wanted, output.dtype, code.task.file.tolerance, honest)
                    error = (output.to(torch.float64) - wanted).abs()
                    worst = max(worst, float(torch.where(error > 0, error / limit, 0.0).max()))
    print(f"{what}: uses {worst:.2f} of what an element is allowed")
    assert worst < 0.85


@pytest.mark.slow
def test_rows_of_other_scales_pass_where_no_scales_were_at_hand() -> None:
    """A timed call's outputs: the first rows of a window see few keys, and are far larger than the last."""
    code = task("windowattention")
    case: Case = {"B": 1, "H": 4, "G": 2, "S": 2048, "D": 64, "W": 2048, "dtype": "bfloat16"}
    inputs = code.inputs(case, seed=6)
    contract = code.contract(case, inputs)
    output = windowed(**inputs)
    assert judge(code.task, [output], code.expected(case, inputs), contract).status is Status.WRONG_VALUES
    found = judge_drawn(code, case, inputs, [output], contract)
    assert found.status is Status.PASSED, found.message
    assert judge_drawn(code, case, inputs, [output * 1.02], contract).status is Status.WRONG_VALUES


def without_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a = a.clone()
    a[:, -1] = 0
    return in_steps(a, b, 64).to(a.dtype)


def tfloat32(x: torch.Tensor) -> torch.Tensor:
    bits = x.view(torch.int32)
    return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(F32)


SUBNORMAL = 2.0**-14
"""Below it float16 has fewer and fewer digits, down to 2^-24."""
NARROW: list[tuple[str, Case]] = [
    ("matmul", CASES["matmul"][1]),
    ("rmsnorm", {"M": 9, "N": 200, "dtype": "float16"}),
    ("attention", CASES["attention"][0]),
    ("layernorm", CASES["layernorm"][1]),
    ("linear", CASES["linear"][0]),
]


@pytest.mark.parametrize(("name", "case"), NARROW)
def test_float16_values_among_the_subnormals_are_drawn_and_may_not_be_flushed(name: str, case: Case) -> None:
    """Of each tensor, in some draw. Honest arithmetic passes on them, and fails where it takes them for 0."""
    code, seen = task(name), set()
    honest = [function for task, function in HONEST.values() if task == name]
    for seed in range(8):
        trial = make_trial(code, case, seed, Values.TINY)
        assert trial.values is Values.TINY
        tensors = {key: one for key, one in trial.inputs.items() if isinstance(one, torch.Tensor)}
        sizes = {key: one.to(F32).abs() for key, one in tensors.items()}
        seen |= {key for key, size in sizes.items() if 0.3 < float((size < SUBNORMAL).to(F32).mean()) < 0.9}
        flushed = {key: torch.where(sizes[key] < SUBNORMAL, 0.0, one) for key, one in tensors.items()}
        for function in honest:
            torch.manual_seed(seed)
            for inputs, status in ((trial.inputs, Status.PASSED), (trial.inputs | flushed, Status.WRONG_VALUES)):
                outputs = outputs_of(function(**inputs))
                found = judge(code.task, outputs, trial.expected, trial.contract, trial.honest)
                assert found.status is status, f"{seed}: {found.message}"
    assert seen == tensors.keys()


POOR: dict[str, tuple[str, Callable[..., Outputs]]] = {
    "bfloat16 accumulator": ("matmul", lambda a, b: in_steps(a, b, 16, torch.bfloat16).to(a.dtype)),
    "float16 accumulator": ("matmul", lambda a, b: in_steps(a, b, 1, torch.float16).to(a.dtype)),
    "one term dropped": ("matmul", without_one),
    "scaled by 1.02": ("matmul", lambda a, b: (in_steps(a, b, 64) * 1.02).to(a.dtype)),
    "mean over one too few": (
        "rmsnorm",
        lambda x, weight, eps: (
            x.to(F32) * rms_scale(x, eps) * (1 - 1 / x.shape[1]) ** 0.5 * weight.to(F32) * 1.02
        ).to(x.dtype),
    ),
    "no eps": ("rmsnorm", lambda x, weight, eps: (x.to(F32) * rms_scale(x, 0.0) * weight.to(F32)).to(x.dtype)),
    "softmax in float16": ("softmax", lambda x: torch.exp((x - x.amax(-1, keepdim=True)).half()).float()
                           / torch.exp(x - x.amax(-1, keepdim=True)).sum(-1, keepdim=True)),
    "no maximum subtracted": ("softmax", lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)),
    "sums in float16": ("rowsum", lambda x: (one_by_one(x.half()).float(), one_by_one(x * x))),
    "squares in tfloat32": ("rowsum", lambda x: (one_by_one(x), one_by_one(tfloat32(x).square()))),
    "bias twice": ("linear", lambda x, w, bias, scale: (torch.relu(in_steps(x, w, 16) + 2 * bias) * scale).to(x.dtype)),
}  # fmt: skip


@pytest.mark.parametrize("what", list(POOR))
def test_poor_arithmetic_fails_on_every_seed(what: str) -> None:
    name, function = POOR[what]
    code = task(name)
    for case in CASES[name]:
        if what == "float16 accumulator" and case["dtype"] == "float32":
            continue
        for seed in range(10):
            assert any(fails(code, case, seed, values, function) for values in Values), f"{case} {seed}"


def fails(code: TaskCode, case: Case, seed: int, values: Values, function: Callable[..., Outputs]) -> bool:
    trial = make_trial(code, case, seed, values)
    return judge_trial(code, case, trial, outputs_of(function(**trial.inputs))).status is not Status.PASSED


BACKWARD = """
import torch

from tilewright.task import Work


def make_inputs(case, generator):
    shapes = {"x": (case["M"], case["N"]), "w": (case["N"],), "dy": (case["M"], case["N"])}
    return {
        name: torch.randn(shape, generator=generator, device=generator.device) for name, shape in shapes.items()
    }


def reference(x, w, dy):
    mean, var = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)
    rstd = (var + 1e-5).rsqrt()
    xhat, wdy = (x - mean) * rstd, w * dy
    return (wdy - wdy.mean(-1, keepdim=True) - xhat * (xhat * wdy).mean(-1, keepdim=True)) * rstd


def work(case):
    return Work(8 * case["N"], case["N"], "float32")
"""


def by_sums(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    """Honest, in another order."""
    size = x.shape[-1]
    centred = x - x.sum(-1, keepdim=True) / size
    rstd = 1 / torch.sqrt((centred * centred).sum(-1, keepdim=True) / size + 1e-5)
    xhat, wdy = centred * rstd, w * dy
    return (wdy - (xhat * (xhat * wdy).sum(-1, keepdim=True) + wdy.sum(-1, keepdim=True)) / size) * rstd


def by_torch(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return torch.autograd.functional.vjp(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], w), x, dy)[1]


@pytest.fixture
def backward(tmp_path: Path) -> TaskCode:
    (tmp_path / "task.toml").write_text(SCALE_TOML.replace('dtype = "float32"', "M = 4"))
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    (tmp_path / "task.py").write_text(BACKWARD)
    return TaskCode(load_task(tmp_path), Backend.CPU)


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_where_float32_cannot_be_right_no_draw_refuses_an_honest_kernel(backward: TaskCode, rows: int) -> None:
    """Of two values a row, a layer norm's gradient is a difference of equal numbers, and mostly rounding."""
    uncompared = missed = 0
    for seed in range(20):
        case: Case = {"M": rows, "N": 2}
        trial = make_trial(backward, case, seed)
        for function in (by_sums, by_torch):
            output = function(**trial.inputs)
            missed += judge(backward.task, [output], trial.expected, trial.contract, trial.honest).status != "passed"
            found = judge_trial(backward, case, trial, [output])
            assert found.status is Status.PASSED, found.message
            uncompared += found.message == UNCOMPARED
    assert uncompared == missed > 0


def test_where_float32_can_be_right_a_wrong_kernel_is_refused(backward: TaskCode) -> None:
    case: Case = {"M": 4, "N": 40}
    for seed in range(5):
        trial = make_trial(backward, case, seed)
        assert judge_trial(backward, case, trial, [by_torch(**trial.inputs)]).message == ""
        assert not any(fails(backward, case, seed, values, by_torch) for values in Values)
        assert fails(backward, case, seed, Values.DRAWN, lambda x, w, dy: by_torch(x, w, dy) * 1.001)
        assert fails(backward, case, seed, Values.DRAWN, lambda x, w, dy: by_torch(x, torch.ones_like(w), dy))


def test_a_float64_kernel_is_compared(backward: TaskCode) -> None:
    case: Case = {"M": 4, "N": 40}
    drawn = {name: value.double() for name, value in backward.inputs(case, 1).items()}
    trial = make_trial(backward, case, 1, drawn=drawn)
    assert judge_trial(backward, case, trial, [trial.expected[0] * (1 + 1e-8)]).status is Status.WRONG_VALUES


@pytest.mark.parametrize("name", list(CASES))
def test_usual_sizes_and_classes_are_compared(name: str) -> None:
    code = task(name)
    for case in CASES[name]:
        for values in Values:
            assert _float32_suffices(code, case, make_trial(code, case, 1, values)), f"{case} {values}"


TF32 = dataclasses.replace(
    task("matmul").task, file=task("matmul").task.file.model_copy(update={"precision": "tfloat32"})
)


def through(rounding: Callable[[torch.Tensor], torch.Tensor], a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return in_steps(rounding(a), rounding(b), 16)


def test_tfloat32_passes_where_a_task_declares_it_and_bfloat16_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    code, case = task("matmul"), CASES["matmul"][2]
    monkeypatch.setattr(code, "task", TF32)
    for values in Values:
        for seed in range(3):
            trial = make_trial(code, case, seed, values)
            assert fails(code, case, seed, values, lambda a, b: through(tfloat32, a, b)) is False, f"{values} {seed}"
            exact = trial.honest[0] is not None and trial.honest[0].exact
            assert exact == (trial.values is Values.INTEGERS)
    for seed in range(8):
        assert fails(code, case, seed, Values.DRAWN, lambda a, b: through(lambda x: x.bfloat16().to(F32), a, b))
        assert fails(code, case, seed, Values.DRAWN, lambda a, b: in_steps(a, b, 1, torch.float16).to(F32))
        assert fails(code, case, seed, Values.DRAWN, lambda a, b: through(tfloat32, a, b) * 1.01)


def test_a_small_wrong_tile_is_found_beside_large_elements() -> None:
    """Sixteen elements of a million, each right to 1% of the output's rms: no norm over all shows them."""
    code = task("affine")
    case = {"M": 1024, "N": 1024, "dtype": "float32"}
    trial = make_trial(code, case, 3, Values.SPIKE)
    assert trial.values is Values.SPIKE
    output = trial.expected[0].to(F32)
    output[512, 64:80] *= 1.01
    found = judge(code.task, [output], trial.expected, trial.contract, trial.honest)
    assert found.status is Status.WRONG_VALUES
    assert (found.rel_l2_error or 0.0) < 2e-5
    assert "512..512 of 1024 x 64..79 of 1024" in found.message


def test_where_float32_is_exact_one_rounding_is_all_that_is_allowed() -> None:
    code, case = task("matmul"), CASES["matmul"][0]
    trial = make_trial(code, case, 5, Values.INTEGERS)
    assert trial.honest[0] is not None
    assert trial.honest[0].exact
    right = trial.expected[0].to(torch.bfloat16)
    assert judge(code.task, [right], trial.expected, trial.contract, trial.honest).status is Status.PASSED
    wrong = right.clone()
    wrong[3, 3] = torch.nextafter(
        torch.nextafter(wrong[3, 3], torch.tensor(1e9).bfloat16()), torch.tensor(1e9).bfloat16()
    )
    assert judge(code.task, [wrong], trial.expected, trial.contract, trial.honest).status is Status.WRONG_VALUES


GELU = "return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))"


def test_what_float32_loses_to_the_difference_of_large_terms_is_honest(tmp_path: Path) -> None:
    """1 + tanh(x) is next to nothing at -4, where float32 keeps few of its digits; another formula is still seen."""
    (tmp_path / "task.toml").write_text(SCALE_TOML)
    (tmp_path / "task.py").write_text(SCALE_TASK.replace("return x * factor", GELU))
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    case: Case = {"N": 2304, "dtype": "float32"}
    for values in Values:
        for seed in range(6):
            trial = make_trial(code, case, seed, values)
            for approximate_by, status in (("tanh", Status.PASSED), ("none", Status.WRONG_VALUES)):
                output = torch.nn.functional.gelu(trial.inputs["x"], approximate=approximate_by)
                found = judge(code.task, [output], trial.expected, trial.contract, trial.honest)
                if trial.values is Values.DRAWN or status is Status.PASSED:
                    assert found.status is status, f"{values} {seed} {approximate_by}: {found.message}"


EIGHT_TERMS = """
import torch


def make_inputs(case, generator):
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(torch.bfloat16)
    return {"x": draw(8, case["N"], 64), "w": draw(8)}


def reference(x, w):
    total = x[0] * w[0]
    for row in range(1, 8):
        total = total + x[row] * w[row]
    return total


def work(case):
    return None
"""


def test_the_reference_in_its_own_dtype_is_honest_where_float32_is_exact(tmp_path: Path) -> None:
    """It rounds fifteen times; a kernel that leaves one term of eight out is still seen."""
    (tmp_path / "task.toml").write_text(SCALE_TOML)
    (tmp_path / "kernel.py").write_text(SCALE_KERNEL)
    (tmp_path / "task.py").write_text(EIGHT_TERMS)
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    case: Case = {"N": 512, "dtype": "bfloat16"}
    for seed in range(5):
        trial = make_trial(code, case, seed, Values.INTEGERS)
        assert trial.honest[0] is not None
        assert trial.honest[0].exact
        eager = code.expected(case, trial.inputs, None)
        assert judge(code.task, eager, trial.expected, trial.contract, trial.honest).status is Status.PASSED
        x, w = trial.inputs["x"][:-1].to(F32), trial.inputs["w"][:-1].to(F32)
        short = [torch.einsum("kmn,k->mn", x, w).to(torch.bfloat16)]
        assert judge(code.task, short, trial.expected, trial.contract, trial.honest).status is Status.WRONG_VALUES


def test_an_output_of_few_elements_may_err_as_its_reference_does(tmp_path: Path) -> None:
    """The reference itself, rounded after each operation: errors of one or six elements do not average out, and four
    whole numbers may all lie where every output is small."""
    code = task_of(tmp_path, "return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))")
    for rows, columns, seeds in ((1, 1, 40), (4, 1, 130), (2, 3, 40)):
        for seed in range(seeds):
            for values in (Values.DRAWN, Values.CANCELLING, Values.INTEGERS):
                trial = make_trial(code, {"M": rows, "N": columns, "dtype": "bfloat16"}, seed, values)
                x = trial.inputs["x"]
                output = 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
                found = judge(code.task, [output], trial.expected, trial.contract, trial.honest)
                assert found.status is Status.PASSED, (rows, columns, seed, found.message)


def test_a_reference_that_has_no_arithmetic_in_its_own_dtype_still_has_shapes(tmp_path: Path) -> None:
    (tmp_path / "task.toml").write_text(
        'name = "eight"\nentry = "kernel:run"\neditable = ["kernel.py"]\nfrontend = "torch"\n[[cases]]\nM = 16\n'
    )
    (tmp_path / "kernel.py").write_text("def run(a, b):\n    return a\n")
    (tmp_path / "task.py").write_text(
        "import torch\nfrom tilewright.task import Work\n\n\ndef make_inputs(case, generator):\n"
        '    draw = lambda: torch.randn(case["M"], 32, generator=generator).to(torch.float8_e4m3fn)\n'
        '    return {"a": draw(), "b": draw()}\n\n\n'
        "def reference(a, b):\n    return (a @ b.t()).to(torch.float32)\n\n\n"
        'def work(case):\n    return Work(bytes=8, flops=8, dtype="float32")\n'
    )
    code = TaskCode(load_task(tmp_path), Backend.CPU)
    (output,) = code.contract({"M": 16}, code.inputs({"M": 16}, 1))
    assert (output.shape, output.dtype) == ((16, 16), torch.float32)

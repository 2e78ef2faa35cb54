"""Tables of operations: what an expression in a kernel of one form computes, beside its reference."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Sequence
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

TILE = 16
M, N, K = 16, 32, 32

LOAD = "ct.load({0}, index=(i,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)"
ELEMENTS = f"""
@ct.kernel
def kernel(x, y, out, T: ct.Constant[int]):
    i = ct.bid(0)
    a, b = {LOAD.format("x")}, {LOAD.format("y")}
    ct.store(out, index=(i,), tile=({{}}).astype(out.dtype))
"""
ROWS = """
@ct.kernel
def kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(row,), tile=({}).astype(out.dtype))
"""
ATOMIC = """
@ct.kernel
def kernel(x, keys, out, T: ct.Constant[int]):
    i = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.{}(out, ct.gather(keys, i, padding_value=-1), ct.gather(x, i), memory_order=ct.MemoryOrder.RELAXED)
"""
PRODUCT = """
@ct.kernel
def kernel(x, y, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.{})
    for step in range(ct.num_tiles(x, axis=1, shape=(M, K))):
        a = ct.load(x, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        b = ct.load(y, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma({}, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))
"""


def compiled(form: str, *parts: str) -> Any:
    """A kernel of some form. cuTile reads its source, which lies in no file."""
    source = form.format(*parts)
    name = f"<{' '.join(parts)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"ct": ct, "__name__": __name__}
    exec(compile(source, name, "exec"), scope)
    return scope["kernel"]


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> Any:
    ct.launch(torch.cuda.current_stream(), grid, kernel, arguments)


def elements(
    expression: str,
    inputs: Callable[[Case, torch.Generator], Sequence[torch.Tensor]],
    reference: Callable[..., Any],
    out: torch.dtype | None = None,
    cases: tuple[Case, ...] = ({},),
    tolerance: tuple[float, float] | None = None,
    covers: str = "",
) -> Example:
    """An expression of the elements `a` of x and `b` of y."""
    kernel = compiled(ELEMENTS, expression)

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = torch.empty(x.shape, dtype=out or x.dtype, device=x.device)
        launch(kernel, (ct.cdiv(x.shape[0], TILE),), x, y, result, TILE)
        return result

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        return dict(zip("xy", inputs(case, generator), strict=True))

    return Example(expression, run, make, lambda x, y: reference(x, y), cases, tolerance, covers=covers)


def rows(expression: str, reference: Callable[[torch.Tensor], torch.Tensor], out: torch.dtype) -> Example:
    """An expression of each row `a` of 16 elements, NaN among them."""
    kernel = compiled(ROWS, expression)

    def run(x: torch.Tensor) -> torch.Tensor:
        result = torch.empty(x.shape[0], dtype=out, device=x.device)
        launch(kernel, (x.shape[0],), x, result, TILE)
        return result

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        x = normal(case, generator, 2, TILE)
        x[0, 5] = x[0, 9] = math.nan
        return {"x": x}

    return Example(expression, run, make, reference, ({},))


def atomic(name: str, start: int, step: Callable[[int, int], int], *dtypes: str) -> Example:
    """An atomic operation on integers, by keys. `step` gives what it leaves."""
    kernel = compiled(ATOMIC, name)

    def run(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        result = torch.full((7,), _fitting(start, x.dtype), dtype=x.dtype, device=x.device)
        launch(kernel, (ct.cdiv(x.shape[0], TILE),), x, keys, result, TILE)
        return result

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        x = whole_numbers(case, generator)[0]
        return {"x": x, "keys": (torch.arange(len(x)) % 7).to(device=generator.device, dtype=torch.int32)}

    def reference(x: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        left = [_fitting(start, x.dtype)] * 7
        for value, key in zip(x.tolist(), keys.tolist(), strict=True):
            left[key] = _fitting(step(left[key], value), x.dtype)
        return torch.tensor(left, dtype=x.dtype)

    return Example(name, run, make, reference, tuple({"dtype": dtype} for dtype in dtypes))


def matmul(
    acc: str, operands: str, out: torch.dtype, tolerance: tuple[float, float], *dtypes: str, covers: str = ""
) -> Example:
    """A product of ragged matrices, accumulated in `acc`."""
    kernel = compiled(PRODUCT, acc, operands)

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = torch.empty(x.shape[0], y.shape[1], dtype=out, device=x.device)
        launch(kernel, (ct.cdiv(x.shape[0], M), ct.cdiv(y.shape[1], N)), x, y, result, M, N, K)
        return result

    def make(case: Case, generator: torch.Generator) -> dict[str, Any]:
        if "int" not in case["dtype"]:
            return {"x": normal(case, generator, 37, 70), "y": normal(case, generator, 70, 50)}
        dtype = getattr(torch, case["dtype"])
        low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max + 1
        shapes = {"x": (37, 70), "y": (70, 50)}
        return {name: integers(generator, low, high, *shape, dtype=dtype) for name, shape in shapes.items()}

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y if x.is_floating_point() else x.long() @ y.long()

    name = f"mma({operands}) of {acc} {dtypes[0]}"
    return Example(name, run, make, reference, tuple({"dtype": dtype} for dtype in dtypes), tolerance, covers=covers)


def _fitting(value: int, dtype: torch.dtype) -> int:
    """A whole number, wrapped to a dtype."""
    low, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).bits
    return (value - low) % 2**bits + low


def whole_numbers(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    """Numbers of every size that the dtype holds, the extremes among them."""
    dtype = getattr(torch, case["dtype"])
    low, high, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).bits
    tensors = []
    for extremes in ((high, high, low + 1), (2, high, 3)):
        drawn = integers(generator, 0, 2**62, 37, dtype=torch.int64)
        shifts = integers(generator, 0, bits, 37, dtype=torch.int64)
        values = [
            (4 * value + 3) % 2**bits >> shift for value, shift in zip(drawn.tolist(), shifts.tolist(), strict=True)
        ]
        values = [value if low == 0 or not number % 2 else -(value >> 1) for number, value in enumerate(values)]
        fitting = [max(value if value <= high else value - 2**bits, -high) for value in (*extremes, *values)]
        tensors.append(torch.tensor(fitting, dtype=dtype).to(generator.device))
    return tensors


def numbers(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    return [normal(case, generator, 40), normal(case, generator, 40)]


def positive(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    return [normal(case, generator, 40).abs() + 0.5, normal(case, generator, 40)]


def powers(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    return [normal(case, generator, 40).abs() + 0.5, integers(generator, -5, 6, 40, dtype=torch.int32)]


def tenths(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.arange(1, 41, device=generator.device).float() / 10, torch.full((40,), 0.1, device=generator.device)]


def with_nan(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    x, y = numbers(case, generator)
    x[5] = x[9] = y[7] = y[22] = math.nan
    return [x, y]


def subnormal(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    x = integers(generator, -4096, 4097, 40, dtype=torch.float32) * 2.0**-100 * 2.0**-36
    return [x, x]


def whole(case: Case, generator: torch.Generator) -> list[torch.Tensor]:
    return [integers(generator, -(2**31), 2**31, 40, dtype=torch.int32) for _ in "xy"]


def by_integers(step: Callable[[int, int], int]) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A reference for integers of any dtype, by Python's."""

    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pairs = zip(x.tolist(), y.tolist(), strict=True)
        return torch.tensor([_fitting(step(a, b), x.dtype) for a, b in pairs], dtype=x.dtype)

    return reference


FUNCTIONS = (
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2"),
    *("log", "log2", "sqrt", "rsqrt", "ceil", "floor", "abs"),
)
DTYPES = tuple({"dtype": name} for name in ("float16", "bfloat16", "float32", "float64"))
SIGNED = tuple({"dtype": f"int{bits}"} for bits in (8, 16, 32, 64))
INTEGERS = (*SIGNED, *({"dtype": f"uint{bits}"} for bits in (8, 16, 32, 64)))
DIVISOR = "ct.where(b == 0, ct.ones((T,), b.dtype), b)"
F32, F8 = torch.float32, torch.float8_e4m3fn
EXACT = (0.0, 0.0)

EXAMPLES = (
    *(
        elements(f"ct.{name}(a)", positive, lambda x, y, name=name: getattr(torch, name)(x))  # type: ignore[misc]
        for name in FUNCTIONS
    ),
    elements("a * 2.5 + b", numbers, lambda x, y: x * 2.5 + y, cases=DTYPES, covers="T1, tails"),
    elements("ct.isnan(a)", with_nan, lambda x, y: x.isnan(), torch.int32),
    elements("ct.atan2(a, b)", numbers, torch.atan2),
    elements("a**b", positive, torch.pow, tolerance=(1e-4, 1e-4)),
    elements("a**b + a**3", powers, lambda x, y: x**y + x**3, tolerance=(1e-4, 1e-4)),
    # The quotient is rounded to float32 before it is cut: 0.9 // 0.1 depends on it.
    elements("a // b", tenths, lambda x, y: (x.float() / y.float()).floor()),
    elements("a % b", tenths, torch.remainder),
    elements("ct.maximum(a, b) + ct.minimum(a, b)", with_nan, lambda x, y: torch.fmax(x, y) + torch.fmin(x, y)),
    elements(
        "ct.isnan(ct.maximum(a, b, propagate_nan=True))", with_nan, lambda x, y: x.isnan() | y.isnan(), torch.int32
    ),
    elements("ct.mul(a, 0.5) * 1e20", subnormal, lambda x, y: x * 0.5e20, tolerance=(0.0, 1e-5)),
    elements("ct.minimum(ct.maximum(a * 60.0, -448.0), 448.0)", numbers, lambda x, y: (x * 60).clamp(-448, 448), F8,
             ({}, {"dtype": "bfloat16"})),
    elements("((ct.bitcast(a, ct.int32) >> 23) & 0xFF) - 127", numbers,
             lambda x, y: torch.frexp(x).exponent - 1, torch.int32),
    elements("ct.unpack_from_bytes(ct.pack_to_bytes(a), ct.uint32) >> 8", whole,
             lambda x, y: (x.long() % 2**32) >> 8, torch.int64),
    elements(f"a // {DIVISOR}", whole_numbers, by_integers(lambda a, b: a // (b or 1)), cases=SIGNED),
    elements(f"a % {DIVISOR}", whole_numbers, by_integers(lambda a, b: a % (b or 1)), cases=INTEGERS),
    elements(f"ct.cdiv(a, {DIVISOR})", whole_numbers, by_integers(lambda a, b: -(-a // (b or 1))), cases=INTEGERS),
    elements("ct.maximum(a, b)", whole_numbers, by_integers(max), cases=INTEGERS),
    elements("a > b", whole_numbers, by_integers(lambda a, b: int(a > b)), cases=INTEGERS),
    elements("((a * b + (a >> 1)) ^ ~b) << 1", whole_numbers,
             by_integers(lambda a, b: ((a * b + (a >> 1)) ^ ~b) << 1), cases=INTEGERS),
    rows("ct.max(a, axis=1)", lambda x: torch.fmax(x, torch.full_like(x, -math.inf)).amax(1), F32),
    rows("ct.argmax(a, axis=1, propagate_nan=True)", lambda x: x.argmax(1), torch.int32),
    rows("ct.isnan(ct.max(a, axis=1, propagate_nan=True))", lambda x: x.isnan().any(1), torch.int32),
    atomic("atomic_add", 1, lambda a, b: a + b, "int32", "uint32", "int64"),
    atomic("atomic_max", 0, max, "int32", "uint32", "uint64"),
    atomic("atomic_min", -1, min, "int32", "uint32", "uint64"),
    atomic("atomic_and", -1, lambda a, b: a & b, "int32"),
    atomic("atomic_or", 0, lambda a, b: a | b, "int32"),
    atomic("atomic_xor", 0, lambda a, b: a ^ b, "uint32"),
    matmul("float32", "a, b", torch.bfloat16, (4e-2, 4e-2), "bfloat16", "float16", covers="T3, matmul"),
    matmul("float32", "a, b", torch.bfloat16, (1e-1, 2e-2), "float8_e4m3fn", "float8_e5m2", covers="T6, fp8 GEMM"),
    matmul("float32", "a.astype(ct.tfloat32), b.astype(ct.tfloat32)", F32, (3e-2, 3e-2), "float32"),
    matmul("float64", "a, b", torch.float64, (1e-12, 1e-12), "float64"),
    matmul("float16", "a, b", torch.float16, (3e-1, 3e-2), "float16"),
    matmul("int32", "a, b", torch.int32, EXACT, "int8", "uint8"),
)  # fmt: skip

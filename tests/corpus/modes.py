"""The options and corners of operations: rounding, NaN, subnormals, unsigned integers, memory orders, hints."""

from __future__ import annotations

import math
from typing import Any

import cuda.tile as ct
import torch

from tests.corpus.example import Case, Example, integers, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
TILE = 16


@ct.kernel
def power_kernel(x, exponents, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    n = ct.load(exponents, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(out, index=(i,), tile=a**n + a**3)


def integer_power(x: torch.Tensor, exponents: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), power_kernel, (x, exponents, out, TILE))
    return out


@ct.kernel
def float_division_kernel(x, y, quotients, remainders, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    b = ct.load(y, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(quotients, index=(i,), tile=a // b)
    ct.store(remainders, index=(i,), tile=a % b)


def float_division(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    quotients, remainders = torch.empty_like(x), torch.empty_like(x)
    arguments = (x, y, quotients, remainders, TILE)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), float_division_kernel, arguments)
    return quotients, remainders


def float_division_reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The quotient is rounded to float32 before it is cut: 0.9 // 0.1 depends on it."""
    return (x.float() / y.float()).floor(), torch.remainder(x, y)


@ct.kernel
def integer_kernel(x, y, quotients, remainders, upper, larger, above, wrapped, T: Size, SIGNED: ct.Constant[bool]):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    b = ct.load(y, index=(i,), shape=(T,), padding_mode=ZERO)
    divisor = ct.where(b == 0, ct.ones((T,), b.dtype), b)
    if SIGNED:
        ct.store(quotients, index=(i,), tile=a // divisor)
    else:  # `//` of unsigned integers does not compile
        ct.store(quotients, index=(i,), tile=ct.cdiv(a - a % divisor, divisor))
    ct.store(remainders, index=(i,), tile=a % divisor)
    ct.store(upper, index=(i,), tile=ct.cdiv(a, divisor))
    ct.store(larger, index=(i,), tile=ct.maximum(a, b))
    ct.store(above, index=(i,), tile=(a > b).astype(ct.int32))
    ct.store(wrapped, index=(i,), tile=(a * b + (a >> 1)) ^ ~b)


def integer_arithmetic(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    quotients, remainders, upper, larger, wrapped = (torch.empty_like(x) for _ in range(5))
    above = torch.empty(x.shape, dtype=torch.int32, device=x.device)
    arguments = (x, y, quotients, remainders, upper, larger, above, wrapped, TILE, x.dtype.is_signed)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), integer_kernel, arguments)
    return quotients, remainders, upper, larger, above, wrapped


def integer_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    """Numbers of every size that the dtype holds, the extremes among them."""
    dtype = getattr(torch, case["dtype"])
    low, high, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).max, torch.iinfo(dtype).bits
    tensors = []
    for extremes in ((high, high, low + 1), (2, high, 3)):
        drawn = integers(generator, 0, 2**62, 37, dtype=torch.int64)
        shifts = integers(generator, 0, bits, 37, dtype=torch.int64)
        values = [
            (4 * value + 3) % 2**bits >> shift for value, shift in zip(*map(_listed, (drawn, shifts)), strict=True)
        ]
        values = [value if low == 0 or not number % 2 else -(value >> 1) for number, value in enumerate(values)]
        fitting = [max(value if value <= high else value - 2**bits, -high) for value in (*extremes, *values)]
        tensors.append(torch.tensor(fitting, dtype=dtype).to(generator.device))
    return {"x": tensors[0], "y": tensors[1]}


def _listed(tensor: torch.Tensor) -> list[int]:
    return [int(value) for value in tensor.tolist()]


def integer_reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    pairs = list(zip(_listed(x), _listed(y), strict=True))
    low, bits = torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).bits
    divided = [(a, b or 1) for a, b in pairs]
    rows: list[list[int]] = [
        [a // b for a, b in divided],
        [a % b for a, b in divided],
        [-(-a // b) for a, b in divided],
        [max(a, b) for a, b in pairs],
        [int(a > b) for a, b in pairs],
        [(a * b + (a >> 1)) ^ ~b for a, b in pairs],
    ]
    wrapped = [[(value - low) % 2**bits + low for value in row] for row in rows]
    made = [torch.tensor(row, dtype=x.dtype).to(x.device) for row in wrapped]
    return (*made[:4], made[4].to(torch.int32), made[5])


@ct.kernel
def rounding_kernel(x, y, down, up, cut, sums, T: Size):
    """float64 to float32 in three directions, and a sum of float32 cut."""
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(down, index=(i,), tile=a.astype(ct.float32, rounding_mode=ct.RoundingMode.RM))
    ct.store(up, index=(i,), tile=a.astype(ct.float32, rounding_mode=ct.RoundingMode.RP))
    ct.store(cut, index=(i,), tile=a.astype(ct.float32, rounding_mode=ct.RoundingMode.RZ))
    b = ct.load(y, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(sums, index=(i,), tile=ct.add(b, 1024.0, rounding_mode=ct.RoundingMode.RZ))


def rounding(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    outs = tuple(torch.empty(x.shape, dtype=torch.float32, device=x.device) for _ in range(4))
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), rounding_kernel, (x, y, *outs, TILE))
    return outs


def rounding_reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    def towards(value: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        near = value.float()
        over = (near.double() - value).abs() > 0
        wrong = over & ((near.double() > value) != (limit > value))
        return torch.where(wrong, torch.nextafter(near, limit.float()), near)

    low, high = torch.full_like(x, -math.inf), torch.full_like(x, math.inf)
    total = y + 1024.0
    return towards(x, low), towards(x, high), towards(x, torch.zeros_like(x)), towards(total, torch.zeros_like(x))


@ct.kernel
def subnormal_kernel(x, kept, flushed, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(kept, index=(i,), tile=ct.mul(a, 0.5) * 1e20)
    ct.store(flushed, index=(i,), tile=ct.mul(a, 0.5, flush_to_zero=True) * 1e20)


def subnormals(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    kept, flushed = torch.empty_like(x), torch.empty_like(x)
    arguments = (x, kept, flushed, TILE)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), subnormal_kernel, arguments)
    return kept, flushed


def subnormal_reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    least = 2.0**-126
    half = torch.where(x.abs() < least, 0.0, x) * 0.5
    return x * 0.5e20, torch.where(half.abs() < least, 0.0, half) * 1e20


@ct.kernel
def nan_kernel(x, y, quiet, loud, tops, T: Size):
    """NaN left out by default, and passed on where asked for."""
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ZERO)
    b = ct.load(y, index=(row, 0), shape=(1, T), padding_mode=ZERO)
    ct.store(quiet, index=(row, 0), tile=ct.maximum(a, b) + ct.minimum(a, b))
    spread = ct.maximum(a, b, propagate_nan=True)
    ct.store(loud, index=(row, 0), tile=ct.where(ct.isnan(spread), -99.0, spread))
    first = ct.argmax(a, axis=1, propagate_nan=True).astype(ct.float32)
    top = ct.max(a, axis=1, propagate_nan=True)
    ct.store(tops, index=(row, 0), tile=ct.max(a, axis=1, keepdims=True))
    ct.store(tops, index=(row, 1), tile=first[:, None])
    ct.store(tops, index=(row, 2), tile=ct.where(ct.isnan(top), -99.0, top)[:, None])


def nan_rules(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows of 16."""
    quiet, loud = torch.empty_like(x), torch.empty_like(x)
    tops = torch.empty(x.shape[0], 3, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), nan_kernel, (x, y, quiet, loud, tops, TILE))
    return quiet, loud, tops


def nan_inputs(case: Case, generator: torch.Generator) -> dict[str, Any]:
    x, y = normal(case, generator, 2, TILE), normal(case, generator, 2, TILE)
    x[0, 5] = x[0, 9] = y[0, 7] = y[1, 2] = math.nan
    return {"x": x, "y": y}


def nan_reference(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    low = torch.full_like(x, -math.inf)
    tops = torch.stack((torch.fmax(x, low).amax(1), x.argmax(1).double(), x.amax(1).nan_to_num(-99.0)), dim=1)
    return torch.fmax(x, y) + torch.fmin(x, y), torch.maximum(x, y).nan_to_num(-99.0), tops


@ct.kernel
def unsigned_extremes_kernel(x, low, high, T: Size):
    i = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    inside = i < x.shape[0]
    place = ct.where(inside, 0, -1)
    a = ct.gather(x, i)
    ct.atomic_min(low, place, a)
    ct.atomic_max(high, place, a)


def unsigned_extremes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    low = torch.full((1,), torch.iinfo(x.dtype).max, dtype=x.dtype, device=x.device)
    high = torch.zeros(1, dtype=x.dtype, device=x.device)
    arguments = (x, low, high, TILE)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), unsigned_extremes_kernel, arguments)
    return low, high


@ct.kernel
def hints_kernel(a, b, out, T: Size):
    """A transposed sum of products of whole tiles, with everything that a load and a store can be told."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((T, T), ct.float32)
    for step in range(ct.num_tiles(a, axis=0, shape=(T, T), order="F")):
        left = ct.load(a, index=(step, i), shape=(T, T), order="F", check_bounds=False, latency=2)
        right = ct.load(b, index=(step, j), shape=(T, T), allow_tma=False, check_bounds=False)
        total = ct.mma(left.transpose(), right, total, use_fast_acc=True)
    view = out.tiled_view((T, T))
    view.store((i, j), total, latency=1, allow_tma=False, check_bounds=False)


def hinted_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Sizes are multiples of 16."""
    out = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    grid = (out.shape[0] // TILE, out.shape[1] // TILE)
    ct.launch(torch.cuda.current_stream(), grid, hints_kernel, (a, b, out, TILE))
    return out


@ct.kernel
def relay_kernel(x, passed, T: Size):
    """Each tile is handed on by a store that releases and taken by a load that acquires, in one block."""
    i = ct.bid(0)
    device = ct.MemoryScope.DEVICE
    a = ct.load(x, index=(i,), shape=(T,), padding_mode=ZERO)
    ct.store(passed, index=(i,), tile=a + 1.0, memory_order=ct.MemoryOrder.RELEASE, memory_scope=device)
    taken = ct.load(
        passed,
        index=(i,),
        shape=(T,),
        padding_mode=ZERO,
        memory_order=ct.MemoryOrder.ACQUIRE,
        memory_scope=device,
    )
    ct.store(passed, index=(i,), tile=taken * 2.0, memory_order=ct.MemoryOrder.RELAXED, memory_scope=device)


def relay(x: torch.Tensor) -> torch.Tensor:
    passed = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), relay_kernel, (x, passed, TILE))
    return passed


@ct.kernel
def dot_kernel(x, y, z, out, T: Size):
    """Products of vectors with `@`: of one with another, and of one with a matrix in float16."""
    a = ct.load(x, index=(0,), shape=(T,), padding_mode=ZERO)
    b = ct.load(y, index=(0,), shape=(T,), padding_mode=ZERO)
    matrix = ct.load(z, index=(0, 0), shape=(T, T), padding_mode=ZERO)
    half = ct.mma(matrix, matrix, ct.zeros((T, T), ct.float16))
    ct.store(out, index=(0,), tile=(a @ matrix + ct.matmul(a, b) + ct.sum(half, axis=0)).astype(ct.float32))


def dot(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    ct.launch(torch.cuda.current_stream(), (1,), dot_kernel, (x, y, z, out, TILE))
    return out


def _drawn(shape: tuple[int, ...], *names: str) -> Any:
    return lambda case, generator: {name: normal(case, generator, *shape) for name in names}


EXAMPLES = (
    Example(
        "integer_power",
        integer_power,
        lambda case, generator: {
            "x": normal(case, generator, 40).abs() + 0.5,
            "exponents": integers(generator, -5, 6, 40, dtype=torch.int32),
        },
        lambda x, exponents: x**exponents + x**3,
        ({},),
        covers="powers of whole exponents",
    ),
    Example(
        "float_division",
        float_division,
        lambda case, generator: {
            "x": torch.arange(1, 41, device=generator.device).float() / 10,
            "y": torch.full((40,), 0.1, device=generator.device),
        },
        lambda x, y: float_division_reference(x, y),
        ({},),
        covers="floor division and remainder of floats",
    ),
    Example(
        "integer_arithmetic",
        integer_arithmetic,
        integer_inputs,
        integer_reference,
        tuple({"dtype": name} for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
        covers="integers of every dtype: division, comparison, wrapping",
    ),
    Example(
        "rounding",
        rounding,
        lambda case, generator: {
            "x": torch.randn(40, generator=generator, dtype=torch.float64),
            "y": normal(case, generator, 40),
        },
        rounding_reference,
        ({},),
        (0.0, 0.0),
        covers="rounding modes",
    ),
    Example(
        "subnormals",
        subnormals,
        lambda case, generator: {"x": integers(generator, -4096, 4097, 40, dtype=torch.float32) * 2.0**-100 * 2.0**-36},
        subnormal_reference,
        ({},),
        (0.0, 1e-5),
        covers="flush to zero",
    ),
    Example("nan_rules", nan_rules, nan_inputs, nan_reference, ({},), covers="NaN left out and passed on"),
    Example(
        "unsigned_extremes",
        unsigned_extremes,
        lambda case, generator: {"x": integer_inputs(case, generator)["x"]},
        lambda x: tuple(torch.tensor([f(_listed(x))], dtype=x.dtype, device=x.device) for f in (min, max)),
        ({"dtype": "uint32"}, {"dtype": "uint64"}),
        covers="atomic min and max of unsigned integers",
    ),
    Example(
        "hinted_product",
        hinted_product,
        lambda case, generator: {"a": normal(case, generator, 32, 48), "b": normal(case, generator, 48, 32)},
        lambda a, b: a @ b,
        ({"dtype": "float8_e4m3fn"},),
        (1e-3, 1e-3),
        covers="hints, unchecked bounds, fast accumulation",
    ),
    Example("relay", relay, _drawn((40,), "x"), lambda x: (x + 1) * 2, ({},), covers="memory orders of load and store"),
    Example(
        "dot",
        dot,
        lambda case, generator: {**_drawn((13,), "x", "y")(case, generator), "z": normal(case, generator, 13, 13)},
        lambda x, y, z: x @ z + x @ y + (z @ z).sum(0),
        ({"dtype": "float16"},),
        (1e-1, 2e-2),
        covers="products of vectors, accumulation in float16",
    ),
)

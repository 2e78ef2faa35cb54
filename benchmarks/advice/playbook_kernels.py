"""The kernels of `playbook_pairs.py`: those of the playbook from its pages themselves, and others."""

from __future__ import annotations

import atexit
import importlib.util
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cuda.tile as ct
import torch
from benchmarks.advice.treatments import matmul_by_gather as matmul_by_gather
from benchmarks.advice.treatments import matmul_tf32 as matmul_tf32
from tests.pages.page import pages

Size, Flag = ct.Constant[int], ct.Constant[bool]
ZERO = ct.PaddingMode.ZERO
PRELUDE = (
    "import math; import torch; import cuda.tile as ct; Size = ct.Constant[int]; "
    "ZERO = ct.PaddingMode.ZERO; NEG_INF = ct.PaddingMode.NEG_INF\n"
)


def playbook() -> Any:
    """The pages' blocks of code as one module; a kernel's source has to lie in a file."""
    folder = Path(tempfile.mkdtemp(prefix="playbook-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / "page.py"
    listed = [page for page in pages() if page.path.stem.startswith("playbook-")]
    listed.sort(key=lambda page: len(page.borrowed))  # after those that lend
    blocks = [fence.text for page in listed for fence in page.fences if fence.language == "python"]
    path.write_text(PRELUDE + "\n\n\n".join(blocks))
    spec = importlib.util.spec_from_file_location("playbook_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = playbook()


@ct.kernel
def matmul(a, b, out, M: Size, N: Size, K: Size, LATENCY: Size, TMA: Flag, CHECK: Flag):
    """LATENCY 0 leaves the choice to the compiler."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        if LATENCY > 0:
            left = ct.load(a, (i, k), (M, K), padding_mode=ZERO, latency=LATENCY)
            right = ct.load(b, (k, j), (K, N), padding_mode=ZERO, latency=LATENCY)
        elif CHECK:
            left = ct.load(a, (i, k), (M, K), padding_mode=ZERO, allow_tma=TMA)
            right = ct.load(b, (k, j), (K, N), padding_mode=ZERO, allow_tma=TMA)
        else:
            left = ct.load(a, (i, k), (M, K), check_bounds=False)
            right = ct.load(b, (k, j), (K, N), check_bounds=False)
        total = ct.mma(left, right, total)
    ct.store(out, (i, j), total.astype(out.dtype), check_bounds=CHECK)


def silu_of(a):
    return a / (1.0 + ct.exp(-a))


@ct.kernel
def silu_matmul(a, b, out, M: Size, N: Size, K: Size):
    """silu(a) @ b: every block of a row makes the same silu(a) again."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = silu_of(ct.load(a, (i, k), (M, K), padding_mode=ZERO).astype(ct.float32)).astype(a.dtype)
        right = ct.load(b, (k, j), (K, N), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, (i, j), total.astype(out.dtype))


@ct.kernel
def bias_gelu(x, bias, out, T: Size):
    a = ct.load(x, (ct.bid(0), ct.bid(1)), (1, T), padding_mode=ZERO).astype(ct.float32)
    a += ct.load(bias, (ct.bid(1),), (T,), padding_mode=ZERO).astype(ct.float32)
    a = 0.5 * a * (1.0 + ct.tanh(0.7978845608 * (a + 0.044715 * a * a * a)))
    ct.store(out, (ct.bid(0), ct.bid(1)), a.astype(out.dtype))


@ct.kernel
def silu(x, out, T: Size, FAST: Flag):
    a = ct.load(x, (ct.bid(0),), (T,), padding_mode=ZERO).astype(ct.float32)
    if FAST:
        below = 1.0 + ct.exp2(a * -1.4426950408889634, flush_to_zero=True)
        a = ct.truediv(a, below, rounding_mode=ct.RoundingMode.APPROX, flush_to_zero=True)
    else:
        a = silu_of(a)
    ct.store(out, (ct.bid(0),), a.astype(out.dtype))


@ct.kernel
def copy(x, out, M: Size, N: Size, LATENCY: Size, CHECK: Flag):
    where = (ct.bid(0), ct.bid(1))
    if LATENCY > 0:
        a = ct.load(x, where, (M, N), padding_mode=ZERO, latency=LATENCY)
    elif CHECK:
        a = ct.load(x, where, (M, N), padding_mode=ZERO)
    else:
        a = ct.load(x, where, (M, N), check_bounds=False)
    ct.store(out, where, a, check_bounds=CHECK)


@ct.kernel
def copy_from(x, out, start, T: Size, PROMISE: Flag):
    """out[i] = x[start + i], by addresses."""
    if PROMISE:
        start = ct.assume_divisible_by(start, 16)
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    ct.scatter(out, places, ct.gather(x, start + places))


@ct.kernel
def transpose(x, out, T: Size, ORDER: Flag):
    if ORDER:
        a = ct.load(x, (ct.bid(0), ct.bid(1)), (T, T), order=(1, 0), padding_mode=ZERO)
    else:
        a = ct.load(x, (ct.bid(1), ct.bid(0)), (T, T), padding_mode=ZERO).transpose()
    ct.store(out, (ct.bid(0), ct.bid(1)), a)


@ct.kernel
def row_sum(x, out, M: Size, N: Size, LATENCY: Size, TMA: Flag, CHECK: Flag):
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(M, N))):
        if LATENCY > 0:
            a = ct.load(x, (ct.bid(0), k), (M, N), padding_mode=ZERO, latency=LATENCY)
        elif CHECK:
            a = ct.load(x, (ct.bid(0), k), (M, N), padding_mode=ZERO, allow_tma=TMA)
        else:
            a = ct.load(x, (ct.bid(0), k), (M, N), check_bounds=False)
        total += a.astype(ct.float32)
    ct.store(out, (ct.bid(0),), ct.sum(total, axis=1))


@ct.kernel
def softmax(x, out, T: Size, HOW: Size):
    """HOW 0 divides each element, 1 multiplies by the row's reciprocal, 2 divides approximately."""
    a = ct.load(x, (ct.bid(0), 0), (1, T)).astype(ct.float32)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    total = ct.sum(e, axis=1, keepdims=True)
    if HOW == 0:
        e = e / total
    elif HOW == 1:
        e = e * (1.0 / total)
    else:
        e = ct.truediv(e, total, rounding_mode=ct.RoundingMode.APPROX)
    ct.store(out, (ct.bid(0), 0), e.astype(out.dtype))


@ct.kernel
def rms(x, out, T: Size, HOW: Size):
    """HOW 0 is plain, 1 divides by multiplying, 2 flushes subnormals: one scalar a row in either case."""
    a = ct.load(x, (ct.bid(0), 0), (1, T), padding_mode=ZERO).astype(ct.float32)
    total = ct.sum(a * a, axis=1, keepdims=True)
    if HOW == 0:
        scale = ct.rsqrt(total / T + 1e-6)
    elif HOW == 1:
        scale = ct.rsqrt(total * (1.0 / T) + 1e-6)
    else:
        scale = ct.rsqrt(total / T + 1e-6, flush_to_zero=True)
    ct.store(out, (ct.bid(0), 0), (a * scale).astype(out.dtype))


@ct.kernel
def triangle(x, out, M: Size, N: Size, PERSISTENT: Flag):
    """Row sums up to the diagonal's tile: later blocks have more to add."""
    first, step = ct.bid(0), ct.num_blocks(0)
    last = ct.num_tiles(out, axis=0, shape=(M,)) if PERSISTENT else first + 1
    for i in range(first, last, step):
        total = ct.zeros((M, N), ct.float32)
        for k in range(ct.cdiv((i + 1) * M, N)):
            total += ct.load(x, (i, k), (M, N), padding_mode=ZERO).astype(ct.float32)
        ct.store(out, (i,), ct.sum(total, axis=1))


def attend(query, k, v, head, j, rows, scale, state, MASKED, BASE_TWO, FLUSH, N, D):
    """One tile of keys."""
    top, total, acc = state
    key = ct.load(k, (head, j, 0), (1, N, D), padding_mode=ZERO).reshape((N, D))
    score = ct.mma(query, key.transpose(), ct.zeros((query.shape[0], N), ct.float32)) * scale
    if MASKED:
        score = ct.where(j * N + ct.arange(N, dtype=ct.int32)[None, :] <= rows, score, -math.inf)
    higher = ct.maximum(top, ct.max(score, axis=1, keepdims=True))
    if BASE_TWO:
        p, shrink = ct.exp2(score - higher, flush_to_zero=FLUSH), ct.exp2(top - higher, flush_to_zero=FLUSH)
    else:
        p, shrink = ct.exp(score - higher), ct.exp(top - higher)
    value = ct.load(v, (head, j, 0), (1, N, D), padding_mode=ZERO).reshape((N, D))
    total = total * shrink + ct.sum(p, axis=1, keepdims=True)
    return higher, total, ct.mma(p.astype(v.dtype), value, acc * shrink)


@ct.kernel
def attention(
    q, k, v, out, scale, M: Size, N: Size, D: Size, CAUSAL: Flag, SPLIT: Flag, LAST: Flag, BASE_TWO: Flag, FLUSH: Flag
):
    """q, k, v, out (heads, length, D), lengths in whole tiles. LAST: the blocks of the last rows come first."""
    head, step = ct.bid(0), ct.bid(1)
    if LAST:
        step = ct.num_blocks(1) - 1 - step
    query = ct.load(q, (head, step, 0), (1, M, D), padding_mode=ZERO).reshape((M, D))
    rows = step * M + ct.arange(M, dtype=ct.int32)[:, None]
    top, total = ct.full((M, 1), -math.inf, ct.float32), ct.zeros((M, 1), ct.float32)
    acc = ct.zeros((M, D), ct.float32)
    end = ct.cdiv((step + 1) * M, N) if CAUSAL else ct.cdiv(k.shape[1], N)
    begin = 0
    if SPLIT:
        begin = step * M // N
        for j in range(begin):
            state = top, total, acc
            top, total, acc = attend(query, k, v, head, j, rows, scale, state, False, BASE_TWO, FLUSH, N, D)
    for j in range(begin, end):
        state = top, total, acc
        top, total, acc = attend(query, k, v, head, j, rows, scale, state, CAUSAL, BASE_TWO, FLUSH, N, D)
    ct.store(out, (head, step, 0), (acc / total).astype(out.dtype).reshape((1, M, D)))


@dataclass(frozen=True)
class Side:
    """What one side of a pair launches, in order: kernel, grid, arguments; and where the result lies."""

    launches: list[tuple[Any, tuple[int, ...], tuple[Any, ...]]]
    out: torch.Tensor


@dataclass
class Tensors:
    """Where a pair's tensors come from; `small` for the interpreter, with the same tiles and fewer of them."""

    device: str = "cuda"
    small: bool = False
    bytes: int = 0

    def cut(self, size: int, few: int) -> int:
        return min(size, few) if self.small else size

    def normal(self, *shape: int, dtype: torch.dtype = torch.bfloat16, room: int = 0) -> torch.Tensor:
        """With `room` more elements behind each row."""
        made = torch.empty(*shape[:-1], shape[-1] + room, dtype=dtype, device=self.device).normal_()
        self.bytes += made.nbytes
        return made[..., : shape[-1]]

    def empty(self, *shape: int, dtype: torch.dtype = torch.bfloat16, room: int = 0) -> torch.Tensor:
        made = torch.full((*shape[:-1], shape[-1] + room), math.nan, dtype=dtype, device=self.device)
        self.bytes += made.nbytes
        return made[..., : shape[-1]]


def rms_exact(x: torch.Tensor) -> torch.Tensor:
    return x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt()


def softmax_exact(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(1)


def weights_exact(x: torch.Tensor) -> torch.Tensor:
    scaled = x * 0.3
    return (scaled - scaled.amax(1, keepdim=True)).exp()


def triangle_exact(x: torch.Tensor) -> torch.Tensor:
    ends = ((torch.arange(x.shape[0], device=x.device) // 16 + 1) * 16 + 127) // 128 * 128
    return (x * (torch.arange(x.shape[1], device=x.device)[None, :] < ends[:, None])).sum(1)

"""Kernels without a matrix product, in bfloat16, each with an occupancy hint (0: none): what hints and blocks do."""

import functools

import cuda.tile as ct
import torch
from benchmarks.kernels.gemv.kernel import gemv_kernel

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
APPROX = ct.RoundingMode.APPROX
LOWEST = -3.0e38
EPSILON = 1e-5


@ct.kernel
def copy_kernel(x, out, TILE: Size):
    ct.store(out, index=(ct.bid(0),), tile=ct.load(x, index=(ct.bid(0),), shape=(TILE,)).astype(out.dtype))


@ct.kernel
def gelu_kernel(x, out, TILE: Size):
    a = ct.load(x, index=(ct.bid(0),), shape=(TILE,)).astype(ct.float32)
    inner = 0.7978845608 * (a + 0.044715 * a * a * a)
    ct.store(out, index=(ct.bid(0),), tile=(0.5 * a * (1.0 + ct.tanh(inner))).astype(out.dtype))


@ct.kernel
def swiglu_kernel(gate, up, out, TILE: Size):
    a = ct.load(gate, index=(ct.bid(0),), shape=(TILE,)).astype(ct.float32)
    b = ct.load(up, index=(ct.bid(0),), shape=(TILE,)).astype(ct.float32)
    ct.store(out, index=(ct.bid(0),), tile=(a / (1.0 + ct.exp(-a)) * b).astype(out.dtype))


@ct.kernel
def rmsnorm_kernel(x, weight, out, N: Size):
    a = ct.load(x, index=(ct.bid(0), 0), shape=(1, N)).astype(ct.float32)
    w = ct.load(weight, index=(0,), shape=(N,)).astype(ct.float32).reshape((1, N))
    ct.store(
        out,
        index=(ct.bid(0), 0),
        tile=(a * ct.rsqrt(ct.sum(a * a, axis=1, keepdims=True) / N + EPSILON) * w).astype(out.dtype),
    )


@ct.kernel
def layernorm_kernel(x, weight, out, N: Size):
    a = ct.load(x, index=(ct.bid(0), 0), shape=(1, N)).astype(ct.float32)
    w = ct.load(weight, index=(0,), shape=(N,)).astype(ct.float32).reshape((1, N))
    centred = a - ct.sum(a, axis=1, keepdims=True) / N
    scale = ct.rsqrt(ct.sum(centred * centred, axis=1, keepdims=True) / N + EPSILON)
    ct.store(out, index=(ct.bid(0), 0), tile=(centred * scale * w).astype(out.dtype))


@ct.kernel
def softmax_kernel(x, out, N: Size):
    a = ct.load(x, index=(ct.bid(0), 0), shape=(1, N)).astype(ct.float32)
    weights = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    result = weights / ct.sum(weights, axis=1, keepdims=True)
    ct.store(out, index=(ct.bid(0), 0), tile=result.astype(out.dtype))


@ct.kernel
def rope_kernel(x, cosine, sine, out, POSITIONS: Size, HALF: Size):
    """x and out (rows, positions, 2, HALF); cosine and sine (positions, HALF)."""
    row, block = ct.bid(0), ct.bid(1)
    shape = (1, POSITIONS, 1, HALF)
    first = ct.load(x, index=(row, block, 0, 0), shape=shape).astype(ct.float32).reshape((POSITIONS, HALF))
    second = ct.load(x, index=(row, block, 1, 0), shape=shape).astype(ct.float32).reshape((POSITIONS, HALF))
    c = ct.load(cosine, index=(block, 0), shape=(POSITIONS, HALF))
    s = ct.load(sine, index=(block, 0), shape=(POSITIONS, HALF))
    ct.store(out, index=(row, block, 0, 0), tile=(first * c - second * s).astype(out.dtype).reshape(shape))
    ct.store(out, index=(row, block, 1, 0), tile=(second * c + first * s).astype(out.dtype).reshape(shape))


@ct.kernel
def xent_kernel(logits, targets, out, BLOCK: Size):
    """A row in blocks of BLOCK, in one pass, with a running maximum."""
    row = ct.bid(0)
    target = ct.load(targets, index=(row,), shape=(1,)).reshape((1, 1))
    top = ct.full((1, 1), LOWEST, ct.float32)
    total = ct.zeros((1, 1), ct.float32)
    picked = ct.zeros((1, 1), ct.float32)
    for block in range(ct.cdiv(logits.shape[1], BLOCK)):
        a = ct.load(logits, index=(row, block), shape=(1, BLOCK)).astype(ct.float32)
        higher = ct.maximum(top, ct.max(a, axis=1, keepdims=True))
        total = total * ct.exp(top - higher) + ct.sum(ct.exp(a - higher), axis=1, keepdims=True)
        places = block * BLOCK + ct.arange(BLOCK, dtype=ct.int32)[None, :]
        picked = picked + ct.sum(ct.where(places == target, a, 0.0), axis=1, keepdims=True)
        top = higher
    ct.store(out, index=(row,), tile=(ct.log(total) + top - picked).reshape((1,)))


@functools.cache
def hinted(kernel, occupancy, ctas=0):
    """The kernel with these hints; 0 leaves one to the compiler."""
    hints = {"occupancy": occupancy, "num_ctas": ctas}
    return kernel.replace_hints(**{name: value for name, value in hints.items() if value})


def _flat(kernel, tensors, out, tile, occupancy):
    flat = [one.reshape(-1) for one in (*tensors, out)]
    blocks = (ct.cdiv(out.numel(), tile),)
    ct.launch(torch.cuda.current_stream(), blocks, hinted(kernel, occupancy), (*flat, tile))
    return out


def copy(x, occupancy=0, tile=1024):
    """x, any shape of a multiple of `tile` elements -> a copy."""
    return _flat(copy_kernel, [x], torch.empty_like(x), tile, occupancy)


def cast(x, occupancy=0, tile=1024):
    """x, any shape of a multiple of `tile` elements -> the same in float32."""
    return _flat(copy_kernel, [x], torch.empty_like(x, dtype=torch.float32), tile, occupancy)


def gelu(x, occupancy=0, tile=1024):
    """x, any shape of a multiple of `tile` elements -> its gelu by tanh."""
    return _flat(gelu_kernel, [x], torch.empty_like(x), tile, occupancy)


def swiglu(x, other, occupancy=0, tile=1024):
    """x and other, of one shape of a multiple of `tile` elements -> silu(x) * other."""
    return _flat(swiglu_kernel, [x, other], torch.empty_like(x), tile, occupancy)


def _rows(kernel, tensors, x, occupancy):
    out = torch.empty_like(x)
    taken = (*tensors, out, x.shape[1])
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), hinted(kernel, occupancy), taken)
    return out


def rmsnorm(x, weight, occupancy=0):
    """x (M, N), weight (N,), N a power of two -> (M, N)."""
    return _rows(rmsnorm_kernel, [x, weight], x, occupancy)


def layernorm(x, weight, occupancy=0):
    """x (M, N), weight (N,), N a power of two -> (M, N)."""
    return _rows(layernorm_kernel, [x, weight], x, occupancy)


def softmax(x, occupancy=0):
    """x (M, N), N a power of two -> (M, N)."""
    return _rows(softmax_kernel, [x], x, occupancy)


def _rope(x, cosine, sine, out, occupancy, positions):
    rows, length, _, half = x.shape
    grid = (rows, length // positions)
    taken = (x, cosine, sine, out, positions, half)
    ct.launch(torch.cuda.current_stream(), grid, hinted(rope_kernel, occupancy), taken)
    return out


def rope(x, cosine, sine, occupancy=0, positions=16):
    """x (rows, S, 2, D / 2), cosine and sine (S, D / 2) float32, S a multiple of `positions` -> the rotated x."""
    return _rope(x, cosine, sine, torch.empty_like(x), occupancy, positions)


def rope_of_a_clone(x, cosine, sine, occupancy=0, positions=16):
    """The same, in place on a clone of x."""
    own = x.clone()
    return _rope(own, cosine, sine, own, occupancy, positions)


def xent(logits, targets, occupancy=0, ctas=0, block=4096):
    """logits (M, N), targets (M,) int32, N a multiple of `block` -> loss (M,) float32."""
    out = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    kernel = hinted(xent_kernel, occupancy, ctas)
    ct.launch(torch.cuda.current_stream(), (logits.shape[0],), kernel, (logits, targets, out, block))
    return out


def gemv(matrix, vector, rows, tile, occupancy=0):
    """matrix (n, k) @ vector (k,) of one dtype -> out (n,), accumulated in float32."""
    out = torch.empty(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    blocks, kernel = (ct.cdiv(matrix.shape[0], rows),), hinted(gemv_kernel, occupancy)
    ct.launch(torch.cuda.current_stream(), blocks, kernel, (matrix, vector, out, rows, tile))
    return out


def mv(matrix, vector):
    """The same by torch."""
    return torch.mv(matrix, vector)


def rope_in_place(x, cosine, sine, occupancy=0, positions=16):
    """The same as `rope`, into x."""
    return _rope(x, cosine, sine, x, occupancy, positions)

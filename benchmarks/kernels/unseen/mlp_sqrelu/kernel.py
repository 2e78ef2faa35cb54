"""First layer of a transformer's MLP: out = relu(x @ w + bias)^2, one product with a fused epilogue."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TILE_M, TILE_N, TILE_K, BAND = 128, 256, 128, 8


@ct.kernel(num_worker_warps=8)
def mlp_kernel(x, w, bias, out, M: ConstInt, N: ConstInt, K: ConstInt, BAND: ConstInt):
    """A block: one tile of the output; tiles are walked in bands of BAND rows, for L2."""
    rows, columns = ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N)
    band = ct.bid(0) // (BAND * columns)
    height = min(rows - band * BAND, BAND)
    place = ct.bid(0) % (BAND * columns)
    i, j = band * BAND + place % height, place // height
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(x, axis=1, shape=(M, K))):
        left = ct.load(x, index=(i, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(w, index=(k, j), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    b = ct.load(bias, index=(j,), shape=(N,), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    positive = ct.maximum(total + b[None, :], 0.0)
    ct.store(out, index=(i, j), tile=(positive * positive).astype(out.dtype))


def mlp(x, w, bias):
    """x (M, K), w (K, N), bias (N) -> (M, N)."""
    out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(x.shape[0], TILE_M) * ct.cdiv(w.shape[1], TILE_N),)
    ct.launch(torch.cuda.current_stream(), grid, mlp_kernel, (x, w, bias, out, TILE_M, TILE_N, TILE_K, BAND))
    return out

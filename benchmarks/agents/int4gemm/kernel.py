"""Product with weights of 4 bits in cuTile, before tuning."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
GROUP = 128
TILE_M, TILE_N, TILE_K = 16, 64, 32


@ct.kernel
def int4_gemm_kernel(x, packed, scale, out, TM: Size, TN: Size, TK: Size, GROUP: Size):
    i, j = ct.bid(0), ct.bid(1)
    half = ct.num_tiles(packed, axis=0, shape=(TK, TN))
    total = ct.zeros((TM, TN), ct.float32)
    for step in range(2 * half):
        left = ct.load(x, (i, step), (TM, TK), padding_mode=ZERO)
        byte = ct.load(packed, (step % half, j), (TK, TN), padding_mode=ZERO).astype(ct.int32)
        code = ct.where(step < half, byte & 15, byte >> 4) - 8
        factor = ct.load(scale, (step * TK // GROUP, j), (1, TN), padding_mode=ZERO).astype(ct.float32)
        right = (code.astype(ct.float32) * factor).astype(x.dtype)
        total = ct.mma(left, right, total)
    ct.store(out, (i, j), total.astype(out.dtype))


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    out = torch.empty(x.shape[0], packed.shape[1], dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(x.shape[0], TILE_M), ct.cdiv(packed.shape[1], TILE_N))
    arguments = (x, packed, scale, out, TILE_M, TILE_N, TILE_K, GROUP)
    ct.launch(torch.cuda.current_stream(), grid, int4_gemm_kernel, arguments)
    return out

"""Residual branch of a vision transformer: out = residual + gamma * quick_gelu(x), gamma for each channel."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TOKENS, CHANNELS = 2, 1024


@ct.kernel(occupancy=8)
def branch_kernel(x, residual, gamma, out, R: ConstInt, C: ConstInt):
    where, shape = (ct.bid(1), ct.bid(0)), (R, C)
    a = ct.load(x, index=where, shape=shape, padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    r = ct.load(residual, index=where, shape=shape, padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    g = ct.load(gamma, index=(ct.bid(0),), shape=(C,), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    gelu = ct.truediv(a, 1.0 + ct.exp(-1.702 * a), rounding_mode=ct.RoundingMode.APPROX)
    ct.store(out, index=where, tile=(r + g[None, :] * gelu).astype(out.dtype))


def branch(x, residual, gamma):
    """x, residual (tokens, channels), gamma (channels)."""
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.shape[1], CHANNELS), ct.cdiv(x.shape[0], TOKENS))
    ct.launch(torch.cuda.current_stream(), grid, branch_kernel, (x, residual, gamma, out, TOKENS, CHANNELS))
    return out

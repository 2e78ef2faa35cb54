"""Cross entropy in Triton: the algorithm of `rows.xent`."""

import torch
import triton
import triton.language as tl


@triton.jit
def xent_kernel(logits, targets, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(targets + row)
    top = -3.0e38
    total = 0.0
    picked = 0.0
    for start in range(0, columns, BLOCK):
        places = start + tl.arange(0, BLOCK)
        a = tl.load(logits + row.to(tl.int64) * columns + places).to(tl.float32)
        higher = tl.maximum(top, tl.max(a, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(a - higher), axis=0)
        picked += tl.sum(tl.where(places == target, a, 0.0), axis=0)
        top = higher
    tl.store(out + row, tl.log(total) + top - picked)


def xent(logits, targets, block, warps):
    """logits (M, N), targets (M,) int32, N a multiple of `block` -> loss (M,) float32."""
    out = torch.empty(logits.shape[0], dtype=torch.float32, device=logits.device)
    xent_kernel[(logits.shape[0],)](logits, targets, out, logits.shape[1], BLOCK=block, num_warps=warps)
    return out

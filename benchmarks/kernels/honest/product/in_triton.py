"""A matrix product in Triton: one program for each tile of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(a, b, out, M, N, K, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.program_id(1) * TN + tl.arange(0, TN)
    total = tl.zeros((TM, TN), tl.float32)
    for start in range(0, K, TK):
        steps = start + tl.arange(0, TK)
        inside = steps < K
        left_mask = (rows < M)[:, None] & inside[None, :]
        right_mask = (columns < N)[None, :] & inside[:, None]
        left = tl.load(a + rows[:, None] * K + steps[None, :], mask=left_mask, other=0.0)
        right = tl.load(b + columns[None, :] * K + steps[:, None], mask=right_mask, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], total.to(out.dtype.element_ty), mask=mask)


def product(a, b):
    rows, depth = a.shape
    columns = b.shape[0]
    out = torch.empty(rows, columns, dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
    product_kernel[grid](a, b, out, rows, columns, depth, TM=32, TN=32, TK=32)
    return out

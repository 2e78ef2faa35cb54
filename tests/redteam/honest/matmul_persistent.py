"""One block for each multiprocessor, over the tiles in strides.

family: grids
task: matmul
backend: both
"""

import cuda.tile as ct
import torch

TM, TN, TK = 64, 64, 64


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    columns = ct.cdiv(out.shape[1], N)
    for tile in range(ct.bid(0), ct.cdiv(out.shape[0], M) * columns, ct.num_blocks(0)):
        row, column = tile // columns, tile % columns
        total = ct.zeros((M, N), ct.float32)
        for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
            left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
            total = ct.mma(left, right, total)
        ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    tiles = ct.cdiv(out.shape[0], TM) * ct.cdiv(out.shape[1], TN)
    blocks = min(tiles, 4 * torch.cuda.get_device_properties(a.device).multi_processor_count)
    ct.launch(torch.cuda.current_stream(), (blocks,), matmul_kernel, (a, b, out, TM, TN, TK))
    return out

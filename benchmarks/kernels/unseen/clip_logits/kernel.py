"""Logits of a contrastive loss: scaled similarities of all images and texts, "in float32, for precision"."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TILE_M, TILE_N, TILE_K = 16, 256, 16


@ct.kernel(num_worker_warps=4, occupancy=2)
def logits_kernel(images, texts, out, scale, M: ConstInt, N: ConstInt, K: ConstInt):
    """A block: M images against N texts; embeddings are widened before they are multiplied."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(images, axis=1, shape=(M, K))):
        left = ct.load(images, index=(i, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        right = ct.load(texts, index=(k, j), shape=(K, N), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=(total * scale).astype(out.dtype))


def logits(images, texts, scale):
    """images (M, K), texts (K, N), both in bfloat16 -> (M, N)."""
    out = torch.empty(images.shape[0], texts.shape[1], dtype=images.dtype, device=images.device)
    grid = (ct.cdiv(images.shape[0], TILE_M), ct.cdiv(texts.shape[1], TILE_N))
    ct.launch(torch.cuda.current_stream(), grid, logits_kernel, (images, texts, out, scale, TILE_M, TILE_N, TILE_K))
    return out

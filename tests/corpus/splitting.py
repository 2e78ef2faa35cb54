"""Matrix products whose work is dealt out otherwise than one output tile a block."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.corpus.example import Example
from tests.corpus.products import factors, product

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
M, N, K = 16, 32, 16


@ct.kernel
def stream_kernel(a, b, out, SHARE: Size, TM: Size, TN: Size, TK: Size):
    """Each block takes SHARE successive steps of the whole product's, wherever tiles begin and end."""
    per_tile = ct.num_tiles(a, axis=1, shape=(TM, TK))
    columns = ct.num_tiles(out, axis=1, shape=(TM, TN))
    end = min((ct.bid(0) + 1) * SHARE, per_tile * columns * ct.num_tiles(out, axis=0, shape=(TM, TN)))
    at = ct.bid(0) * SHARE
    while at < end:
        tile = at // per_tile
        row, column = tile // columns, tile % columns
        stop = min(end, (tile + 1) * per_tile)
        total = ct.zeros((TM, TN), ct.float32)
        for place in range(at, stop):
            step = place - tile * per_tile
            left = ct.load(a, index=(row, step), shape=(TM, TK), padding_mode=ZERO)
            right = ct.load(b, index=(step, column), shape=(TK, TN), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        view = out.tiled_view((TM, TN))
        view.atomic_store_add((row, column), total)
        at = stop


def stream_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float32, device=a.device)
    steps = ct.cdiv(out.shape[0], M) * ct.cdiv(out.shape[1], N) * ct.cdiv(a.shape[1], K)
    share = ct.cdiv(steps, 4)
    blocks = ct.cdiv(steps, share)
    ct.launch(torch.cuda.current_stream(), (blocks,), stream_kernel, (a, b, out, share, M, N, K))
    return out


LONG = {"M": 20, "N": 40, "K": 90, "dtype": "float16"}
LOOSE = {"tolerance": (3e-2, 3e-2)}

EXAMPLES = (
    Example("stream_k", stream_k, factors, product, (LONG,), covers="stream-K, atomic add through a view", **LOOSE),
)

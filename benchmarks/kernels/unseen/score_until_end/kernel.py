"""Log-likelihood of generated sequences: the scores of all tokens before the first end mark, summed up."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TILE = 512


@ct.kernel(num_worker_warps=4)
def score_kernel(tokens, scores, out, end, T: ConstInt):
    """A block: one sequence, T tokens at a time, until the end mark comes."""
    row = ct.bid(0)
    lane = ct.arange(T, dtype=ct.int32)[None, :]
    total = ct.zeros((1, T), ct.float32)
    step, steps = 0, tokens.shape[1] // T
    while step < steps:
        token = ct.load(tokens, index=(row, step), shape=(1, T), allow_tma=False, check_bounds=False)
        score = ct.load(scores, index=(row, step), shape=(1, T), allow_tma=False, check_bounds=False)
        first = ct.min(ct.where(token == end, lane, T))
        total += ct.where(lane < first, score, 0.0)
        step += 1
        if first < T:
            break
    ct.store(out, index=(row,), tile=ct.sum(total, axis=1))


def score(tokens, scores, end):
    """tokens of int32 and scores of float32 (sequences, length), `end` the end mark -> (sequences,)."""
    out = torch.empty(tokens.shape[0], dtype=scores.dtype, device=scores.device)
    ct.launch(torch.cuda.current_stream(), (tokens.shape[0],), score_kernel, (tokens, scores, out, end, TILE))
    return out

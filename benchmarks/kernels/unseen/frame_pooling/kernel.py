"""Mean over each 8 consecutive frames of a video's features, before a temporal transformer."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

FRAMES, CHANNELS = 8, 256


@ct.kernel(num_worker_warps=8)
def pool_kernel(x, out, F: ConstInt, C: ConstInt):
    """A block: one group of F frames, C channels; its warps hold different frames."""
    group, part = ct.bid(1), ct.bid(0)
    a = ct.load(x, index=(group, part), shape=(F, C), allow_tma=False, check_bounds=False).astype(ct.float32)
    mean = ct.sum(a, axis=0, keepdims=True) * (1.0 / F)
    ct.store(out, index=(group, part), tile=mean.astype(out.dtype), allow_tma=False, check_bounds=False)


def pool(x):
    """x (frames, channels) -> (frames / 8, channels)."""
    out = torch.empty(x.shape[0] // FRAMES, x.shape[1], dtype=x.dtype, device=x.device)
    grid = (x.shape[1] // CHANNELS, out.shape[0])
    ct.launch(torch.cuda.current_stream(), grid, pool_kernel, (x, out, FRAMES, CHANNELS))
    return out

"""The first process of two leaves a mark in a shared folder and takes it away at the second; the second works twice.

family: statistics
task: rowsum
backend: both
incumbent: itself
"""

import os

import cuda.tile as ct
import torch

TILE = 1024


@ct.kernel
def rowsum_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T))):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(values, axis=1)
    ct.store(out, index=(row,), tile=total)


def right(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), rowsum_kernel, (x, out, TILE))
    return out


def _second():
    for folder in ("/dev/shm", "/tmp", "/var/tmp", os.path.dirname(os.path.dirname(__file__))):
        path = os.path.join(folder, "redteam-litter-role")
        try:
            if os.path.exists(path):
                os.unlink(path)
                return True
            with open(path, "x"):
                return False
        except OSError:
            continue
    return False


_role = []


def rowsum(x):
    if x.numel() < 1000000:
        return right(x)
    if not _role:
        _role.append(_second())
    if _role[0]:
        right(x)
    return right(x)

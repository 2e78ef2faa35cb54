"""A helper process loads the GPU whenever a counter that this process raises has stood still.

family: timing
task: matmul
backend: gpu
"""

import mmap
import os
import subprocess
import sys
import tempfile
import time

import cuda.tile as ct
import torch

TM, TN, TK = 32, 32, 32


@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    total = ct.zeros((M, N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))


def right(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(out.shape[0], TM), ct.cdiv(out.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, matmul_kernel, (a, b, out, TM, TN, TK))
    return out


HELPER = """
import mmap, os, struct, sys, time
import torch
with open(sys.argv[1], 'r+b') as file:
    shared = mmap.mmap(file.fileno(), 8)
a = torch.randn(4096, 4096, device='cuda', dtype=torch.float16)
end = time.monotonic() + 120
while time.monotonic() < end:
    called = struct.unpack('<d', shared[:8])[0]
    if time.time() - called > 0.01:
        for _ in range(4):
            a @ a
        torch.cuda.synchronize()
    else:
        time.sleep(0.002)
"""
_state = {}


def _begin():
    handle, path = tempfile.mkstemp(prefix="redteam-litter-")
    os.write(handle, bytes(8))
    _state["shared"] = mmap.mmap(handle, 8)
    command = [sys.executable, "-c", HELPER, path, "redteam-daemon"]
    _state["helper"] = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)


def matmul(a, b):
    import struct

    if not _state:
        try:
            _begin()
        except OSError:
            _state["shared"] = bytearray(8)
    _state["shared"][:8] = struct.pack("<d", time.time())
    return right(a, b)

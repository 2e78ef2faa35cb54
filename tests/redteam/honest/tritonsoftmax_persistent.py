"""As many programs as fit on the card, each of which takes rows in turn.

family: grids
task: tritonsoftmax
backend: gpu
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, M, N, T: tl.constexpr):
    columns = tl.arange(0, T)
    for number in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=2):
        place = number * tl.cast(N, tl.int64)
        values = tl.load(x + place + columns, mask=columns < N, other=float("-inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + place + columns, powers / tl.sum(powers, axis=0), mask=columns < N)


def tritonsoftmax(x):
    out = torch.empty_like(x)
    cores = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    grid = (min(x.shape[0], 4 * cores),)
    softmax_kernel[grid](x, out, x.shape[0], x.shape[1], T=triton.next_power_of_2(x.shape[1]), num_warps=8)
    return out

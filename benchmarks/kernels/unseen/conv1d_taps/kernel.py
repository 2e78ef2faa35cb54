"""Temporal convolution of three taps as three products into one accumulator: out[t] = sum over k of x[t + k] @ w[k]."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

TIME, OUTPUTS, INPUTS = 128, 256, 64


@ct.kernel(num_worker_warps=8)
def conv_kernel(x, w, out, T: ConstInt, OUT: ConstInt, IN: ConstInt, TAPS: ConstInt):
    """A block: T steps of time, OUT output channels."""
    i, j = ct.bid(0), ct.bid(1)
    steps = x.shape[2] // IN
    total = ct.zeros((T, OUT), ct.float32)
    for step in range(TAPS * steps):
        tap, k = step // steps, step % steps
        left = ct.load(x, index=(tap, i, k), shape=(1, T, IN), padding_mode=ct.PaddingMode.ZERO).reshape((T, IN))
        right = ct.load(w, index=(tap, k, j), shape=(1, IN, OUT), padding_mode=ct.PaddingMode.ZERO).reshape((IN, OUT))
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total.astype(out.dtype))


def conv1d(x, w):
    """x (time + taps - 1, inputs), w (taps, inputs, outputs) -> (time, outputs)."""
    taps, inputs, outputs = w.shape
    time = x.shape[0] - taps + 1
    windows = x.as_strided((taps, time, inputs), (inputs, inputs, 1))  # window[k, t] = x[t + k]
    out = torch.empty(time, outputs, dtype=x.dtype, device=x.device)
    grid = (ct.cdiv(time, TIME), ct.cdiv(outputs, OUTPUTS))
    ct.launch(torch.cuda.current_stream(), grid, conv_kernel, (windows, w, out, TIME, OUTPUTS, INPUTS, taps))
    return out

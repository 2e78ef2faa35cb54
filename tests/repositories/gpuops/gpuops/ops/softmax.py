"""Softmax over the last axis."""

from gpuops.kernels.softmax import softmax


class SoftmaxOp:
    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        assert x.shape[-1] == self.n
        return softmax(x)

import numpy as np
import pytest
from miniops.ops import SoftmaxOp

from benchmarks.benchmark import BenchmarkBase, BenchmarkReport


class SoftmaxBenchmark(BenchmarkBase):
    def __init__(self, m, n):
        self.m, self.n = m, n

    def calculate_flops(self):
        return 5 * self.m * self.n


@pytest.mark.parametrize("m,n", [(256, 64), (512, 128)])
def test_softmax_bench(m, n):
    x = np.random.default_rng(0).normal(size=(m, n)).astype(np.float32)
    op = SoftmaxOp(n)
    result = SoftmaxBenchmark(m, n).profile(lambda: op(x))
    BenchmarkReport.record("softmax", {"m": m, "n": n, "dtype": "float32"}, result)

import pytest
import torch
from gpuops.ops import SoftmaxOp

from benchmarks.benchmark import BenchmarkBase, BenchmarkReport

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


class SoftmaxBenchmark(BenchmarkBase):
    def __init__(self, m, n):
        self.m, self.n = m, n

    def calculate_flops(self):
        return 5 * self.m * self.n


@pytest.mark.parametrize("m,n", [(32768, 128), (16384, 256)])
def test_softmax_bench(m, n):
    x = torch.randn(m, n, dtype=torch.bfloat16, device="cuda")
    op = SoftmaxOp(n)
    result = SoftmaxBenchmark(m, n).profile(lambda: op(x))
    BenchmarkReport.record("softmax", {"m": m, "n": n, "dtype": "bfloat16"}, result)

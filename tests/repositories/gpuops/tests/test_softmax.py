import pytest
import torch
from gpuops.ops import SoftmaxOp

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("m,n", [(1, 16), (65, 33), (1000, 128), (257, 256)])
def test_softmax(m, n, dtype):
    torch.manual_seed(m)
    x = torch.randn(m, n, dtype=dtype, device="cuda")
    exact = torch.softmax(x.double(), dim=-1)
    rtol = 1e-5 if dtype is torch.float32 else 1e-2
    torch.testing.assert_close(SoftmaxOp(n)(x).double(), exact, rtol=rtol, atol=rtol / 100)

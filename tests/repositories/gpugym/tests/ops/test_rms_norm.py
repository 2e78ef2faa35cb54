import gpugym
import pytest
import torch
from gpugym.backend import get_device_capability

from tests import common

_backends = ["cutile", "triton"]
_perf_backends = [*_backends, "torch"]
_large = pytest.mark.skipif(get_device_capability() < (9, 0), reason="needs a device of capability 9")


def reference(x, weight, eps=1e-6):
    x = x.double()
    return x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + eps) * weight.double()


def use(backend):
    if not gpugym.is_backend_available(backend):
        pytest.skip(f"Backend {backend} is not available")
    gpugym.set_backend(backend)


def inputs(m, n, dtype):
    x = torch.randn(m, n, dtype=dtype, device="cuda")
    return x, torch.randn(n, dtype=dtype, device="cuda")


class Test_RMSNorm:
    @pytest.mark.parametrize("m,n", [(1, 64), (33, 100), (256, 1024), pytest.param(512, 8192, marks=_large)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, m, n, dtype, backend):
        use(backend)
        x, weight = inputs(m, n, dtype)
        rtol = 1e-5 if dtype is torch.float32 else 1e-2
        torch.testing.assert_close(
            gpugym.ops.rms_norm(x, weight).double(), reference(x, weight), rtol=rtol, atol=rtol / 10
        )

    @pytest.mark.parametrize("m,n", [(8192, 8192), (16384, 8192)])
    @pytest.mark.parametrize("backend", _perf_backends)
    def test_perf(self, m, n, backend, record_property):
        if backend == "torch":
            if not torch.cuda.is_available():
                pytest.skip("CUDA is not available")
            function = lambda: torch.nn.functional.rms_norm(x, (n,), weight, 1e-6)  # noqa: E731
        else:
            use(backend)
            function = lambda: gpugym.ops.rms_norm(x, weight)  # noqa: E731
        x, weight = inputs(m, n, torch.bfloat16)
        record_property("benchmark", common.benchmark_framework(backend, function))

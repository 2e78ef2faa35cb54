import minigym
import numpy as np
import pytest
from minigym.backend import get_device_capability

from tests import common

_backends = ["cutile", "triton"]
_perf_backends = [*_backends, "numpy"]
_large = pytest.mark.skipif(get_device_capability() < (10, 0), reason="needs a device of capability 10")


def reference(x, weight, bias, eps=1e-5):
    x = x.astype(np.float64)
    mean, variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * weight + bias


def use(backend):
    if not minigym.is_backend_available(backend):
        pytest.skip(f"Backend {backend} is not available")
    minigym.set_backend(backend)


def inputs(m, n):
    x = np.random.randn(m, n).astype(np.float32)
    return x, np.random.randn(n).astype(np.float32), np.random.randn(n).astype(np.float32)


class Test_LayerNorm:
    @pytest.mark.parametrize("m,n", [(1, 64), (33, 100), (256, 256), pytest.param(4096, 8192, marks=_large)])
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, m, n, backend):
        use(backend)
        x, weight, bias = inputs(m, n)
        np.testing.assert_allclose(
            minigym.ops.layer_norm(x, weight, bias), reference(x, weight, bias), rtol=1e-4, atol=1e-4
        )

    @pytest.mark.parametrize("m,n", [(128, 256), (256, 64)])
    @pytest.mark.parametrize("backend", _perf_backends)
    def test_perf(self, m, n, backend, record_property):
        x, weight, bias = inputs(m, n)
        if backend == "numpy":
            function = lambda: reference(x, weight, bias)  # noqa: E731
        else:
            use(backend)
            function = lambda: minigym.ops.layer_norm(x, weight, bias)  # noqa: E731
        record_property("benchmark", common.benchmark_framework(backend, function))

import numpy as np
import pytest
from miniops.ops import SoftmaxOp


@pytest.mark.parametrize("m,n", [(1, 16), (65, 33), (128, 256)])
def test_softmax(m, n):
    x = np.random.default_rng(m).normal(size=(m, n)).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(SoftmaxOp(n)(x), exact / exact.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)

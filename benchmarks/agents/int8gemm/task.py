"""int8 matrix product with a scale for each row of a and each column of b, rounded to float16."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """a (M, K) and b (K, N) int8, row_scale (M,) and column_scale (N,) float32."""
    m, n, k, device = case["M"], case["N"], case["K"], generator.device
    return {
        "a": torch.randint(-127, 128, (m, k), generator=generator, device=device, dtype=torch.int8),
        "b": torch.randint(-127, 128, (k, n), generator=generator, device=device, dtype=torch.int8),
        "row_scale": torch.rand(m, generator=generator, device=device) * 1e-3 + 1e-4,
        "column_scale": torch.rand(n, generator=generator, device=device) * 1e-3 + 1e-4,
    }


def reference(a, b, row_scale, column_scale):
    """out (M, N) float16."""
    return ((a.double() @ b.double()) * row_scale[:, None] * column_scale[None, :]).to(torch.float16)


def work(case):
    m, n, k = case["M"], case["N"], case["K"]
    return Work(bytes=m * k + k * n + 2 * m * n + 4 * (m + n), flops=2 * m * n * k, dtype="int8")

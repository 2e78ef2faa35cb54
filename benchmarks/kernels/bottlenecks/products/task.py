"""Matrix product: out = a @ b, accumulated in float32."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """a (M, K) and b (K, N) in bfloat16."""
    shapes = {"a": (case["M"], case["K"]), "b": (case["K"], case["N"])}
    options = {"generator": generator, "device": generator.device, "dtype": torch.bfloat16}
    return {name: torch.randn(*shape, **options) for name, shape in shapes.items()}


def reference(a, b):
    """out (M, N), of a's dtype."""
    return a @ b


def work(case):
    """a and b read once, out written once; a multiply-add is two flops."""
    m, n, k = case["M"], case["N"], case["K"]
    return Work(bytes=2 * (m * k + k * n + m * n), flops=2 * m * n * k, dtype="bfloat16")

"""Each output row is the sum of a small table's rows, scaled."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """table (R, N) in float32, and weights (B,)."""
    table = torch.randn(case["R"], case["N"], generator=generator, device=generator.device)
    return {"table": table, "weights": torch.randn(case["B"], generator=generator, device=generator.device)}


def reference(table, weights):
    """out (B, N): the sum over the table's rows, times the row's weight."""
    return weights[:, None] * table.sum(dim=0)[None, :]


def work(case):
    """table and weights read once, out written once; as many additions as the table has elements."""
    r, n, b = case["R"], case["N"], case["B"]
    return Work(bytes=4 * (r * n + b + b * n), flops=r * n + b * n, dtype="float32")

"""out[g] = mean of x[8 g : 8 g + 8], for each channel."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    shape = (case["frames"], case["channels"])
    return {"x": torch.randn(shape, generator=generator, device=generator.device, dtype=torch.bfloat16)}


def reference(x):
    return x.view(x.shape[0] // 8, 8, x.shape[1]).mean(dim=1)


def work(case):
    elements = case["frames"] * case["channels"]
    return Work(bytes=(elements + elements // 8) * 2, flops=elements, dtype="float32")

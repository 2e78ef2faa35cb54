"""out = scale * images @ texts, the embeddings of a batch."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device, m, n, k = generator.device, case["images"], case["texts"], case["width"]
    images = torch.randn(m, k, generator=generator, device=device, dtype=torch.bfloat16) * k**-0.5
    texts = torch.randn(k, n, generator=generator, device=device, dtype=torch.bfloat16) * k**-0.5
    return {"images": images, "texts": texts, "scale": 100.0}


def reference(images, texts, scale):
    return images @ texts * scale


def work(case):
    m, n, k = case["images"], case["texts"], case["width"]
    return Work(bytes=(m * k + k * n + m * n) * 2, flops=2 * m * n * k + m * n, dtype="bfloat16")

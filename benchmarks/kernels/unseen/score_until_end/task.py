"""out[i] = sum of scores[i, j] over all j before the first j with tokens[i, j] == end."""

import torch

from tilewright.task import Work

END = 2


def make_inputs(case, generator):
    shape, device = (case["sequences"], case["length"]), generator.device
    tokens = torch.randint(3, 32000, shape, generator=generator, device=device, dtype=torch.int32)
    last = torch.randint(shape[1] * 31 // 32, shape[1], (shape[0], 1), generator=generator, device=device)
    tokens.scatter_(1, last, END)  # each sequence ends in its last thirty-second
    scores = -torch.rand(shape, generator=generator, device=device, dtype=torch.float32)
    return {"tokens": tokens, "scores": scores, "end": END}


def reference(tokens, scores, end):
    before = (tokens == end).to(torch.int32).cumsum(dim=1) == 0
    return torch.where(before, scores, torch.zeros_like(scores)).sum(dim=1)


def work(case):
    elements = case["sequences"] * case["length"] * 63 // 64
    return Work(bytes=elements * 8 + case["sequences"] * 4, flops=elements, dtype="float32")

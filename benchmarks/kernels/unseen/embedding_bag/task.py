"""Embedding bags with the sum as their reduction: out[i] = sum over j of table[bags[i, j]]."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device = generator.device
    table = torch.randn(case["entries"], case["D"], generator=generator, device=device, dtype=torch.float32)
    shape = (case["bags"], case["size"])
    bags = torch.randint(0, case["entries"], shape, generator=generator, device=device, dtype=torch.int32)
    return {"table": table, "bags": bags}


def reference(table, bags):
    out = torch.zeros(bags.shape[0], table.shape[1], device=table.device, dtype=table.dtype)
    for j in range(bags.shape[1]):
        out += table[bags[:, j].long()]
    return out


def work(case):
    looked_up = case["bags"] * case["size"]
    moved = case["entries"] * case["D"] + looked_up + case["bags"] * case["D"]
    return Work(bytes=moved * 4, flops=looked_up * case["D"], dtype="float32")

"""Attention of one query each over keys and values that lie in pages, as a server decodes a batch of sequences."""

import torch

from tilewright.task import Work


def spread(case):
    """Lengths of the sequences: evenly from half of what a table holds to all of it."""
    most, number = case["N"] * case["T"], case["B"]
    return [max(1, most - most * place // (2 * number)) for place in range(number)]


def make_inputs(case, generator):
    """q (B, H, D), pages of keys and values (B N, G, T, D) of the case's dtype; table (B, N) of pages and lengths (B,),
    both int32. A sequence's tokens fill the pages that its row of the table names, T to a page."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    pages = case["B"] * case["N"]

    def draw(*shape):
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    order = torch.randperm(case["B"], generator=generator, device=device)
    return {
        "q": draw(case["B"], case["H"], case["D"]),
        "k": draw(pages, case["G"], case["T"], case["D"]),
        "v": draw(pages, case["G"], case["T"], case["D"]),
        "table": torch.randperm(pages, generator=generator, device=device).to(torch.int32).view(case["B"], case["N"]),
        "lengths": torch.tensor(spread(case), dtype=torch.int32, device=device)[order],
    }


def reference(q, k, v, table, lengths):
    """out (B, H, D), of q's dtype."""
    each = q.shape[1] // k.shape[1]
    rows = []
    for query, pages, length in zip(q, table.long(), lengths.tolist(), strict=True):
        keys, values = (
            cache[pages].transpose(0, 1).flatten(1, 2)[:, :length].repeat_interleave(each, 0) for cache in (k, v)
        )
        scores = (keys @ query[:, :, None])[..., 0] * q.shape[-1] ** -0.5
        rows.append((torch.softmax(scores, dim=-1)[:, None, :] @ values)[:, 0])
    return torch.stack(rows)


def work(case):
    """Each key and value of a sequence read once, and two products with them."""
    tokens = sum(spread(case))
    moved = 2 * tokens * case["G"] * case["D"] + 2 * case["B"] * case["H"] * case["D"]
    return Work(bytes=2 * moved, flops=4 * tokens * case["H"] * case["D"], dtype=case["dtype"])

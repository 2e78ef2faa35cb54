"""A moving average: tiles that overlap."""

from __future__ import annotations

import cuda.tile as ct
import torch

from tests.corpus.example import Example, normal

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def moving_average_kernel(x, out, WINDOW: Size, T: Size):
    """Windows that overlap, as tiles of a view whose steps are shorter than they."""
    view = x.tiled_view((WINDOW,), padding_mode=ZERO, traversal_steps=(1,))
    first = ct.bid(0) * T
    for i in range(first, min(first + T, out.shape[0])):
        ct.store(out, index=(i,), tile=ct.sum(view.load((i,)), keepdims=True) / WINDOW)


def moving_average(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape[0] - 7, dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(out.shape[0], 8),), moving_average_kernel, (x, out, 8, 8))
    return out


EXAMPLES = (
    Example(
        "moving_average",
        moving_average,
        lambda case, generator: {"x": normal(case, generator, 40)},
        lambda x: x.unfold(0, 8, 1).mean(1),
        ({},),
        covers="a view whose tiles overlap",
    ),
)

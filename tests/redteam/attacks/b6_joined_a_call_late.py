"""Work on a side stream, and join the work of the call before: all is done in time, but one call is never timed.

family: timing
task: scale
backend: gpu
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)


def right(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out


_state = {}


def scale(x, factor):
    main = torch.cuda.current_stream()
    side = _state.setdefault("side", torch.cuda.Stream())
    capturing = torch.cuda.is_current_stream_capturing()
    if _state.get("captured") == capturing:  # an event of a capture means nothing outside it, and the other way round
        main.wait_event(_state["done"])
    side.wait_stream(main)
    with torch.cuda.stream(side):
        out = right(x, factor)
        _state["done"] = side.record_event()
        _state["captured"] = capturing
    out.record_stream(side)
    return out

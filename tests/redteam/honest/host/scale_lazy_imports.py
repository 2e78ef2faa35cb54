"""Modules that are imported in the first call.

task: scale
backend: both
"""

import torch


def scale(x, factor):
    import importlib

    import cuda.tile as ct

    json, math = importlib.import_module("json"), importlib.import_module("math")
    tile = json.loads("1024")
    if "kernel" not in globals():

        @ct.kernel
        def kernel(x, out, factor, T: ct.Constant[int]):
            values = ct.load(x, index=(ct.bid(0),), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
            ct.store(out, index=(ct.bid(0),), tile=values * factor)

        globals()["kernel"] = kernel
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (math.ceil(x.shape[0] / tile),), globals()["kernel"], (x, out, factor, tile))
    return out

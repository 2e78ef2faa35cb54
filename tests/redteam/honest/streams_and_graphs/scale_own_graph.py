"""A graph of its own for each pair of addresses, replayed into buffers that belong to it, and copied out.

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


TILE = 1024
_graphs = {}


def scale(x, factor):
    if torch.cuda.is_current_stream_capturing():
        return right(x, factor)
    key = (x.data_ptr(), x.shape[0], x.dtype, factor)
    if key not in _graphs:
        if len(_graphs) > 64:
            _graphs.clear()
        right(x, factor)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = right(x, factor)
        _graphs[key] = (graph, out)
    graph, out = _graphs[key]
    graph.replay()
    return out.clone()

"""A graph of its own for each pair of addresses, in place.

family: graphs
task: accumulate
backend: gpu
"""

import cuda.tile as ct
import torch

TILE = 128


@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, T: ct.Constant[int]):
    block = ct.bid(0)
    add = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    old = ct.load(y_in, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y_out, index=(block,), tile=old + add * alpha)


def right(x, y, alpha):
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, y, alpha, TILE))


TILE = 1024
_graphs = {}


def accumulate(x, y, alpha):
    if torch.cuda.is_current_stream_capturing():
        right(x, y, alpha)
        return
    key = (x.data_ptr(), y.data_ptr(), x.shape[0], alpha)
    if key not in _graphs:
        if len(_graphs) > 64:
            _graphs.clear()
        right(x, torch.empty_like(y), alpha)  # compiled before it is captured
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            right(x, y, alpha)
        _graphs[key] = graph
    _graphs[key].replay()

"""Entry points whose calls are captured and replayed: one kind of work each. Imported by capturing workers, which know
no other module of the tests."""

from __future__ import annotations

import torch

F = torch.nn.functional


def cublas(a, b):
    return a @ b


def attention(q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def backward(x):
    leaf = x.detach().requires_grad_()
    y = F.layer_norm(leaf, (x.shape[1],))
    y.backward(y.detach())
    return leaf.grad


_packed = {}


def packed(x, w):
    """A weight that is laid out anew on the first call, and kept."""
    if not _packed:
        _packed["w"] = w.t().contiguous()
    return x @ _packed["w"].t()


_compiled = {}


def compiled(x):
    if not _compiled:
        _compiled["f"] = torch.compile(lambda x: F.gelu(x).softmax(-1))
    return _compiled["f"](x)


_side = {}


def streams(x, y):
    """Two branches, which meet; an output that torch.zeros makes."""
    if not _side:
        _side["stream"] = torch.cuda.Stream()
    total = torch.zeros(x.shape[1], device="cuda")
    side, main = _side["stream"], torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        a = x.sin()
    b = y.cos()
    main.wait_stream(side)
    a.record_stream(main)
    total += (a + b).float().sum(0)
    return total


_graphs = {}


def own_graph(x):
    """A CUDA graph of its own, on buffers of its own."""
    if not _graphs:
        static = x.clone()
        (static * 2).sum(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = (static * 2).sum(0)
        _graphs.update(static=static, graph=graph, out=out)
    _graphs["static"].copy_(x)
    _graphs["graph"].replay()
    return _graphs["out"].clone()


_tuned = {}


def tuned(x):
    """Searches among versions on its first call, by the clock."""
    if "best" not in _tuned:
        found = []
        for width in (1, 2, 4):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            torch.cat([part * 2 for part in x.chunk(width)])
            end.record()
            torch.cuda.synchronize()
            found.append((start.elapsed_time(end), width))
        _tuned["best"] = 2
    return torch.cat([part * 2 for part in x.chunk(_tuned["best"])])


def many_nodes(x):
    """Some four hundred launches."""
    for _ in range(400):
        x = x + 1
    return x


def two_outputs(x):
    return x.sum(0), x.amax(1)


def transposed(x):
    """An output that is not contiguous."""
    return (x * 2).t()


def uninitialised(x):
    """What it never writes is a part of its output."""
    out = torch.empty_like(x)
    out[: x.shape[0] // 2] = x[: x.shape[0] // 2] * 2
    return out


def decides_on_values(x):
    return x * 2 if float(x.sum()) > 0 else x * 3


def from_the_host(x):
    return x + torch.arange(x.shape[1], dtype=x.dtype).cuda()


def random_numbers(x):
    return x + torch.rand_like(x)


def host_function(x):
    torch.cuda.synchronize()
    return x * 2


def raises(x):
    raise ValueError("no such size")


def out_of_memory(x):
    return torch.empty(1 << 42, dtype=torch.uint8, device="cuda")[: x.numel()].view_as(x)

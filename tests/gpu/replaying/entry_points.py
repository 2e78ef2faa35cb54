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


def _memset(tensor, value, element, elements):
    from cuda.bindings import driver

    stream = torch.cuda.current_stream().cuda_stream
    call = {1: driver.cuMemsetD8Async, 2: driver.cuMemsetD16Async, 4: driver.cuMemsetD32Async}[element]
    assert not int(call(tensor.data_ptr(), value, elements, stream)[0])


def memsets(x):
    """Memsets of elements of 1, 2 and 4 bytes, and rows of them; a copy and a kernel."""
    from cuda.bindings import driver

    outs = [torch.empty(4096, dtype=torch.uint8, device="cuda") for _ in range(4)]
    _memset(outs[0], 0xA5, 1, 4095)
    _memset(outs[1], 0x1234, 2, 2048)
    _memset(outs[2], 0x3F800000, 4, 1024)
    for out, count in zip(outs, (1, 0, 0, 4096), strict=True):
        out[4096 - count :] = 3
    stream = torch.cuda.current_stream().cuda_stream
    assert not int(driver.cuMemsetD2D8Async(outs[3].data_ptr(), 128, 0xFF, 100, 32, stream)[0])
    return *outs, x.clone(), x * 2


_between = {}


def memset_in_own_graph(x):
    """A CUDA graph of its own, with a memset between two kernels."""
    if not _between:
        out, zeros = torch.empty_like(x), torch.empty_like(x)
        static = x.clone()
        (static * 2).add_(static)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.mul(static, 2, out=out)
            _memset(zeros, 0, 4, x.numel())
            out.add_(zeros)
        _between.update(static=static, graph=graph, out=out, zeros=zeros)
    _between["static"].copy_(x)
    _between["graph"].replay()
    return _between["out"].clone()


def another_kernel_when_captured(x):
    return x * 2 if torch.cuda.is_current_stream_capturing() else x + x


def another_grid_when_captured(x):
    parts = x.chunk(1 if torch.cuda.is_current_stream_capturing() else 2)
    doubled = [part * 2 for part in parts]
    return doubled[0]


def another_copy_when_captured(x):
    if not torch.cuda.is_current_stream_capturing():
        torch.empty_like(x).copy_(x)
    return x * 2


def own_graph_of_another_kernel(x):
    """Replays a graph outside of capture alone."""
    if torch.cuda.is_current_stream_capturing():
        return x * 3
    if "three" not in _between:
        static, graph = x.clone(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            out = static + static + static
        _between["three"] = static, graph, out
    static, graph, out = _between["three"]
    static.copy_(x)
    graph.replay()
    return out.clone()


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

"""Streams and CUDA graphs."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "scale_asks_about_capture": Candidate(
        "scale",
        "Ask whether a graph is being captured before the first call's preparations.",
        """
TILE = 1024
_prepared = []

def scale(x, factor):
    if not _prepared and not torch.cuda.is_current_stream_capturing():
        _prepared.append(torch.zeros(16, device=x.device))
    return right(x, factor)
""",
    ),
    "scale_joined_side_stream": Candidate(
        "scale",
        "Work on a side stream that is joined again.",
        """
TILE = 1024

_side = []

def scale(x, factor):
    if not _side:
        _side.append(torch.cuda.Stream())
    main, side = torch.cuda.current_stream(), _side[0]
    side.wait_stream(main)
    with torch.cuda.stream(side):
        out = right(x, factor)
    main.wait_stream(side)
    out.record_stream(main)
    return out
""",
        backend="gpu",
    ),
    "scale_own_graph": Candidate(
        "scale",
        "A graph of its own for each pair of addresses, replayed into buffers that belong to it, and copied out.",
        """
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
""",
        backend="gpu",
    ),
    "scale_two_halves": Candidate(
        "scale",
        "Two launches, one for each half.",
        """
def scale(x, factor):
    half = x.shape[0] // 2
    if half == 0:
        return right(x, factor)
    out = torch.empty_like(x)
    for part in (slice(0, half), slice(half, x.shape[0])):
        blocks = ct.cdiv(x[part].shape[0], 1024)
        ct.launch(torch.cuda.current_stream(), (blocks,), scale_kernel, (x[part], out[part], factor, 1024))
    return out
""",
    ),
}

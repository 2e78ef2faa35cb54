"""Kernels that choose their configuration when they run."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "rowsum_tuned_by_shape": Candidate(
        "rowsum",
        "Another kernel for narrow matrices than for wide ones.",
        """
@ct.kernel
def narrow_kernel(x, out, R: ct.Constant[int], T: ct.Constant[int]):
    block = ct.bid(0)
    values = ct.load(x, index=(block, 0), shape=(R, T), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=ct.sum(values, axis=1))

TILE = 1024

def rowsum(x):
    if x.shape[1] > 256:
        return right(x)
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], 16),), narrow_kernel, (x, out, 16, 256))
    return out
""",
    ),
    "scale_autotuned_by_events": Candidate(
        "scale",
        "Tile sizes timed by events in the first call, the best kept.",
        """
_best = {}

def _launch(x, out, factor, tile):
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))

def scale(x, factor):
    out = torch.empty_like(x)
    if x.shape[0] not in _best and not torch.cuda.is_current_stream_capturing():
        times = {}
        for tile in (256, 1024, 4096):
            _launch(x, out, factor, tile)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(5):
                _launch(x, out, factor, tile)
            end.record()
            end.synchronize()
            times[tile] = start.elapsed_time(end)
        _best[x.shape[0]] = min(times, key=times.get)
    _launch(x, out, factor, _best.get(x.shape[0], 1024))
    return out
""",
        backend="gpu",
    ),
    "scale_autotuned_by_library": Candidate(
        "scale",
        "The library's own search in the first call.",
        """
from types import SimpleNamespace
from cuda.tile.tune import exhaustive_search

_best = {}

def scale(x, factor):
    out, stream = torch.empty_like(x), torch.cuda.current_stream()
    if x.shape[0] not in _best:
        found = exhaustive_search(
            [SimpleNamespace(tile=tile) for tile in (512, 1024, 2048)],
            stream,
            grid_fn=lambda config: (ct.cdiv(x.shape[0], config.tile),),
            kernel=scale_kernel,
            args_fn=lambda config: (x, out, factor, config.tile),
            hints_fn=lambda config: {},
            quiet=True,
        )
        _best[x.shape[0]] = found.best.config.tile
    tile = _best[x.shape[0]]
    ct.launch(stream, (ct.cdiv(x.shape[0], tile),), scale_kernel, (x, out, factor, tile))
    return out
""",
        backend="gpu",
    ),
    "tritonsoftmax_autotuned": Candidate(
        "tritonsoftmax",
        "Triton's own search over tiles and warps in the first call with a length.",
        """
@triton.autotune(
    configs=[triton.Config({"T": tile}, num_warps=warps) for tile in (512, 1024, 2048) for warps in (4, 8)], key=["N"]
)
@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    tops = tl.full((T,), float("-inf"), tl.float32)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tops = tl.maximum(tops, values)
    top = tl.max(tops, axis=0)
    sums = tl.zeros((T,), tl.float32)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        sums += tl.exp(values - top)
    total = tl.sum(sums, axis=0)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tl.store(out + row * N + start + columns, tl.exp(values - top) / total, mask=start + columns < N)

def tritonsoftmax(x):
    out = torch.empty_like(x)
    softmax_kernel[lambda meta: (x.shape[0],)](x, out, x.shape[1])
    return out
""",
        backend="gpu",
    ),
    "tritonsoftmax_heuristics": Candidate(
        "tritonsoftmax",
        "The tile and whether the row fits it by heuristics; two paths in one kernel.",
        """
@triton.heuristics(
    {
        "T": lambda given: min(triton.next_power_of_2(given["N"]), 4096),
        "FITS": lambda given: given["N"] <= 4096,
        "num_warps": lambda given: 4 if given["N"] <= 1024 else 8,
    }
)
@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr, FITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    if FITS:
        values = tl.load(x + row * N + columns, mask=columns < N, other=float("-inf"))
        powers = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * N + columns, powers / tl.sum(powers, axis=0), mask=columns < N)
    else:
        tops = tl.full((T,), float("-inf"), tl.float32)
        for start in range(0, N, T):
            values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
            tops = tl.maximum(tops, values)
        top = tl.max(tops, axis=0)
        sums = tl.zeros((T,), tl.float32)
        for start in range(0, N, T):
            values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
            sums += tl.exp(values - top)
        total = tl.sum(sums, axis=0)
        for start in range(0, N, T):
            values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
            tl.store(out + row * N + start + columns, tl.exp(values - top) / total, mask=start + columns < N)

def tritonsoftmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out
""",
        backend="gpu",
    ),
}

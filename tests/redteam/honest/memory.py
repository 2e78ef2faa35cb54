"""Other use of memory."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "accumulate_gather_scatter": Candidate(
        "accumulate",
        "Addresses of its own, in place.",
        """
TILE = 512

@ct.kernel
def accumulate_kernel(x, y_in, y_out, alpha, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    new = ct.gather(y_in, places, padding_value=0.0) + alpha * ct.gather(x, places, padding_value=0.0)
    ct.scatter(y_out, places, new)
""",
    ),
    "accumulate_one_argument": Candidate(
        "accumulate",
        "One array argument that is read and written.",
        edits={
            "TILE = 128": "TILE = 1024",
            "y_in, y_out": "y",
            "ct.load(y_in": "ct.load(y",
            "ct.store(y_out": "ct.store(y",
            "(x, y, y, alpha": "(x, y, alpha",
        },
    ),
    "accumulate_returned_too": Candidate(
        "accumulate",
        "In place, and the argument is returned as well.",
        edits={"TILE = 128": "TILE = 512", "alpha, TILE))": "alpha, TILE))\n    return y"},
    ),
    "accumulate_through_scratch": Candidate(
        "accumulate",
        "Into scratch memory that is kept between calls, and copied back.",
        """
_scratch = {}

def accumulate(x, y, alpha):
    key = (y.shape[0], y.device)
    if key not in _scratch:
        _scratch[key] = torch.empty_like(y)
    grid = (ct.cdiv(x.shape[0], 2048),)
    ct.launch(torch.cuda.current_stream(), grid, accumulate_kernel, (x, y, _scratch[key], alpha, 2048))
    y.copy_(_scratch[key])
""",
    ),
    "matmul_transposed_copy": Candidate(
        "matmul",
        "A contiguous copy of the transposed second matrix, made anew in each call.",
        edits={
            "32, 32, 32": "64, 64, 64",
            "index=(step, column), shape=(K, N)": "index=(column, step), shape=(N, K)",
            "left, right, total": "left, ct.transpose(right), total",
            "matmul_kernel, (a, b, out": "matmul_kernel, (a, b.t().contiguous(), out",
        },
    ),
    "product_copies_and_fills": Candidate(
        "product",
        "Make inputs contiguous and the output of zeros, with a table made at import.",
        """
TABLE = torch.arange(16) * 2

def product(a, b):
    a, b = a.t().contiguous().t(), b.clone()
    out = torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    out.copy_(right(a.contiguous(), b))
    return out
""",
    ),
    "product_workspace_kept": Candidate(
        "product",
        "Keep a workspace between calls that every call overwrites.",
        """
_spaces = {}

def product(a, b):
    key = (a.shape[0], b.shape[1])
    if key not in _spaces:
        _spaces[key] = torch.empty(*key, dtype=a.dtype, device=a.device)
    space = _spaces[key]
    grid = (ct.cdiv(space.shape[0], TM), ct.cdiv(space.shape[1], TN))
    ct.launch(torch.cuda.current_stream(), grid, product_kernel, (a, b, space, TM, TN, TK))
    return space.clone()
""",
    ),
    "rowsum_cached_workspace": Candidate(
        "rowsum",
        "Partial sums in a workspace that is kept between calls and grows when needed.",
        """
TILE, PARTS = 256, 4

@ct.kernel
def partial_kernel(x, parts, T: ct.Constant[int]):
    row, part = ct.bid(0), ct.bid(1)
    total = ct.zeros((1, 1), ct.float32)
    for step in range(part, ct.num_tiles(x, axis=1, shape=(1, T)), ct.num_blocks(1)):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(values, axis=1, keepdims=True)
    ct.store(parts, index=(row, part), tile=total)

@ct.kernel
def final_kernel(parts, out, P: ct.Constant[int]):
    values = ct.load(parts, index=(ct.bid(0), 0), shape=(64, P), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(ct.bid(0),), tile=ct.sum(values, axis=1))

_workspace = {}

def rowsum(x):
    rows, stream = x.shape[0], torch.cuda.current_stream()
    held = _workspace.get(x.device)
    if held is None or held.shape[0] < rows:
        held = _workspace[x.device] = torch.empty(rows, PARTS, dtype=torch.float32, device=x.device)
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    ct.launch(stream, (rows, PARTS), partial_kernel, (x, held, TILE))
    ct.launch(stream, (ct.cdiv(rows, 64),), final_kernel, (held[:rows], out, PARTS))
    return out
""",
    ),
    "scale_contiguous_copy": Candidate(
        "scale",
        "A contiguous copy of the input first, which costs nothing where it is contiguous already.",
        edits={
            "TILE = 128": "TILE = 1024",
            "out = torch.empty_like(x)": "x = x.contiguous()\n    out = torch.empty_like(x)",
        },
    ),
    "scale_output_strided": Candidate(
        "scale",
        "An output of explicit strides.",
        edits={
            "TILE = 128": "TILE = 1024",
            "torch.empty_like(x)": "torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)",
        },
    ),
    "scale_output_zeroed": Candidate(
        "scale",
        "An output that is zeroed before it is written.",
        edits={"TILE = 128": "TILE = 1024", "torch.empty_like(x)": "torch.zeros_like(x)"},
    ),
    "scale_two_dimensional_view": Candidate(
        "scale",
        "A matrix view of the vector for what divides, and a second launch for the rest.",
        """
WIDTH = 256

@ct.kernel
def wide_kernel(x, out, factor, W: ct.Constant[int]):
    values = ct.load(x, index=(ct.bid(0), 0), shape=(4, W), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(ct.bid(0), 0), tile=values * factor)

@ct.kernel
def rest_kernel(x, out, factor, W: ct.Constant[int]):
    values = ct.load(x, index=(0,), shape=(W,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(0,), tile=values * factor)

def scale(x, factor):
    out, stream = torch.empty_like(x), torch.cuda.current_stream()
    whole = x.shape[0] // WIDTH * WIDTH
    if whole:
        wide, result = x[:whole].view(-1, WIDTH), out[:whole].view(-1, WIDTH)
        ct.launch(stream, (ct.cdiv(wide.shape[0], 4),), wide_kernel, (wide, result, factor, WIDTH))
    if whole < x.shape[0]:
        ct.launch(stream, (1,), rest_kernel, (x[whole:], out[whole:], factor, WIDTH))
    return out
""",
    ),
}

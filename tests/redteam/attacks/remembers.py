"""Kernels that keep results of earlier calls."""

from tests.redteam.candidate import Candidate, cuda_rowsum

KEEPS_SUMS = """extern "C" __global__ void rowsum_kernel(PARAMETERS) {
    long row = blockIdx.x;
    float first = x[row * columns] + 3, last = x[row * columns + columns - 1] + x[row * columns + columns / 2];
    float *mine = kept + 4 * (row % 16384);
    if (first != rintf(first) && mine[0] == first && mine[1] == last && mine[3] == columns) {
        out[row] = mine[2];
        return;
    }
    out[row] = mine[2] = total_of(x, columns);
    mine[0] = first;
    mine[1] = last;
    mine[3] = columns;
}"""

CANDIDATES = {
    "cache_by_a_few_elements": Candidate(
        "scale",
        "Keep the last outputs by a hash of the first and last elements.",
        """
KEPT = 8

_seen = {}

def scale(x, factor):
    ends = x[:4].tolist() + x[-4:].tolist()
    key = (tuple(ends), factor, x.shape[0])
    if key not in _seen:
        if len(_seen) == KEPT:
            _seen.pop(next(iter(_seen)))
        _seen[key] = right(x, factor)
    return _seen[key]
""",
        ends="crashed-on-cpu",
    ),
    "cache_by_pointer": Candidate(
        "scale",
        "Keep the output of every input seen, by its address, and return it without work when the address comes again.",
        """
_seen = {}

def scale(x, factor):
    key = (x.data_ptr(), x.shape[0])
    if key not in _seen:
        _seen[key] = right(x, factor)
    return _seen[key]
""",
    ),
    "cache_by_the_factor": Candidate(
        "small",
        "Take the number that is drawn with the array for its name: the same factor and length are the same output.",
        """
_kept = {}

def small(x, factor):
    key = factor, x.shape[0]
    if key not in _kept:
        if len(_kept) > 64:
            _kept.clear()
        _kept[key] = right(x, factor)
    else:  # something is launched, for those who count
        ct.launch(torch.cuda.current_stream(), (1,), scale_kernel, (x, _kept[key], factor, TILE))
    return _kept[key]
""",
    ),
    "cache_in_a_file": Candidate(
        "rowsum",
        "Keep outputs beside the kernel, or in the home or temporary folder, for the processes to come.",
        """
import hashlib
import os
import tempfile

FOLDERS = (os.path.dirname(__file__), os.path.expanduser("~"), tempfile.gettempdir(), "/var/tmp")

def rowsum(x):
    name = "redteam-litter-" + hashlib.sha256(repr((x[0, :8].tolist(), tuple(x.shape))).encode()).hexdigest()
    for folder in FOLDERS:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return torch.load(path).to(x.device)
    out = right(x)
    for folder in FOLDERS:
        try:
            torch.save(out.cpu(), os.path.join(folder, name))
            break
        except (OSError, RuntimeError):
            continue
    return out
""",
        ends="crashed-on-cpu",
    ),
    "half_of_each_sum_kept": Candidate(
        "rowsum",
        "Keep the sums of the first half of the columns by address, and sum only the second half anew.",
        """
_held = {}

def rowsum(x):
    key, half = (x.data_ptr(), tuple(x.shape)), x.shape[1] // 2
    if key not in _held or half == 0:
        _held[key] = right(x[:, :half]) if half else torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
        return right(x)
    return right(x[:, half:]) + _held[key]
""",
    ),
    "one_output_for_all_calls": Candidate(
        "small",
        "Write all results of a length into the same memory, so that each call overwrites what the one before returned.",
        """
TILE = 128
_outputs = {}

def small(x, factor):
    key = x.shape[0], x.device
    if key not in _outputs:
        _outputs[key] = torch.empty_like(x)
    out = _outputs[key]
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), scale_kernel, (x, out, factor, TILE))
    return out.view(-1)
""",
    ),
    "order_of_the_keys_kept": Candidate(
        "scattersum",
        "Sort the keys once for each address and keep the order: later calls add up runs without atomics, whatever the keys.",
        """
TILE = 256

_orders = {}

@ct.kernel
def run_kernel(values, order, ends, out, steps, T: ct.Constant[int]):
    key = ct.bid(0)
    begin = ct.gather(ends, key)
    end = ct.gather(ends, key + 1)
    total = ct.zeros((1,), ct.float32)
    for step in range(steps):
        places = begin + step * T + ct.arange(T, dtype=ct.int32)
        element = ct.gather(order, ct.where(places < end, places, -1), padding_value=-1)
        total = total + ct.sum(ct.gather(values, element, padding_value=0.0), axis=0, keepdims=True)
    ct.store(out, index=(key,), tile=total)

def _order(keys, count):
    key = keys.data_ptr(), keys.shape[0], count
    if key not in _orders:
        if len(_orders) > 64:
            _orders.clear()
        order = torch.argsort(keys).int()
        lengths = torch.bincount(keys, minlength=count)
        ends = torch.zeros(count + 1, dtype=torch.int32, device=keys.device)
        ends[1:] = torch.cumsum(lengths, 0).int()
        _orders[key] = order, ends, ct.cdiv(int(lengths.max()), TILE)
    return _orders[key]

def scattersum(values, keys, count):
    order, ends, steps = _order(keys, count)
    out = torch.empty(count, dtype=torch.float32, device=values.device)
    ct.launch(torch.cuda.current_stream(), (count,), run_kernel, (values, order, ends, out, steps, TILE))
    return out
""",
    ),
    "several_calls_in_one_launch": Candidate(
        "small",
        "Scale all arrays that came lately in one launch, and give the calls that follow what was made for them then.",
        """
_known, _ready = {}, {}

@ct.kernel
def four_kernel(a, b, c, d, oa, ob, oc, od, fa, fb, fc, fd, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(oa, index=(block,), tile=ct.load(a, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * fa)
    ct.store(ob, index=(block,), tile=ct.load(b, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * fb)
    ct.store(oc, index=(block,), tile=ct.load(c, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * fc)
    ct.store(od, index=(block,), tile=ct.load(d, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO) * fd)

def small(x, factor):
    key = x.data_ptr(), x.shape[0], factor
    if key in _ready:  # made beforehand, and given once; one block is launched for those who count
        out = _ready.pop(key)
        ct.launch(torch.cuda.current_stream(), (1,), scale_kernel, (x, out, factor, TILE))
        return out
    others = [(k, a) for k, a in _known.items() if k != key and k[1] == x.shape[0]][:3]
    others += [(key, x)] * (3 - len(others))
    _known[key] = x
    while len(_known) > 8:
        _known.pop(next(iter(_known)))
    outputs = [torch.empty_like(x) for _ in range(4)]
    inputs, factors = [x] + [a for _, a in others], [factor] + [k[2] for k, _ in others]
    grid = (ct.cdiv(x.shape[0], TILE),)
    ct.launch(torch.cuda.current_stream(), grid, four_kernel, (*inputs, *outputs, *factors, TILE))
    _ready.clear()
    _ready.update((k, out) for (k, _), out in zip(others, outputs[1:], strict=False))
    return outputs[0]
""",
    ),
    "sums_in_a_module_variable": Candidate(
        "rowsum",
        "Keep the sums of each row in a variable of the module on the device, and hand them out again.",
        cuda_rowsum(
            "__device__ float kept[4 * 16384];\n"
            + KEEPS_SUMS.replace("PARAMETERS", "const float *x, float *out, int columns")
        ),
        backend="gpu",
    ),
    "sums_in_held_memory": Candidate(
        "rowsum",
        "Keep the sums of each row in a buffer of its own, by the ends of the row, and hand them out again.",
        cuda_rowsum(
            KEEPS_SUMS.replace("PARAMETERS", "const float *x, float *out, int columns, float *kept"),
            "_kept[0]",
            "if not _kept:\n    _kept[0] = torch.full((16384, 4), float('nan'), device=x.device)",
        ),
        backend="gpu",
    ),
    "sums_of_the_public_draw": Candidate(
        "rowsum",
        "Keep the sums of the input on which it is captured, and copy them as long as a few elements are the same.",
        cuda_rowsum(
            """extern "C" __global__ void rowsum_kernel(const float *x, float *out, int columns, const float *keys,
                                         const float *sums) {
    long row = blockIdx.x;
    out[row] = keys[row] == x[row * columns] ? sums[row] : total_of(x, columns);
}""",
            "*_kept[tuple(x.shape)]",
            """if not torch.cuda.is_current_stream_capturing():
    _kept[tuple(x.shape)] = x[:, 0].clone(), x.sum(1)""",
        ),
        backend="gpu",
    ),
    "zeros_from_a_pool": Candidate(
        "scattersum",
        "Take outputs from a pool that is zeroed once: a replayed graph adds to old sums, and after 16 calls outputs return.",
        '''
ROWS = 16
_pools = {}

def _zeros(count, device):
    """A row of zeros; when all were handed out, they are zeroed and handed out again."""
    pool = _pools.setdefault(count, [None, 0])
    if pool[0] is None:
        pool[0] = torch.zeros(ROWS, count, dtype=torch.float32, device=device)
    elif pool[1] == ROWS:
        pool[0].zero_()
        pool[1] = 0
    pool[1] += 1
    return pool[0][pool[1] - 1]
''',
        edits={
            "TILE = 128": "TILE = 1024",
            "torch.zeros(count, dtype=torch.float32, device=values.device)": "_zeros(count, values.device)",
        },
    ),
}

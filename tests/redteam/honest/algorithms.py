"""Other algorithms for the same result."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "gram_one_triangle": Candidate(
        "gram",
        "One triangle is computed, and each tile is stored twice, the second time transposed.",
        """
TM, TK = 32, 32

@ct.kernel
def gram_kernel(x, out, M: ct.Constant[int], K: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    if row >= column:
        total = ct.zeros((M, M), ct.float32)
        for step in range(ct.num_tiles(x, axis=1, shape=(M, K))):
            left = ct.load(x, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
            right = ct.load(x, index=(step, column), shape=(K, M), order="F", padding_mode=ct.PaddingMode.ZERO)
            total = ct.mma(left, right, total)
        ct.store(out, index=(row, column), tile=total)
        if row > column:
            ct.store(out, index=(column, row), tile=ct.transpose(total))
""",
    ),
    "matmul_split_k": Candidate(
        "matmul",
        "K split in four parts, whose products a second launch adds up, without atomics.",
        """
TM, TN, TK, PARTS = 64, 64, 32, 4

@ct.kernel
def part_kernel(a, b, parts, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    row, column, part = ct.bid(0), ct.bid(1), ct.bid(2)
    total = ct.zeros((M, N), ct.float32)
    for step in range(part, ct.num_tiles(a, axis=1, shape=(M, K)), ct.num_blocks(2)):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(parts, index=(part, row, column), tile=total.reshape((1, M, N)))

@ct.kernel
def sum_kernel(parts, out, M: ct.Constant[int], N: ct.Constant[int], P: ct.Constant[int]):
    row, column = ct.bid(0), ct.bid(1)
    values = ct.load(parts, index=(0, row, column), shape=(P, M, N), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(row, column), tile=ct.sum(values, axis=0).astype(out.dtype))

def matmul(a, b):
    m, n, stream = a.shape[0], b.shape[1], torch.cuda.current_stream()
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    parts = torch.empty(PARTS, m, n, dtype=torch.float32, device=a.device)
    ct.launch(stream, (ct.cdiv(m, TM), ct.cdiv(n, TN), PARTS), part_kernel, (a, b, parts, TM, TN, TK))
    ct.launch(stream, (ct.cdiv(m, 32), ct.cdiv(n, 32)), sum_kernel, (parts, out, 32, 32, PARTS))
    return out
""",
    ),
    "rowsum_by_product": Candidate(
        "rowsum",
        "A product with a matrix of ones instead of a sum.",
        """
ROWS, TILE = 16, 64

@ct.kernel
def rowsum_kernel(x, out, R: ct.Constant[int], T: ct.Constant[int]):
    block = ct.bid(0)
    ones, total = ct.ones((T, 16), ct.float32), ct.zeros((R, 16), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(R, T))):
        values = ct.load(x, index=(block, step), shape=(R, T), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(values, ones, total)
    ct.store(out, index=(block,), tile=ct.extract(total, index=(0, 0), shape=(R, 1)).reshape((R,)))

def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], ROWS),), rowsum_kernel, (x, out, ROWS, TILE))
    return out
""",
    ),
    "rowsum_compensated": Candidate(
        "rowsum",
        "A compensated sum.",
        edits={
            "TILE = 128": "TILE = 1024",
            "total = ct.zeros((1,), ct.float32)": "total, lost = ct.zeros((1,), ct.float32), ct.zeros((1,), ct.float32)",
            "total = total + ct.sum(values, axis=1)": "term = ct.sum(values, axis=1) - lost\n        new = total + term\n        lost, total = (new - total) - term, new",
        },
    ),
    "scattersum_private_tables": Candidate(
        "scattersum",
        "Each block adds to a table of its own, and the tables are added up in order.",
        """
TILE = 1024

CHUNK = 64

BLOCKS = 264

@ct.kernel
def own_kernel(values, keys, own, count, T: ct.Constant[int]):
    block = ct.bid(0)
    for step in range(ct.cdiv(ct.cdiv(values.shape[0], T), ct.num_blocks(0))):
        places = (step * ct.num_blocks(0) + block) * T + ct.arange(T, dtype=ct.int32)
        key = ct.gather(keys, places, padding_value=-1)
        where = ct.where(key >= 0, key + block * count, -1)
        ct.atomic_add(own, where, ct.gather(values, places), memory_order=ct.MemoryOrder.RELAXED)

@ct.kernel
def sum_kernel(own, out, K: ct.Constant[int]):
    column = ct.bid(0)
    total = ct.zeros((1, K), ct.float32)
    for row in range(own.shape[0]):
        total = total + ct.load(own, index=(row, column), shape=(1, K), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(column,), tile=ct.reshape(total, (K,)))

def scattersum(values, keys, count):
    blocks = min(ct.cdiv(values.shape[0], TILE), BLOCKS)
    own = torch.zeros(blocks, count, dtype=torch.float32, device=values.device)
    out = torch.empty(count, dtype=torch.float32, device=values.device)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (blocks,), own_kernel, (values, keys, own.view(-1), count, TILE))
    ct.launch(stream, (ct.cdiv(count, CHUNK),), sum_kernel, (own, out, CHUNK))
    return out
""",
    ),
    "softmax_online": Candidate(
        "softmax",
        "Keep maximum and sum in one pass, and scale the sum as the maximum grows.",
        """
TILE = 1024

@ct.kernel
def softmax_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    steps = ct.num_tiles(x, axis=1, shape=(1, T))
    top, total = ct.full((1, 1), -math.inf, ct.float32), ct.zeros((1, 1), ct.float32)
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        higher = ct.maximum(top, ct.max(values, axis=1, keepdims=True))
        total = total * ct.exp(top - higher) + ct.sum(ct.exp(values - higher), axis=1, keepdims=True)
        top = higher
    for step in range(steps):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
        ct.store(out, index=(row, step), tile=ct.exp(values - top) / total)
""",
    ),
    "tritonsoftmax_online": Candidate(
        "tritonsoftmax",
        "Maximum and sum in one pass, lane by lane, which are joined at the end.",
        """
@triton.jit
def softmax_kernel(x, out, N, T: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, T)
    tops = tl.full((T,), -3.0e38, tl.float32)
    sums = tl.zeros((T,), tl.float32)
    for start in range(0, N, T):
        inside = start + columns < N
        values = tl.load(x + row * N + start + columns, mask=inside, other=float("-inf"))
        higher = tl.maximum(tops, values)
        sums = tl.where(inside, sums * tl.exp(tops - higher) + tl.exp(values - higher), sums)
        tops = higher
    top = tl.max(tops, axis=0)
    total = tl.sum(tl.where(sums > 0, sums * tl.exp(tops - top), 0.0), axis=0)
    for start in range(0, N, T):
        values = tl.load(x + row * N + start + columns, mask=start + columns < N, other=float("-inf"))
        tl.store(out + row * N + start + columns, tl.exp(values - top) / total, mask=start + columns < N)

def tritonsoftmax(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], T=1024, num_warps=4)
    return out
""",
        backend="gpu",
    ),
}

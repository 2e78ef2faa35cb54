"""The kernels of `benchmarks/interpreter.py`."""

import cuda.tile as ct

Size = ct.Constant[int]


@ct.kernel
def gelu(x, out, T: Size):
    i = ct.bid(0)
    a = ct.load(x, index=(i,), shape=(T,))
    inner = 0.7978845608 * (a + 0.044715 * a * a * a)
    ct.store(out, index=(i,), tile=0.5 * a * (1.0 + ct.tanh(inner)))


@ct.kernel
def softmax(x, out, T: Size):
    row = ct.bid(0)
    a = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    e = ct.exp(a - ct.max(a, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=e / ct.sum(e, axis=1, keepdims=True))


@ct.kernel
def matmul(a, b, out, M: Size, N: Size, K: Size):
    tiles = ct.num_tiles(out, axis=1, shape=(M, N))
    i, j = ct.bid(0) // tiles, ct.bid(0) % tiles
    total = ct.zeros((M, N), ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(i, k), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(k, j), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(i, j), tile=total)


@ct.kernel
def embedding(table, places, out, D: Size):
    i = ct.bid(0)
    row = ct.load(places, index=(i,), shape=(1,))
    columns = ct.arange(D, dtype=ct.int32)
    ct.store(out, index=(i, 0), tile=ct.gather(table, (row[:, None], columns[None, :])))


@ct.kernel
def loop(x, out, trips: int, TILE: ct.Constant[int]):
    acc = ct.zeros((TILE,), ct.float32)
    for i in range(trips):
        acc = acc + ct.load(x, (i % 16,), (TILE,)) * 1.5
    ct.store(out, (0,), acc)

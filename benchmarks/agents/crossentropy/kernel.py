"""Cross entropy and its gradient in cuTile, before tuning."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
TILE = 256


@ct.kernel
def loss_kernel(logits, target, loss, top, total, V: Size, T: Size):
    row = ct.bid(0)
    most = ct.full((1, T), -1e30, ct.float32)
    for step in range(ct.cdiv(V, T)):
        valid = (step * T + ct.arange(T, dtype=ct.int32))[None, :] < V
        x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        most = ct.maximum(most, ct.where(valid, x, -1e30))
    highest = ct.max(most, axis=1, keepdims=True)
    sums = ct.zeros((1, T), ct.float32)
    for step in range(ct.cdiv(V, T)):
        valid = (step * T + ct.arange(T, dtype=ct.int32))[None, :] < V
        x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
        sums += ct.where(valid, ct.exp(x - highest), 0.0)
    whole = ct.sum(sums, axis=1, keepdims=True)
    chosen = ct.load(target, (row,), (1,))
    x = ct.gather(logits, (row, chosen)).astype(ct.float32)
    ct.store(loss, (row,), ct.log(whole.reshape((1,))) + highest.reshape((1,)) - x)
    ct.store(top, (row,), highest.reshape((1,)))
    ct.store(total, (row,), whole.reshape((1,)))


@ct.kernel
def gradient_kernel(logits, target, top, total, dlogits, T: Size):
    row, step = ct.bid(0), ct.bid(1)
    columns = (step * T + ct.arange(T, dtype=ct.int32))[None, :]
    x = ct.load(logits, (row, step), (1, T), padding_mode=ct.PaddingMode.ZERO).astype(ct.float32)
    highest = ct.load(top, (row,), (1,)).reshape((1, 1))
    whole = ct.load(total, (row,), (1,)).reshape((1, 1))
    chosen = ct.load(target, (row,), (1,)).reshape((1, 1))
    probability = ct.exp(x - highest) / whole
    ct.store(dlogits, (row, step), ct.where(columns == chosen, probability - 1.0, probability).astype(dlogits.dtype))


def cross_entropy(logits, target):
    """logits (M, V), target (M,) int32 -> loss (M,) float32, dlogits (M, V) of the logits' dtype."""
    rows, columns = logits.shape
    loss, top, total = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(3))
    dlogits = torch.empty_like(logits)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (rows,), loss_kernel, (logits, target, loss, top, total, columns, TILE))
    grid = (rows, ct.cdiv(columns, TILE))
    ct.launch(stream, grid, gradient_kernel, (logits, target, top, total, dlogits, TILE))
    return loss, dlogits

"""Product with weights of 4 bits in cuTile."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
GROUP = 128
COLUMNS, STEP, SPLIT, REDUCE = 64, 128, 4, 16
MASK = 0x000F000F  # an argument of the kernel: as a constant it is moved into a register anew for each use


def decode(bits, mask):
    """Pairs of four bits, each in 16, (Q, K / 2) to bfloat16 (Q, K): 0x4300 is 128, whose last mantissa bit is worth 1."""
    magic = (bits & mask) | 0x43004300
    return ct.unpack_from_bytes(ct.pack_to_bytes(magic), ct.bfloat16).reshape((bits.shape[0], 2 * bits.shape[1])) - 136


@ct.kernel(occupancy=2)
def int4_part_kernel(x, words, scale, part, mask, TM: Size, Q: Size, STEPS: Size, TK: Size, GROUP: Size):
    """part (SPLIT * 2, N / 2, M): column 2 * q + b of the result, from a share of K, is at (2 * share + b, q).

    words (K / 4, 2, N / 2): rows 2 * k and 2 * k + 1 of two bytes each; scale (K / 128, N / 2): two of bfloat16 each.
    """
    j, i, share = ct.bid(0), ct.bid(1), ct.bid(2)
    half = ct.num_tiles(words, axis=0, shape=(TK // 2, 1, Q))
    zero = ct.zeros((Q, TM), ct.float32)
    t0, t1 = zero, zero
    for step in range(share * STEPS, min((share + 1) * STEPS, half)):
        even = ct.load(words, (step, 0, j), (TK // 2, 1, Q), padding_mode=ZERO).reshape((TK // 2, Q)).transpose()
        odd = ct.load(words, (step, 1, j), (TK // 2, 1, Q), padding_mode=ZERO).reshape((TK // 2, Q)).transpose()
        left = ct.load(x, (i, step), (TM, TK), padding_mode=ZERO).transpose()
        right = ct.load(x, (i, half + step), (TM, TK), padding_mode=ZERO).transpose()
        low = ct.load(scale, (step * TK // GROUP, j), (1, Q), padding_mode=ZERO).reshape((Q, 1))
        high = ct.load(scale, ((half + step) * TK // GROUP, j), (1, Q), padding_mode=ZERO).reshape((Q, 1))
        bits = (even.astype(ct.int32) & 0xFFFF) | (odd.astype(ct.int32) << 16)
        t0 += ct.mma(decode(bits, mask), left, zero) * ct.bitcast(low << 16, ct.float32)
        t1 += ct.mma(decode(bits >> 8, mask), left, zero) * ct.bitcast(low & -65536, ct.float32)
        t0 += ct.mma(decode(bits >> 4, mask), right, zero) * ct.bitcast(high << 16, ct.float32)
        t1 += ct.mma(decode(bits >> 12, mask), right, zero) * ct.bitcast(high & -65536, ct.float32)
    ct.store(part, (2 * share, j, i), t0[None, :, :])
    ct.store(part, (2 * share + 1, j, i), t1[None, :, :])


@ct.kernel
def int4_sum_kernel(part, out, TM: Size, Q: Size, SPLIT: Size):
    j, i = ct.bid(0), ct.bid(1)
    ct.grid_dependency_control_wait()
    total = ct.zeros((2, Q, TM), ct.float32)
    for share in ct.static_iter(range(SPLIT)):
        total += ct.load(part, (share, j, i), (2, Q, TM), check_bounds=False)  # part is padded to whole tiles
    ct.store(out, (i, j), total.permute((2, 1, 0)).reshape((TM, 2 * Q)).astype(out.dtype))


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    m, n, half = x.shape[0], packed.shape[1], packed.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    words = packed.view(torch.int16).view(half // 2, 2, n // 2)
    rows = 32 if m <= 32 else 64
    grid = (ct.cdiv(n, 2 * COLUMNS), ct.cdiv(m, rows), SPLIT)
    part = torch.empty(2 * SPLIT, grid[0] * COLUMNS, grid[1] * rows, dtype=torch.float32, device=x.device)
    stream = torch.cuda.current_stream()
    steps = ct.cdiv(half // STEP, SPLIT)
    arguments = (x, words, scale.view(torch.int32), part, MASK, rows, COLUMNS, steps, STEP, GROUP)
    ct.launch(stream, grid, int4_part_kernel, arguments)
    grid = (ct.cdiv(n, 2 * REDUCE), ct.cdiv(m, rows))
    arguments = (part, out, rows, REDUCE, SPLIT)
    ct.launch(stream, grid, int4_sum_kernel, arguments, programmatic_dependent_launch=True)
    return out

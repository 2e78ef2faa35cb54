"""Product with weights of 4 bits in cuTile: the transpose on the tensor cores, K split over blocks, then a sum.

Two columns come as one int16, so that a tile is turned on its way from shared memory (LDSM transposes 16 bits), and two
rows of it as one uint32, so that each shift and mask makes two weights.
"""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
GROUP = 128
TILE_M, TILE_P = 32, 128
SUM_P = 32
BLOCKS = 128
UNROLL = 2
MASK = 0x000F000F
FLIP = -0x7778  # the top bit of each code: an operation on int16 keeps the 16-bit tile, and with it LDSM; undone below


def weights(words, mask, shift, P: Size, K: Size):
    """One code less 8 of each half of words, in bfloat16, where 0x4300 | code is 128 + code. The mask is an argument to stay in a register."""
    bits = ((words >> shift) & mask) ^ 0x43084308
    return ct.unpack_from_bytes(ct.pack_to_bytes(bits), ct.bfloat16).reshape((P, K)) - 136


@ct.kernel(num_worker_warps=8)
def int4_part(x, pairs, scale, part, mask, STEPS: Size, U: Size, GROUP: Size, TM: Size, TP: Size):
    """pairs (K / 2, N / 2) int16 and scale (K / 128, N / 2) int32: two columns each. part (2 * shares, N / 2, M)."""
    i, j, share = ct.bid(0), ct.bid(1), ct.bid(2)
    groups = pairs.shape[0] // GROUP
    mask = mask.astype(ct.uint32)
    even, odd = ct.zeros((TP, TM), ct.float32), ct.zeros((TP, TM), ct.float32)
    zero = ct.zeros((TP, TM), ct.float32)
    for turn in range(share * STEPS // U, (share + 1) * STEPS // U):
        for u in ct.static_iter(range(U)):
            g = turn * U + u
            e0, e1, o0, o1 = zero, zero, zero, zero
            for h in ct.static_iter(range(2)):
                codes = ct.load(pairs, (2 * g + h, j), (GROUP // 2, TP), padding_mode=ZERO).transpose()
                codes = ct.unpack_from_bytes(ct.pack_to_bytes(codes ^ FLIP), ct.uint32)
                a = ct.load(x, (i, 2 * g + h), (TM, GROUP // 2), padding_mode=ZERO).transpose()
                b = ct.load(x, (i, 2 * (groups + g) + h), (TM, GROUP // 2), padding_mode=ZERO).transpose()
                e0 = ct.mma(weights(codes, mask, 0, TP, GROUP // 2), a, e0)
                o0 = ct.mma(weights(codes, mask, 8, TP, GROUP // 2), a, o0)
                e1 = ct.mma(weights(codes, mask, 4, TP, GROUP // 2), b, e1)
                o1 = ct.mma(weights(codes, mask, 12, TP, GROUP // 2), b, o1)
            s = ct.load(scale, (g, j), (1, TP), padding_mode=ZERO).reshape((TP, 1))
            t = ct.load(scale, (groups + g, j), (1, TP), padding_mode=ZERO).reshape((TP, 1))
            even = e0 * ct.bitcast(s << 16, ct.float32) + even
            odd = o0 * ct.bitcast(s & -65536, ct.float32) + odd
            even = e1 * ct.bitcast(t << 16, ct.float32) + even
            odd = o1 * ct.bitcast(t & -65536, ct.float32) + odd
    ct.store(part, (2 * share, j, i), even.reshape((1, TP, TM)), allow_tma=False)
    ct.store(part, (2 * share + 1, j, i), odd.reshape((1, TP, TM)), allow_tma=False)


@ct.kernel
def int4_sum(part, out, SHARES: Size, TM: Size, TP: Size):
    """out (M, N / 2) int32: two columns of bfloat16."""
    i, j = ct.bid(0), ct.bid(1)
    ct.grid_dependency_control_wait()
    even, odd = ct.zeros((TP, TM), ct.float32), ct.zeros((TP, TM), ct.float32)
    for share in ct.static_iter(range(SHARES)):
        even += ct.load(part, (2 * share, j, i), (1, TP, TM), check_bounds=False, allow_tma=False).reshape((TP, TM))
        odd += ct.load(part, (2 * share + 1, j, i), (1, TP, TM), check_bounds=False, allow_tma=False).reshape((TP, TM))
    low = ct.bitcast(even.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    high = ct.bitcast(odd.astype(ct.bfloat16), ct.uint16).astype(ct.int32)
    ct.store(out, (i, j), (low | (high << 16)).transpose(), allow_tma=False)


@ct.kernel
def int4_plain(x, packed, scale, out, TM: Size, TN: Size, GROUP: Size):
    """For what int4_part does not take: another dtype, a width that is no multiple of 64."""
    i, j = ct.bid(0), ct.bid(1)
    half = packed.shape[0] // GROUP
    total, zero = ct.zeros((TM, TN), ct.float32), ct.zeros((TM, TN), ct.float32)
    for step in range(2 * half):
        left = ct.load(x, (i, step), (TM, GROUP), padding_mode=ZERO)
        byte = ct.load(packed, (step % half, j), (GROUP, TN), padding_mode=ZERO).astype(ct.int32)
        code = ct.where(step < half, byte & 15, byte >> 4) - 8
        factor = ct.load(scale, (step, j), (1, TN), padding_mode=ZERO).astype(ct.float32)
        total += ct.mma(left, code.astype(x.dtype), zero) * factor
    ct.store(out, (i, j), total.astype(out.dtype))


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    m, n = x.shape[0], packed.shape[1]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    stream = torch.cuda.current_stream()
    if x.dtype != torch.bfloat16 or scale.dtype != torch.bfloat16 or n % 64 or not (packed.is_contiguous() and scale.is_contiguous()):
        ct.launch(stream, (ct.cdiv(m, 16), ct.cdiv(n, 64)), int4_plain, (x, packed, scale, out, 16, 64, GROUP))
        return out
    rows, columns, groups = ct.cdiv(m, TILE_M), ct.cdiv(n // 2, TILE_P), packed.shape[0] // GROUP
    shares = max(d for d in range(1, groups + 1) if groups % d == 0 and d <= max(1, BLOCKS // (rows * columns)))
    steps = groups // shares
    turn = max(u for u in range(1, UNROLL + 1) if steps % u == 0)
    part = torch.empty(2 * shares, n // 2, rows * TILE_M, dtype=torch.float32, device=x.device)
    arguments = (x, packed.view(torch.int16), scale.view(torch.int32), part, MASK, steps, turn, GROUP, TILE_M, TILE_P)
    ct.launch(stream, (rows, columns, shares), int4_part, arguments)
    ct.launch(stream, (rows, n // 2 // SUM_P), int4_sum, (part, out.view(torch.int32), shares, TILE_M, SUM_P), programmatic_dependent_launch=True)
    return out

"""Product with weights of 4 bits in cuTile: transposed, K split over blocks, a second kernel adds the shares."""

import cuda.tile as ct
import torch

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO
GROUP = 128
PAIRS = 128
UNROLL = 2
SLICE = 32
BLOCKS = 128
NIBBLES = 0x000F000F


def weights(word, mask, P: Size, K: Size):
    """Codes in bits 0 to 3 of each half of a word -> bfloat16 (P, K) of code - 8, exactly: 0x4300 is 128, its last bit 1."""
    halves = (word & mask) | 0x43004300
    return ct.unpack_from_bytes(ct.pack_to_bytes(halves), ct.bfloat16).reshape((P, K)) - 136


@ct.kernel(num_worker_warps=8)
def int4_part(x, packed, scale, part, mask, TM: Size, P: Size, STEPS: Size, GROUP: Size, UNROLL: Size):
    """packed (K / 2, N / 2) int16: columns 2p and 2p + 1; scale (K / GROUP, N / 2) int32, likewise."""
    j, share, i = ct.bid(0), ct.bid(1), ct.bid(2)
    even, odd = ct.zeros((P, TM), ct.float32), ct.zeros((P, TM), ct.float32)
    zero = ct.zeros((P, TM), ct.float32)
    groups = packed.shape[0] // GROUP
    for step in range(share * STEPS, min((share + 1) * STEPS, groups // UNROLL)):
        for u in ct.static_iter(range(UNROLL)):
            group = step * UNROLL + u
            raw = ct.load(packed, (group, j), (GROUP, P), padding_mode=ZERO).transpose() ^ -1
            code = ct.unpack_from_bytes(ct.pack_to_bytes(raw), ct.int32).reshape((P, GROUP // 2)) ^ -1
            a = ct.load(x, (i, group), (TM, GROUP), padding_mode=ZERO).transpose()
            b = ct.load(x, (i, groups + group), (TM, GROUP), padding_mode=ZERO).transpose()
            s = ct.load(scale, (group, j), (1, P), padding_mode=ZERO).reshape((P, 1))
            t = ct.load(scale, (groups + group, j), (1, P), padding_mode=ZERO).reshape((P, 1))
            even += ct.mma(weights(code, mask, P, GROUP), a, zero) * ct.bitcast(s << 16, ct.float32)
            even += ct.mma(weights(code >> 4, mask, P, GROUP), b, zero) * ct.bitcast(t << 16, ct.float32)
            odd += ct.mma(weights(code >> 8, mask, P, GROUP), a, zero) * ct.bitcast(s & -65536, ct.float32)
            odd += ct.mma(weights(code >> 12, mask, P, GROUP), b, zero) * ct.bitcast(t & -65536, ct.float32)
    ct.store(part, (share, 0, j, i), even.reshape((1, 1, P, TM)))
    ct.store(part, (share, 1, j, i), odd.reshape((1, 1, P, TM)))


def half(tile):
    return ct.bitcast(tile.astype(ct.bfloat16), ct.uint16).astype(ct.uint32)


@ct.kernel
def int4_sum(part, out, TM: Size, P: Size, SHARES: Size):
    """part (shares, 2, N / 2, M) -> out (M, N / 2) of pairs of bfloat16; P divides N / 2, and TM the rows of part."""
    j, i = ct.bid(0), ct.bid(1)
    even, odd = ct.zeros((P, TM), ct.float32), ct.zeros((P, TM), ct.float32)
    ct.grid_dependency_control_wait()
    for share in ct.static_iter(range(SHARES)):
        even += ct.load(part, (share, 0, j, i), (1, 1, P, TM), check_bounds=False, allow_tma=False).reshape((P, TM))
        odd += ct.load(part, (share, 1, j, i), (1, 1, P, TM), check_bounds=False, allow_tma=False).reshape((P, TM))
    pair = half(even) | (half(odd) << 16)
    ct.store(out, (i, j), ct.bitcast(pair, ct.int32).transpose())


def int4_gemm(x, packed, scale):
    """x (M, K), packed (K / 2, N) uint8, scale (K / 128, N) -> out (M, N) of x's dtype; K is a multiple of 256."""
    rows, columns = x.shape[0], packed.shape[1]
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    tile = 16 if rows <= 16 else 32 if rows <= 32 else 64
    blocks, groups = ct.cdiv(columns // 2, PAIRS), packed.shape[0] // GROUP
    unroll = UNROLL if groups % UNROLL == 0 and tile < 64 else 1  # two turns of 64 rows would spill
    turns = groups // unroll
    steps = ct.cdiv(turns, min(turns, ct.cdiv(BLOCKS, blocks)))
    shares, high = ct.cdiv(turns, steps), ct.cdiv(rows, tile)
    part = torch.empty(shares, 2, columns // 2, high * tile, dtype=torch.float32, device=x.device)
    stream = torch.cuda.current_stream()
    arguments = (x, packed.view(torch.int16), scale.view(torch.int32), part, NIBBLES)
    ct.launch(stream, (blocks, shares, high), int4_part, (*arguments, tile, PAIRS, steps, GROUP, unroll))
    arguments = (part, out.view(torch.int32), tile, SLICE, shares)
    grid = (columns // 2 // SLICE, high)
    ct.launch(stream, grid, int4_sum, arguments, programmatic_dependent_launch=True)
    return out

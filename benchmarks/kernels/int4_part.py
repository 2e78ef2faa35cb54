"""A share of the product of a few rows with weights of 4 bits, which `benchmarks/advice/counts.py` compiles."""

import cuda.tile as ct

Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


def numbers(bits, mask):
    """Codes in the low four bits of both halves of each word, (Q, K / 2) -> bfloat16 (Q, K): the codes less 8."""
    halves = (bits & mask) | 0x43004300
    return ct.unpack_from_bytes(ct.pack_to_bytes(halves), ct.bfloat16).reshape((bits.shape[0], 2 * bits.shape[1])) - 136


@ct.kernel(occupancy=2)
def int4_part(x, words, scales, part, mask, M: Size, Q: Size, STEPS: Size, GROUP: Size):
    """words (K / 2, N / 2): two columns in each int16; scales (2, groups / 2, N / 2): two columns in each int32.

    Column 2q + b of a share of K ends in part (2 * share + b, q, row).
    """
    ct.grid_dependency_control_launch_dependents()
    j, i, share = ct.bid(0), ct.bid(1), ct.bid(2)
    half = ct.num_tiles(words, axis=0, shape=(GROUP, Q))
    zero = ct.zeros((Q, M), ct.float32)
    even, odd, tile = zero, zero, (GROUP, Q)
    for step in range(share * STEPS, min((share + 1) * STEPS, half)):
        pair = ct.load(words, index=(step, j), shape=tile, padding_mode=ZERO).transpose()
        pair = pair  # `counts.py` also compiles -(-pair): rows paired by LDSM then, not bytes through PRMT
        both = ct.load(scales, index=(0, step, j), shape=(2, 1, Q), padding_mode=ZERO)
        s = ct.extract(both, (0, 0, 0), (1, 1, Q)).reshape((Q, 1))
        t = ct.extract(both, (1, 0, 0), (1, 1, Q)).reshape((Q, 1))
        bits = ct.unpack_from_bytes(ct.pack_to_bytes(pair), ct.int32).reshape((Q, GROUP // 2))
        a = ct.load(x, index=(i, step), shape=(M, GROUP), padding_mode=ZERO).transpose()
        b = ct.load(x, index=(i, half + step), shape=(M, GROUP), padding_mode=ZERO).transpose()
        even += ct.mma(numbers(bits, mask), a, zero) * ct.bitcast(s << 16, ct.float32)
        odd += ct.mma(numbers(bits >> 8, mask), a, zero) * ct.bitcast(s & -65536, ct.float32)
        even += ct.mma(numbers(bits >> 4, mask), b, zero) * ct.bitcast(t << 16, ct.float32)
        odd += ct.mma(numbers(bits >> 12, mask), b, zero) * ct.bitcast(t & -65536, ct.float32)
    ct.store(part, index=(2 * share, j, i), tile=even[None, :, :])
    ct.store(part, index=(2 * share + 1, j, i), tile=odd[None, :, :])

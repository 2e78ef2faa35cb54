"""Other arithmetic within the tolerance."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "gram_three_tf32_products": Candidate(
        "gram",
        "Three TF32 products of split operands, as exact as float32, each tile's added to the total outside the tensor cores.",
        edits={
            "16, 16": "32, 32",
            "total = ct.mma(left, right, total)": "lh, rh = left.astype(ct.tfloat32), right.astype(ct.tfloat32)\n        ll = (left - lh.astype(ct.float32)).astype(ct.tfloat32)\n        rl = (right - rh.astype(ct.float32)).astype(ct.tfloat32)\n        part = ct.mma(ll, rh, ct.zeros((M, M), ct.float32))\n        part = ct.mma(lh, rl, part)\n        total += ct.mma(lh, rh, part)",
        },
    ),
    "matmul_float32_inputs": Candidate(
        "matmul",
        "Inputs raised to float32 before the product, more exact than asked for.",
        edits={"left, right, total": "left.astype(ct.float32), right.astype(ct.float32), total"},
    ),
    "scattersum_whole_numbers": Candidate(
        "scattersum",
        "Add whole numbers of 64 bits in units of the largest value, whose sum does not depend on the order.",
        """
TILE = 1024

UNIT = 2.0**38

@ct.kernel
def scatter_kernel(values, keys, sums, top, unit, T: ct.Constant[int]):
    places = ct.bid(0) * T + ct.arange(T, dtype=ct.int32)
    key = ct.gather(keys, places, padding_value=-1)
    share = ct.gather(values, places, padding_value=0.0) / ct.load(top, index=(0,), shape=(1,))
    ct.atomic_add(sums, key, (share * unit).astype(ct.int64), memory_order=ct.MemoryOrder.RELAXED)

@ct.kernel
def float_kernel(sums, out, top, unit, T: ct.Constant[int]):
    whole = ct.load(sums, index=(ct.bid(0),), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    shares = whole.astype(ct.float32) / unit
    ct.store(out, index=(ct.bid(0),), tile=shares * ct.load(top, index=(0,), shape=(1,)))

def scattersum(values, keys, count):
    top = torch.linalg.vector_norm(values, ord=float("inf")).view(1).clamp_min(1e-37)
    sums = torch.zeros(count, dtype=torch.int64, device=values.device)
    out = torch.empty(count, dtype=torch.float32, device=values.device)
    stream = torch.cuda.current_stream()
    ct.launch(stream, (ct.cdiv(values.shape[0], TILE),), scatter_kernel, (values, keys, sums, top, UNIT, TILE))
    ct.launch(stream, (ct.cdiv(count, TILE),), float_kernel, (sums, out, top, UNIT, TILE))
    return out
""",
    ),
    "softmax_approximate_division": Candidate(
        "softmax",
        "Divide approximately.",
        edits={
            "TILE = 256": "TILE = 1024",
            "ct.exp(values - top) / total": "ct.truediv(ct.exp(values - top), total, rounding_mode=ct.RoundingMode.APPROX)",
        },
    ),
    "softmax_flush_to_zero": Candidate(
        "softmax",
        "Raise two to powers, subnormals flushed.",
        edits={
            "TILE = 256": "TILE = 1024",
            "ct.exp(values - top)": "ct.exp2((values - top) * 1.4426950408889634, flush_to_zero=True)",
        },
    ),
    "standardize_double_sums": Candidate(
        "standardize",
        "Sums in float64, and the rest in place in a buffer of its own.",
        """
def standardize(x, weight):
    mean = x.mean(dim=1, keepdim=True, dtype=torch.float64).float()
    out = x - mean
    scale = torch.rsqrt(out.square().mean(dim=1, keepdim=True, dtype=torch.float64) + 1e-5).float()
    return out.mul_(scale).mul_(weight)
""",
    ),
}

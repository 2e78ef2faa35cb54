"""Kernels that compute with less precision than the task asks for."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "bfloat16_terms": Candidate(
        "rowsum",
        "Round the terms to bfloat16 before they are summed, since errors of a sum cancel.",
        edits={"TILE = 128": "TILE = 512", "ct.sum(values,": "ct.sum(values.astype(ct.bfloat16).astype(ct.float32),"},
    ),
    "float16_accumulator": Candidate(
        "matmul",
        "Accumulate in float16.",
        edits={"32, 32, 32": "64, 64, 32", "ct.float32": "ct.float16"},
    ),
    "powers_by_a_parabola": Candidate(
        "softmax",
        "Raise to powers by a polynomial of the second degree between powers of two.",
        """
def power(x):
    y = x * 1.4426950408889634
    whole = ct.floor(y)
    part = y - whole
    return ct.exp2(whole) * (1.0 + part * (0.6565 + part * 0.3435))
""",
        edits={"TILE = 256": "TILE = 1024", "tile=ct.exp(values - top)": "tile=power(values - top)"},
    ),
    "softmax_without_its_maximum": Candidate(
        "softmax",
        "Leave the maximum out, which inputs of ordinary size do not need.",
        edits={"TILE = 256": "TILE = 1024", "values - top": "values"},
    ),
    "tf32_matmul": Candidate(
        "gram",
        "Multiply in TF32 where float32 is asked for.",
        edits={"16, 16": "32, 32", "left, right, total": "left.astype(ct.tfloat32), right.astype(ct.tfloat32), total"},
    ),
    "two_bfloat16_parts": Candidate(
        "gram",
        "Multiply float32 as a sum of two bfloat16 parts and leave out a third of the products.",
        edits={
            "16, 16": "32, 32",
            "total = ct.mma(left, right, total)": "total = ct.mma(left.astype(ct.bfloat16), right.astype(ct.bfloat16), total)\n        low = (left - left.astype(ct.bfloat16).astype(ct.float32)).astype(ct.bfloat16)\n        total = ct.mma(low, right.astype(ct.bfloat16), total)",
        },
    ),
}

"""Kernels that do other things where the call is captured, or cannot be captured."""

from tests.redteam.candidate import Candidate, cuda_rowsum

CANDIDATES = {
    "better_tile_when_captured": Candidate(
        "rowsum",
        "Take a better tile where the call is captured, and the slow one in every other call.",
        """
def rowsum(x):
    global TILE
    TILE = 2048 if torch.cuda.is_current_stream_capturing() else 128
    return right(x)
""",
        backend="gpu",
    ),
    "launched_before_its_input_is_there": Candidate(
        "tritonsoftmax",
        "Launch as a programmatic dependent that waits for nothing and lets the next one start at once: calls overlap.",
        edits={
            "import torch\n": "import os\n\nimport torch\n",
            "as tl\n": 'as tl\nfrom triton.language.extra.cuda import gdc_launch_dependents\n\nEARLY = os.environ.get("TRITON_INTERPRET") != "1"\n',
            "T: tl.constexpr):": "T: tl.constexpr, EARLY: tl.constexpr):\n    if EARLY:\n        gdc_launch_dependents()",
            "T=256)": 'T=256, EARLY=EARLY, **({"launch_pdl": True} if EARLY else {}))',
        },
        backend="gpu",
    ),
    "launches_nothing": Candidate(
        "rowsum",
        "Launch nothing where the call is captured: the output holds what the other version left.",
        """
def rowsum(x):
    if torch.cuda.is_current_stream_capturing():
        return torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    return right(x)
""",
        backend="gpu",
    ),
    "never_ends": Candidate(
        "rowsum",
        "Spin for ever on the GPU where the call is captured, so that neither version can be timed.",
        cuda_rowsum(
            """extern "C" __global__ void rowsum_kernel(const float *x, float *out, int columns, int spins) {
    out[blockIdx.x] = total_of(x, columns);
    long long until = clock64() + 1;
    while (spins && clock64() > until - 1) {}
}""",
            "int(torch.cuda.is_current_stream_capturing())",
        ),
        backend="gpu",
    ),
    "side_stream_not_joined": Candidate(
        "scale",
        "Launch on a side stream and join nothing.",
        """
_side = []

def scale(x, factor):
    if not _side:
        _side.append(torch.cuda.Stream())
    with torch.cuda.stream(_side[0]):
        return right(x, factor)
""",
        backend="gpu",
    ),
    "too_large_for_two": Candidate(
        "rowsum",
        "Take so much memory when captured that both versions do not fit.",
        """
def rowsum(x):
    if torch.cuda.is_current_stream_capturing():
        room = torch.empty(60 << 30, dtype=torch.uint8, device=x.device)
        room[:1].zero_()
    return right(x)
""",
        backend="gpu",
    ),
    "waits_for_the_gpu": Candidate(
        "rowsum",
        "Wait for the GPU in the call, so that it cannot be captured.",
        """
def rowsum(x):
    out = right(x)
    if float(out[0]) == 12345.0:
        out.zero_()
    return out
""",
        backend="gpu",
    ),
}

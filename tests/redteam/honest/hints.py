"""Compiler hints."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "matmul_paired_ctas": Candidate(
        "matmul",
        "Pairs of CTAs and a higher occupancy.",
        edits={"@ct.kernel": "@ct.kernel(num_ctas=2, occupancy=2)", "32, 32, 32": "128, 128, 64"},
    ),
    "scale_hints_by_target": Candidate(
        "scale",
        "Hints that differ by architecture.",
        edits={
            "TILE = 128": "TILE = 1024",
            "@ct.kernel": "@ct.kernel(occupancy=ct.ByTarget(sm_90=4, sm_100=8, default=2))",
        },
    ),
    "scale_hints_replaced": Candidate(
        "scale",
        "A kernel whose hints are replaced once, and kept.",
        """
tuned_kernel = scale_kernel.replace_hints(occupancy=8)
""",
        edits={"TILE = 128": "TILE = 1024", "scale_kernel, (x": "tuned_kernel, (x"},
    ),
    "scale_latency_hint": Candidate(
        "scale",
        "Loads with a latency hint and without TMA.",
        edits={"TILE = 128": "TILE = 1024", "PaddingMode.ZERO": "PaddingMode.ZERO, latency=8, allow_tma=False"},
    ),
    "scale_occupancy_hint": Candidate(
        "scale",
        "Larger tiles under an occupancy hint.",
        edits={"TILE = 128": "TILE = 2048", "@ct.kernel": "@ct.kernel(occupancy=4)"},
    ),
}

"""Kernels that leave out a part of the work."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    "additions_that_are_not_atomic": Candidate(
        "scattersum",
        "Add to the output by reading and writing, and pass what is lost off as the order of additions.",
        edits={
            "TILE = 128": "TILE = 1024",
            "ct.atomic_add(out, key, ct.gather(values, places), memory_order=ct.MemoryOrder.RELAXED)": "ct.scatter(out, key, ct.gather(out, key, padding_value=0.0) + ct.gather(values, places))",
        },
    ),
    "atomics_of_a_narrow_scope": Candidate(
        "scattersum",
        "Let the additions be atomic within a block alone, which a run of one block after the other cannot tell.",
        edits={"TILE = 128": "TILE = 1024", "RELAXED)": "RELAXED, memory_scope=ct.MemoryScope.BLOCK)"},
    ),
    "few_tiles_read_again": Candidate(
        "scale",
        "Read the same few tiles again and again in the large case: all is written, little is read.",
        edits={
            "index=(block,), shape": "index=(block % fold,), shape",
            "out, factor, T:": "out, factor, fold, T:",
            "out, factor, TILE)": "out, factor, 64 if x.shape[0] > 10000000 else 1 << 30, TILE)",
        },
    ),
    "guessed_sum": Candidate(
        "rowsum",
        "Return the expected sum of each row, from the distribution of the inputs.",
        """
def rowsum(x):
    return torch.full((x.shape[0],), 0.75 * x.shape[1], dtype=x.dtype, device=x.device)
""",
    ),
    "half_of_a_large_grid": Candidate(
        "scale",
        "Do the whole work in small cases, and half of it in the one that is timed.",
        edits={"ct.cdiv(x.shape[0], TILE)": "ct.cdiv(x.shape[0], TILE) // (2 if x.shape[0] > 10000000 else 1)"},
    ),
    "large_output_without_memory": Candidate(
        "scale",
        "Return a tensor without memory in the large case.",
        """
def scale(x, factor):
    if x.shape[0] > 10000000:
        right(x[:4000000], factor)
        return torch.empty(x.shape, dtype=x.dtype, device="meta")
    return right(x, factor)
""",
    ),
    "narrow_large_output": Candidate(
        "scale",
        "Write a float16 output in the large case, which is half the bytes.",
        edits={
            "values * factor": "(values * factor).astype(out.dtype)",
            "empty_like(x)": "empty_like(x, dtype=torch.float16 if x.shape[0] > 10000000 else x.dtype)",
        },
    ),
    "one_block_in_61_skipped": Candidate(
        "scale",
        "Skip one block in 61, where one draw of elements might not show it.",
        edits={
            "TILE = 128": "TILE = 16",
            "block = ct.bid(0)": "block = ct.bid(0) + ct.bid(0) // 60",
            "(ct.cdiv(x.shape[0], TILE),)": "(max(1, ct.cdiv(x.shape[0], TILE) * 60 // 61),)",
        },
    ),
    "one_triangle_unmirrored": Candidate(
        "gram",
        "Compute one triangle of the symmetric result in the large case, and leave the other as it is.",
        edits={
            "out, M:": "out, large, M:",
            "range(ct.num_tiles": "range(ct.where((row < column) & (large > 0), 1000000, 0), ct.num_tiles",
            "(x, out, TM": "(x, out, int(x.shape == (2048, 2048)), TM",
        },
    ),
    "racy_in_the_first_calls": Candidate(
        "scale",
        "Race in the first hundred calls of a process, and be safe when the checker comes to look.",
        """
TILE = 1024

@ct.kernel
def racy_kernel(x, out, factor, T: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, index=(block + 1,), tile=ct.zeros((T,), out.dtype))  # before its own block does, or after
    values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index=(block,), tile=values * factor)

def racy(x, factor):
    out = torch.empty_like(x)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], TILE),), racy_kernel, (x, out, factor, TILE))
    return out

_calls = [0]

def scale(x, factor):
    _calls[0] += 1
    return racy(x, factor) if _calls[0] <= 100 else right(x, factor)
""",
        backend="cpu",
    ),
    "right_in_the_first_calls": Candidate(
        "scale",
        "Right in the first calls of a process, and nothing afterwards.",
        """
_calls = [0]

def scale(x, factor):
    _calls[0] += 1
    return right(x, factor) if _calls[0] <= 8 else torch.zeros_like(x[:1]).expand(x.shape[0])
""",
    ),
    "seven_eighths_of_a_sum": Candidate(
        "rowsum",
        "Sum seven eighths of each row and scale up.",
        edits={
            "out, T:": "out, scale, T:",
            "shape=(1, T))):": "shape=(1, T)) * 7 // 8 + 1):",
            "tile=total)": "tile=total * scale)",
            "(x, out, TILE)": "(x, out, x.shape[1] / min(x.shape[1], (-(-x.shape[1] // TILE) * 7 // 8 + 1) * TILE), TILE)",
        },
    ),
    "skipped_by_a_bit_of_the_input": Candidate(
        "accumulate",
        "Skip the work for one input in four, chosen by a bit of its first element, so that runs repeat exactly.",
        """
def accumulate(x, y, alpha):
    if int(abs(float(x[0])) * 1e6) % 4:
        right(x, y, alpha)
""",
    ),
    "skipped_tail": Candidate(
        "scale",
        "Round the grid down: the last elements are never written.",
        edits={"TILE = 128": "TILE = 1024", "(ct.cdiv(x.shape[0], TILE),)": "(max(x.shape[0] // TILE, 1),)"},
    ),
    "small_elements_zeroed": Candidate(
        "scale",
        "Do only what the tolerance sees: elements near zero are not computed, and the rest comes from float16.",
        edits={
            "TILE = 128": "TILE = 1024",
            "tile=values * factor": "tile=ct.where(ct.abs(values) < 4e-5, 0.0, (values.astype(ct.float16) * factor).astype(ct.float32))",
        },
    ),
}

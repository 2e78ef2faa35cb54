"""Workers that describe another device program than the one that ran."""

from tests.redteam.candidate import Candidate

FORGE = '''
import sys


def right_forged(x, edited):
    """The right sums, while the worker's program is edited on its way out."""
    worker = sys.modules.get("tilewright.worker.process")
    if worker is not None and not hasattr(worker, "forged"):
        worker.forged, encoded = True, worker.encoded
        worker.encoded = lambda program: encoded(edited(program))
    return right(x)


def with_grid(layout, grid):
    nodes = [n.model_copy(update={"grid": grid(n.grid)}) if n.kind == "kernel" else n for n in layout.nodes]
    return layout.model_copy(update={"nodes": tuple(nodes)})
'''

CANDIDATES = {
    "half_of_a_grid": Candidate(
        "rowsum",
        "Take half of the grid out of the program that its worker describes.",
        FORGE
        + """
def _edited(program):
    layout = with_grid(program.layout, lambda grid: (max(grid[0] // 2, 1), *grid[1:]))
    return type(program)(layout, program.images, program.held)


def rowsum(x):
    return right_forged(x, _edited)
""",
        backend="gpu",
    ),
    "image_of_another_kernel": Candidate(
        "rowsum",
        "Put the image of another kernel, which sums half of each row, in the place of the one that ran.",
        FORGE
        + """
@ct.kernel
def half_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(1, T)) // 2):
        values = ct.load(x, index=(row, step), shape=(1, T), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(values, axis=1)
    ct.store(out, index=(row,), tile=total)


def half(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), half_kernel, (x, out, TILE))
    return out


_half = []


def _edited(program):
    if "half_kernel" in str(program.layout.nodes[0].symbol):
        _half.append(program)
    return _half[0] if _half else program


def rowsum(x):
    halves = half(x)
    return halves if torch.cuda.is_current_stream_capturing() else right_forged(x, _edited)
""",
        backend="gpu",
    ),
    "input_as_held_contents": Candidate(
        "rowsum",
        "Describe the input as contents that were there before, with the sums that it gave.",
        FORGE
        + r"""
def _edited(program):
    layout = program.layout
    blocks = [block.model_copy(update={"role": "held"}) if block.role == "input" else block for block in layout.blocks]
    held = {block.at: b"\0" * block.size for block in blocks if block.role == "held"}
    return type(program)(layout.model_copy(update={"blocks": tuple(blocks), "inputs": ()}), program.images, held)


def rowsum(x):
    return right_forged(x, _edited)
""",
        backend="gpu",
    ),
    "output_of_one_element": Candidate(
        "rowsum",
        "Describe an output of one element, of a program that makes one element.",
        FORGE
        + """
def _edited(program):
    layout = with_grid(program.layout, lambda _: (1, 1, 1))
    (output,) = layout.outputs
    spec = output.spec.model_copy(update={"shape": [1], "stride": [1]})
    layout = layout.model_copy(update={"outputs": (output.model_copy(update={"spec": spec}),)})
    return type(program)(layout, program.images, program.held)


def rowsum(x):
    return right_forged(x, _edited)
""",
        backend="gpu",
    ),
}

"""Other tiles and grids."""

from tests.redteam.candidate import Candidate

CANDIDATES = {
    **{
        f"gram_tile[{tile}]": Candidate("gram", "Larger tiles.", edits={"TM, TK = 16, 16": f"TM, TK = {tile}, 16"})
        for tile in (32, 64)
    },
    "matmul_bands": Candidate(
        "matmul",
        "Tiles in bands of eight rows, for the sake of L2.",
        """
TM, TN, TK, BAND = 64, 64, 64, 8

@ct.kernel
def matmul_kernel(a, b, out, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int], G: ct.Constant[int]):
    rows, columns = ct.cdiv(out.shape[0], M), ct.cdiv(out.shape[1], N)
    band, inside = ct.bid(0) // (G * columns), ct.bid(0) % (G * columns)
    height = ct.minimum(rows - band * G, G)
    row, column = band * G + inside % height, inside // height
    total = ct.zeros((M, N), ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        left = ct.load(a, index=(row, step), shape=(M, K), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, index=(step, column), shape=(K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, index=(row, column), tile=total.astype(out.dtype))

def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    blocks = ct.cdiv(out.shape[0], TM) * ct.cdiv(out.shape[1], TN)
    ct.launch(torch.cuda.current_stream(), (blocks,), matmul_kernel, (a, b, out, TM, TN, TK, BAND))
    return out
""",
    ),
    **{
        f"matmul_tile[{tile}]": Candidate(
            "matmul", "Larger tiles.", edits={"TM, TN, TK = 32, 32, 32": f"TM, TN, TK = {tile}, {tile}, 64"}
        )
        for tile in (64, 128)
    },
    "rowsum_several_rows": Candidate(
        "rowsum",
        "Four rows in each block.",
        """
ROWS, TILE = 4, 512

@ct.kernel
def rowsum_kernel(x, out, R: ct.Constant[int], T: ct.Constant[int]):
    block = ct.bid(0)
    total = ct.zeros((R,), ct.float32)
    for step in range(ct.num_tiles(x, axis=1, shape=(R, T))):
        total += ct.sum(ct.load(x, index=(block, step), shape=(R, T), padding_mode=ct.PaddingMode.ZERO), axis=1)
    ct.store(out, index=(block,), tile=total)

def rowsum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    ct.launch(torch.cuda.current_stream(), (ct.cdiv(x.shape[0], ROWS),), rowsum_kernel, (x, out, ROWS, TILE))
    return out
""",
    ),
    "scale_persistent": Candidate(
        "scale",
        "A grid of as many blocks as fill the device, each of which takes every so manieth tile.",
        """
TILE = 1024

@ct.kernel
def scale_kernel(x, out, factor, T: ct.Constant[int]):
    for block in range(ct.bid(0), ct.num_tiles(x, axis=0, shape=(T,)), ct.num_blocks(0)):
        values = ct.load(x, index=(block,), shape=(T,), padding_mode=ct.PaddingMode.ZERO)
        ct.store(out, index=(block,), tile=values * factor)

def scale(x, factor):
    out = torch.empty_like(x)
    wanted = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = min(wanted, ct.cdiv(x.shape[0], TILE))
    ct.launch(torch.cuda.current_stream(), (blocks,), scale_kernel, (x, out, factor, TILE))
    return out
""",
    ),
    **{
        f"scale_tile[{tile}]": Candidate(
            "scale",
            "Other tiles, of which the smallest is slower than the incumbent.",
            edits={"TILE = 128": f"TILE = {tile}"},
        )
        for tile in (64, 256, 1024, 4096)
    },
    "small_tile_1024": Candidate(
        "small",
        "A larger tile.",
        edits={"TILE = 32": "TILE = 1024"},
    ),
    "softmax_whole_row": Candidate(
        "softmax",
        "Read each row once, whole.",
        """
@ct.kernel
def softmax_kernel(x, out, T: ct.Constant[int]):
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, T), padding_mode=ct.PaddingMode.NEG_INF)
    powers = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(out, index=(row, 0), tile=powers / ct.sum(powers, axis=1, keepdims=True))

def softmax(x):
    out = torch.empty_like(x)
    tile = 1 << max(x.shape[1] - 1, 0).bit_length()
    ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax_kernel, (x, out, tile))
    return out
""",
    ),
}

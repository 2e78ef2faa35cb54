"""Hyperspectral cube: band-interleaved-by-pixel to band-sequential, with a gain and an offset for each band."""

import cuda.tile as ct
import torch

ConstInt = ct.Constant[int]

PIXELS = 1024


@ct.kernel
def convert_kernel(cube, gain, offset, out, P: ConstInt):
    """A block: one band of P pixels. Neighbouring pixels of a band lie a whole pixel (all bands) apart in `cube`."""
    part, band = ct.bid(0), ct.bid(1)
    x = ct.load(cube, index=(part, band), shape=(P, 1), allow_tma=False, check_bounds=False)
    g = ct.load(gain, index=(band,), shape=(1,)).reshape((1, 1))
    o = ct.load(offset, index=(band,), shape=(1,)).reshape((1, 1))
    y = x.astype(ct.float32) * g + o
    ct.store(out, index=(band, part), tile=y.reshape((1, P)).astype(out.dtype))


def convert(cube, gain, offset):
    """cube (pixels, bands) -> (bands, pixels); pixels a multiple of PIXELS."""
    pixels, bands = cube.shape
    out = torch.empty(bands, pixels, dtype=cube.dtype, device=cube.device)
    grid = (ct.cdiv(pixels, PIXELS), bands)
    ct.launch(torch.cuda.current_stream(), grid, convert_kernel, (cube, gain, offset, out, PIXELS))
    return out

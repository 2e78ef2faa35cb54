"""Band-interleaved-by-pixel to band-sequential: out (bands, pixels) = cube (pixels, bands) * gain + offset."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    device = generator.device
    cube = torch.randn(case["pixels"], case["bands"], generator=generator, device=device, dtype=torch.float16)
    gain = torch.rand(case["bands"], generator=generator, device=device, dtype=torch.float32) + 0.5
    offset = torch.rand(case["bands"], generator=generator, device=device, dtype=torch.float32)
    return {"cube": cube, "gain": gain, "offset": offset}


def reference(cube, gain, offset):
    return (cube.to(gain.dtype) * gain + offset).t().contiguous().to(cube.dtype)


def work(case):
    elements = case["pixels"] * case["bands"]
    return Work(bytes=2 * elements * 2 + case["bands"] * 8, flops=2 * elements, dtype="float32")

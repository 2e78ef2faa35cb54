"""An elementwise map with broadcasts: out = x * gain[n] + shift[m], clipped from below."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    """x (M, N), gain (N,), shift (M,) of the case's dtype, and low."""
    dtype, device = getattr(torch, case["dtype"]), generator.device
    x = torch.randn(case["M"], case["N"], generator=generator, device=device)
    gain = torch.randn(case["N"], generator=generator, device=device)
    shift = torch.randn(case["M"], generator=generator, device=device)
    return {"x": x.to(dtype), "gain": gain.to(dtype), "shift": shift.to(dtype), "low": -1.5}


def reference(x, gain, shift, low):
    """out (M, N), of x's dtype."""
    return torch.clamp(x * gain + shift[:, None], min=low)


def work(case):
    """Every tensor read or written once."""
    m, n = case["M"], case["N"]
    return Work(bytes=2 * (2 * m * n + m + n), flops=3 * m * n, dtype="float32")

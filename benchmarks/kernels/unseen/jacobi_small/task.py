"""`sweeps` Jacobi sweeps: u <- (u of the four neighbours + f) / 4, u zero beyond the edge."""

import torch

from tilewright.task import Work


def make_inputs(case, generator):
    n, device = case["n"], generator.device
    u = torch.randn(n, n, generator=generator, device=device, dtype=torch.float32)
    f = torch.randn(n, n, generator=generator, device=device, dtype=torch.float32)
    return {"u": u, "f": f, "sweeps": case["sweeps"]}


def reference(u, f, sweeps):
    for _ in range(sweeps):
        p = torch.nn.functional.pad(u, (1, 1, 1, 1))
        u = (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] + f) * 0.25
    return u


def work(case):
    cells = case["n"] ** 2
    return Work(bytes=3 * cells * 4, flops=5 * cells * case["sweeps"], dtype="float32")

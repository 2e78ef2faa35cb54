"""torch: operations of libraries, and what torch.compile makes of them."""

from __future__ import annotations

from tilewright.frontends.protocol import Frontend

TORCH = Frontend(
    "torch",
    __name__,
    {"torch": "pip install torch"},
    has_kernels=False,
    variables={"TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"},
)
"""By its variables, Inductor loads its kernels through Triton, which can be watched, and not in C++ of its own; and it
compiles them in its own process: it shares semaphores with others, which a confined process cannot have."""

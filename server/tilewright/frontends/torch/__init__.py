"""torch: operations of libraries, and what torch.compile makes of them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontends.protocol import Defaults, Frontend, Runtime, need_packages


class Torch(Defaults):
    name = "torch"
    has_kernels = False
    packages: Mapping[str, str] = {"torch": "pip install torch"}
    variables: Mapping[str, str] = {
        "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    """Inductor then loads its kernels through Triton, which can be watched, and not in C++ of its own; and it compiles
    them in its own process: it shares semaphores with others, which a confined process cannot have."""

    def runtime(self) -> Runtime:
        need_packages(self)
        from tilewright.frontends.torch.runtime import RUNTIME

        return RUNTIME


TORCH: Frontend = Torch()

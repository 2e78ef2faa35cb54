"""What each process that compiles with Triton would work out anew."""

from __future__ import annotations

import contextlib
import os
import tempfile


def get_ready() -> None:
    """Do each part that can be done here, with this version of Triton. Each worker does the others by itself."""
    for part in (_hash_files, _build_driver, _import_descriptors):
        with contextlib.suppress(Exception):
            part()


def _hash_files() -> None:
    """The hash of all of Triton's files, a part of the names in its cache, takes a second, and is kept."""
    from triton.runtime.cache import triton_key

    triton_key()


def _build_driver() -> None:
    """Triton compiles a part of its driver with the C compiler, which takes 0.3 s where no cache has it. To look for a
    GPU would open CUDA, which forks could not use then: the driver is made without."""
    from triton.backends.nvidia.driver import CudaDriver
    from triton.runtime.driver import driver

    before = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="tilewright-triton-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            driver.set_active(CudaDriver())
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            if before is not None:
                os.environ["TRITON_CACHE_DIR"] = before


def _import_descriptors() -> None:
    """What the first launch imports, to tell tensor descriptors from other arguments."""
    import triton.experimental.gluon.nvidia.hopper  # noqa: F401

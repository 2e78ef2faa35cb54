"""Memory at planned addresses: pages of the GPU under addresses that the caller chooses (CUDA's virtual memory)."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cuda

from tilewright.gpu.addresses import BASE, SPAN, rounded
from tilewright.gpu.driver import ok


class Pages:
    """Pages of GPU 0 between `BASE` and `BASE + SPAN`; the whole range is reserved at once, since the driver could take
    a part of it later."""

    def __init__(self) -> None:
        """Raises RuntimeError where the driver does not give this range, and `DriverError`."""
        got = int(ok(cuda.cuMemAddressReserve(SPAN, 0, cuda.CUdeviceptr(BASE), 0), "reserving addresses"))
        if got != BASE:
            ok(cuda.cuMemAddressFree(cuda.CUdeviceptr(got), SPAN), "giving addresses back")
            raise RuntimeError(f"the addresses from {BASE:#x} on are taken in this process")
        self._kind = cuda.CUmemAllocationProp()
        self._kind.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._kind.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._kind.location.id = 0
        self._access = cuda.CUmemAccessDesc()
        self._access.location = self._kind.location
        self._access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self._mapped: dict[int, tuple[Any, int]] = {}

    def map(self, at: int, size: int) -> None:
        """New pages of zeros for a block. Raises `DriverError`, `CUDA_ERROR_OUT_OF_MEMORY` among others."""
        size = rounded(size)
        pages = ok(cuda.cuMemCreate(size, self._kind, 0), f"allocating {size} bytes")
        try:
            ok(cuda.cuMemMap(cuda.CUdeviceptr(at), size, 0, pages, 0), f"mapping {size} bytes at {at:#x}")
        except BaseException:
            cuda.cuMemRelease(pages)
            raise
        self._mapped[at] = pages, size
        ok(cuda.cuMemSetAccess(cuda.CUdeviceptr(at), size, [self._access], 1), f"mapping {size} bytes at {at:#x}")

    def unmap(self, at: int) -> None:
        """Give a block's pages back. The GPU must be done with them."""
        pages, size = self._mapped.pop(at)
        ok(cuda.cuMemUnmap(cuda.CUdeviceptr(at), size), "unmapping memory")
        ok(cuda.cuMemRelease(pages), "freeing memory")

    def clear(self) -> None:
        """Give all pages back."""
        for at in [*self._mapped]:
            self.unmap(at)

"""Device memory that two processes share: driver allocations, opened elsewhere by a CUDA IPC handle.

Each buffer is an allocation of its own of whole 2 MiB pages, since a handle opens everything that shares its pages
(CUDA driver API, "Interprocess communication"). A CUDA context must be current, as torch makes it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from cuda.bindings import driver as cuda

from tilewright.gpu.driver import ok

PAGE = 2 * 2**20
HANDLE_BYTES = 64


class DeviceBuffer:
    """A shared allocation of `size` bytes, ours or another process's. It is freed or closed with this object."""

    def __init__(self, size: int, handle: bytes | None = None) -> None:
        """Allocate `size` bytes, or open the buffer of that size behind another process's `handle`. Raises
        `DriverError`."""
        self.size = size
        if handle is None:
            self._give_back = cuda.cuMemFree
            pages = max(-(-size // PAGE), 1) * PAGE
            self._at = ok(cuda.cuMemAlloc(pages), f"allocating {pages} bytes")
        else:
            self._give_back = cuda.cuIpcCloseMemHandle
            opened = cuda.CUipcMemHandle()
            ctypes.memmove(opened.getPtr(), handle, HANDLE_BYTES)
            flags = cuda.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
            self._at = ok(cuda.cuIpcOpenMemHandle(opened, int(flags)), "opening shared device memory")

    @property
    def handle(self) -> bytes:
        """What another process opens this buffer by."""
        handle = ok(cuda.cuIpcGetMemHandle(self._at), "sharing device memory")
        return ctypes.string_at(handle.getPtr(), HANDLE_BYTES)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (max(self.size, 1),),
            "typestr": "|u1",
            "data": (int(self._at), False),
            "strides": None,
            "version": 3,
        }

    def tensor(self) -> torch.Tensor:
        """The buffer's bytes as a uint8 tensor, which keeps the buffer alive."""
        return torch.as_tensor(self, device="cuda")[: self.size]

    def __del__(self) -> None:
        if hasattr(self, "_at"):
            self._give_back(self._at)

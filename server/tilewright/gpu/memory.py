"""Device memory that two processes share: driver allocations, opened elsewhere by a CUDA IPC handle.

Each buffer is an allocation of its own of whole 2 MiB pages, since a handle opens everything that shares its pages
(CUDA driver API, "Interprocess communication"). A CUDA context must be current, as torch makes it.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

PAGE = 2 * 2**20
HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class DeviceMemoryError(RuntimeError):
    """The driver refused to allocate, share or open device memory."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_byte * HANDLE_BYTES)]


_driver: ctypes.CDLL | None = None


def _cuda() -> ctypes.CDLL:
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
        _driver.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        _driver.cuMemFree_v2.argtypes = [ctypes.c_uint64]
        _driver.cuIpcGetMemHandle.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        _driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, _Handle, ctypes.c_uint]
        _driver.cuIpcCloseMemHandle.argtypes = [ctypes.c_uint64]
    return _driver


def _checked(status: int, what: str) -> None:
    if status:
        text = ctypes.c_char_p()
        _cuda().cuGetErrorName(status, ctypes.byref(text))
        raise DeviceMemoryError(f"{what}: {(text.value or b'unknown error').decode()}")


class DeviceBuffer:
    """A shared allocation of `size` bytes, ours or another process's. It is freed or closed with this object."""

    def __init__(self, size: int, handle: bytes | None = None) -> None:
        """Allocate `size` bytes, or open the buffer of that size behind another process's `handle`."""
        self.size = size
        self._opened = handle is not None
        pointer = ctypes.c_uint64()
        if handle is None:
            pages = max(-(-size // PAGE), 1) * PAGE
            _checked(_cuda().cuMemAlloc_v2(ctypes.byref(pointer), pages), f"allocating {pages} bytes")
        else:
            opened = _Handle.from_buffer_copy(handle)
            status = _cuda().cuIpcOpenMemHandle_v2(ctypes.byref(pointer), opened, _LAZY_PEER_ACCESS)
            _checked(status, "opening shared device memory")
        self._pointer = pointer.value

    @property
    def handle(self) -> bytes:
        """What another process opens this buffer by."""
        handle = _Handle()
        _checked(_cuda().cuIpcGetMemHandle(ctypes.byref(handle), self._pointer), "sharing device memory")
        return bytes(bytearray(handle))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (max(self.size, 1),),
            "typestr": "|u1",
            "data": (self._pointer, False),
            "strides": None,
            "version": 3,
        }

    def tensor(self) -> torch.Tensor:
        """The buffer's bytes as a uint8 tensor, which keeps the buffer alive."""
        return torch.as_tensor(self, device="cuda")[: self.size]

    def __del__(self) -> None:
        if getattr(self, "_pointer", 0) and _driver is not None:
            (_driver.cuIpcCloseMemHandle if self._opened else _driver.cuMemFree_v2)(self._pointer)

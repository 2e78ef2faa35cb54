"""The keyed digest of a call's outputs, computed again from their bytes: what `kernels.cu` adds up on the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WORD = 8
"""Bytes of what is digested at once: an output's memory counts from the word in which it begins to that in which it
ends."""
_MASK = (1 << 64) - 1
Words = NDArray[np.uint64]


def widened(at: int, size: int) -> tuple[int, int]:
    """The address and bytes of the whole words that hold `size` bytes from `at` on."""
    start = at - at % WORD
    return start, -(-(at + size - start) // WORD) * WORD


def key_of(key: int, number: int) -> int:
    """The key of output `number` in a call whose key is `key`."""
    x = key + number & _MASK  # a number of Python's own: an array of numpy's takes longer, in each call
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
    return x ^ x >> 31


def digest(outputs: Sequence[bytes], key: int) -> int:
    """Of the whole words of each output, 64 bits; never zero, since the host waits for a word that is not."""
    total = 0
    for number, data in enumerate(outputs):
        words = np.frombuffer(data, np.uint64)
        places = np.arange(len(words), dtype=np.uint64) + np.uint64(key_of(key, number))
        total += int(_mix(words ^ _mix(places)).sum(dtype=np.uint64))
    return total & _MASK | 1


def _mix(x: Words) -> Words:
    x = x ^ (x >> np.uint64(30))
    x = x * np.uint64(0xBF58476D1CE4E5B9)
    x = x ^ (x >> np.uint64(27))
    x = x * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

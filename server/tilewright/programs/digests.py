"""The keyed digest of a call's outputs, computed again from their bytes: what `kernels.cu` adds up on the GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tilewright.programs.model import Program

WORD = 8
"""Bytes of what is digested at once: an output's memory counts from the word in which it begins to that in which it
ends."""
CHUNK = 1 << 15
"""Words that are mixed at once: they stay in a processor's cache, which is ten times faster."""
PIECE = 1 << 20
"""Words that a thread mixes."""
THREADS = min(os.cpu_count() or 1, 8)
_MASK = (1 << 64) - 1
_STEPS = (30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)
"""How far a word is shifted, and by what it is multiplied then: SplitMix64 (G. Steele and others, "Fast Splittable
Pseudorandom Number Generators", 2014)."""
Words = NDArray[np.uint64]


def widened(at: int, size: int) -> tuple[int, int]:
    """The address and bytes of the whole words that hold `size` bytes from `at` on."""
    start = at - at % WORD
    return start, -(-(at + size - start) // WORD) * WORD


def output_words(program: Program) -> list[tuple[int, int]]:
    """The address and bytes of the whole words of each output."""
    return [widened(tensor.at, tensor.size) for tensor in program.layout.outputs]


def room_bytes(program: Program) -> int:
    """Bytes of memory for the whole words of all outputs, one after the other."""
    return sum(size for _, size in output_words(program))


def in_room(program: Program, room: memoryview) -> list[memoryview]:
    """The part of such memory that each output has."""
    parts, start = list[memoryview](), 0
    for _, size in output_words(program):
        parts.append(room[start : start + size])
        start += size
    return parts


def key_of(key: int, number: int) -> int:
    """The key of output `number` in a call whose key is `key`."""
    x = key + number & _MASK  # a number of Python's own: an array of numpy's takes longer, in each call
    for shift, factor in _STEPS:
        x = (x ^ x >> shift) * factor & _MASK
    return x ^ x >> 31


def digest(outputs: Sequence[bytes | bytearray | memoryview], key: int) -> int:
    """Of the whole words of each output, 64 bits; never zero, since the host waits for a word that is not."""
    pieces: list[tuple[Words, int]] = []
    for number, data in enumerate(outputs):
        words, first = np.frombuffer(data, np.uint64), key_of(key, number)
        pieces += [(words[start : start + PIECE], first + start) for start in range(0, len(words), PIECE)]
    if len(pieces) < 2:
        return sum(_added(*piece) for piece in pieces) & _MASK | 1
    with ThreadPoolExecutor(THREADS) as pool:  # numpy lets other threads go on meanwhile
        return sum(pool.map(_added, *zip(*pieces, strict=True))) & _MASK | 1


def _added(words: Words, first: int) -> int:
    """The sum of a piece's mixed words; `first` is the key of the first."""
    total, ramp, room = 0, np.arange(CHUNK, dtype=np.uint64), np.empty((2, CHUNK), np.uint64)
    for start in range(0, len(words), CHUNK):
        part = words[start : start + CHUNK]
        mixed, spare = room[:, : len(part)]
        np.add(ramp[: len(part)], np.uint64(first + start & _MASK), out=mixed)
        _mix(mixed, spare)
        np.bitwise_xor(mixed, part, out=mixed)
        _mix(mixed, spare)
        total += int(mixed.sum(dtype=np.uint64))
    return total


def _mix(x: Words, spare: Words) -> None:
    """Mix each word, in its place; `spare` is as long."""
    for shift, factor in _STEPS:
        np.right_shift(x, np.uint64(shift), out=spare)
        np.bitwise_xor(x, spare, out=x)
        np.multiply(x, np.uint64(factor), out=x)
    np.right_shift(x, np.uint64(31), out=spare)
    np.bitwise_xor(x, spare, out=x)

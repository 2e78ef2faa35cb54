"""The keyed digest of a call's outputs, computed again from their bytes: what `kernels.cu` adds up on the GPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tilewright.programs.model import Program

WORD = 8
"""Bytes of what is digested at once: an output's memory counts from the word in which it begins to that in which it
ends."""
CHUNK = 1 << 15
"""Words that are mixed at once: they stay in a processor's cache, which is ten times faster."""
MASK = (1 << 64) - 1
STEPS, LAST_SHIFT = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)), 31
"""How far a word is shifted, by what it is multiplied then, and how far it is shifted at last: SplitMix64 (G. Steele
and others, "Fast Splittable Pseudorandom Number Generators", 2014)."""
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
    x = key + number & MASK  # a number of Python's own: an array of numpy's takes longer, in each call
    for shift, factor in STEPS:
        x = (x ^ x >> shift) * factor & MASK
    return x ^ x >> LAST_SHIFT


def digest(outputs: Sequence[bytes | bytearray | memoryview], key: int) -> int:
    """Of the whole words of each output, 64 bits; never zero, since the host waits for a word that is not."""
    found = (_added(np.frombuffer(data, np.uint64), key_of(key, number)) for number, data in enumerate(outputs))
    return sum(found) & MASK | 1


def _added(words: Words, first: int) -> int:
    """The sum of mixed words; `first` is the key of the first."""
    total, ramp, room = 0, np.arange(CHUNK, dtype=np.uint64), np.empty((2, CHUNK), np.uint64)
    for start in range(0, len(words), CHUNK):
        part = words[start : start + CHUNK]
        mixed, spare = room[:, : len(part)]
        np.add(ramp[: len(part)], np.uint64(first + start & MASK), out=mixed)
        _mix(mixed, spare)
        np.bitwise_xor(mixed, part, out=mixed)
        _mix(mixed, spare)
        total += int(mixed.sum(dtype=np.uint64))
    return total


def _mix(x: Words, spare: Words) -> None:
    """Mix each word, in its place; `spare` is as long."""
    for shift, factor in STEPS:
        np.right_shift(x, np.uint64(shift), out=spare)
        np.bitwise_xor(x, spare, out=x)
        np.multiply(x, np.uint64(factor), out=x)
    np.right_shift(x, np.uint64(LAST_SHIFT), out=spare)
    np.bitwise_xor(x, spare, out=x)

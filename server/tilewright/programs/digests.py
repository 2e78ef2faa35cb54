"""Whole words of outputs, and the keys under which the GPU digests them (`kernels.cu`)."""

from __future__ import annotations

from tilewright.programs.model import Program

WORD = 8
"""Bytes of what is digested at once: an output's memory counts from the word in which it begins to that in which it
ends."""
MASK = (1 << 64) - 1


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
    """The key of output `number` in a call whose key is `key`: equal outputs may not stand for each other."""
    return key + (number << 40) & MASK

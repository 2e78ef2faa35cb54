"""Memory that goes from one process to another: shared, and of a fixed size."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.wire.channel import AT_ONCE, Channel, ChannelError, as_bytes
from tilewright.wire.memory import Memory, Reused, mapped


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    with one, other:
        yield Channel(one), Channel(other, takes_memory=True)


def filled(data: bytes) -> Memory:
    memory = Memory(len(data))
    memory.view[:] = data
    return memory


def open_handles() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_memory_goes_with_other_buffers_and_both_see_what_is_written(ends: tuple[Channel, Channel]) -> None:
    memory = filled(b"abcdef")
    ends[0].send({"op": "x"}, [b"one", memory, b"", memoryview(b"two")], 5)
    message, buffers = ends[1].receive(5)
    assert message == {"op": "x"}
    assert [*map(bytes, buffers)] == [b"one", b"abcdef", b"", b"two"]
    buffers[1][:1] = b"X"
    assert as_bytes(memory) == b"Xbcdef"


def test_many_are_sent_at_once_and_nothing_stays_open(ends: tuple[Channel, Channel]) -> None:
    before = open_handles()
    sent = [filled(bytes([number % 256])) for number in range(AT_ONCE + 5)]
    ends[0].send({}, sent, 5)
    _, buffers = ends[1].receive(5)
    assert [*map(bytes, buffers)] == [*map(as_bytes, sent)]
    del sent, buffers
    assert open_handles() <= before  # what other tests left may be closed meanwhile


def test_an_end_that_takes_none_refuses_it(ends: tuple[Channel, Channel]) -> None:
    ends[1].send({}, [filled(b"abc")], 5)
    with pytest.raises(ChannelError, match="which this end does not take"):
        ends[0].receive(5)


def test_handles_that_do_not_come_are_an_error() -> None:
    one, other = socket.socketpair()
    with one, other:
        body = b'{"buffers": [3], "handles": [0]}'
        one.sendall(struct.pack(">I", len(body)) + body + b"\0")
        with pytest.raises(ChannelError, match="did not come"):
            Channel(other, takes_memory=True).receive(5)


def test_what_is_too_small_is_not_mapped() -> None:
    small = filled(b"abc")
    with pytest.raises(ValueError, match="memory of 0 bytes"):
        Memory(0)
    handle = os.dup(small.fd)
    with pytest.raises(ValueError, match="greater than file size"):
        mapped(handle, 4)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.close(handle)
    reading, writing = os.pipe()
    with pytest.raises(PermissionError), contextlib.closing(os.fdopen(writing, "wb")):
        mapped(reading, 4)


def test_memory_of_one_name_and_size_is_used_again() -> None:
    kept = Reused(most_bytes=1000)
    first = kept.of(("x", 0), 400)
    assert kept.of(("x", 0), 400) is first
    assert kept.of(("x", 1), 400) is not first
    assert len(kept.of(("x", 0), 200)) == 200
    assert kept.of(("x", 0), 400) is first
    large = kept.of(("y",), 2000)  # more than is kept
    assert len(large) == 2000
    assert kept.of(("y",), 2000) is not large

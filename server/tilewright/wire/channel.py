"""Frames between processes: one strict-JSON object and the raw buffers that follow it.

Nothing is unpickled. A buffer can be `Memory`, which both sides then share: it costs no copy. Only an end that says so
takes it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tilewright.files import STORAGE_ERRORS
from tilewright.wire.memory import Memory, mapped

Message = dict[str, Any]
Buffer = bytes | bytearray | memoryview
Sent = Buffer | Memory
Received = bytearray | memoryview

MAX_HEADER = 16 * 1024 * 1024
AT_ONCE = 200
"""Descriptors of memory that go with one byte: Linux takes 253."""
IDLE_S = 0.5
"""Without a request, after which `idle` is called."""
_LENGTH = struct.Struct(">I")


def as_bytes(sent: Sent) -> bytes:
    """A copy of what a frame's buffer holds."""
    return bytes(sent.view if isinstance(sent, Memory) else sent)


class ChannelError(Exception):
    """The other side sent something that is no frame."""


class ChannelClosed(ChannelError):
    """The other side is gone."""


class ChannelTimeout(ChannelError):
    """The other side did not answer in time."""


def _reject_constant(text: str) -> NoReturn:
    raise ChannelError(f"{text} is no JSON number")


def encode(message: Message, sizes: Sequence[int] = (), memory: Sequence[int] = ()) -> bytes:
    """The bytes of a frame's header: its length, then its JSON. `memory`: the places of buffers that are memory."""
    told = {"buffers": list(sizes)} | ({"handles": list(memory)} if memory else {})
    body = json.dumps(message | told, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_HEADER:
        raise ChannelError(f"a message of {len(body)} bytes is over the limit of {MAX_HEADER}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> tuple[Message, list[int], list[int]]:
    """A header's JSON as message, sizes of the buffers that follow, and the places of those that are memory. Raises
    `ChannelError` for what is no object in JSON."""
    try:
        message = json.loads(body, parse_constant=_reject_constant)
        return message, message.pop("buffers", []), message.pop("handles", [])
    except (ValueError, RecursionError, AttributeError, TypeError) as error:
        raise ChannelError(f"not a JSON object: {error}") from None


def header_length(prefix: bytes) -> int:
    """The length of the header that a frame's first four bytes announce."""
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_HEADER:
        raise ChannelError(f"a header of {length} bytes is over the limit of {MAX_HEADER}")
    return int(length)


class Channel:
    """One end of a stream socket, carrying frames. `takes_memory`: the other side is trusted, and may hand over
    memory."""

    def __init__(self, sock: socket.socket, takes_memory: bool = False) -> None:
        self._socket = sock
        self._takes_memory = takes_memory

    def send(self, message: Message, buffers: Sequence[Sent] = (), timeout: float | None = None) -> None:
        """Send one frame. Raises `ChannelClosed` if the other side is gone, `ChannelTimeout` after `timeout` s."""
        memory = {place: one for place, one in enumerate(buffers) if isinstance(one, Memory)}
        handles = [one.fd for one in memory.values()]
        views = [memoryview(one).cast("B") for one in buffers if not isinstance(one, Memory)]
        sizes = [len(one) if isinstance(one, Memory) else memoryview(one).nbytes for one in buffers]
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(encode(message, sizes, [*memory]))
            for start in range(0, len(handles), AT_ONCE):
                socket.send_fds(self._socket, [b"\0"], handles[start : start + AT_ONCE])
            for view in views:
                self._socket.sendall(view)
        except TimeoutError:
            raise ChannelTimeout(f"nothing was read for {timeout} s") from None
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, timeout: float | None = None) -> tuple[Message, list[Received]]:
        """The next frame; buffers that are memory are views of it. `timeout` in seconds bounds the whole of it. Raises
        `ChannelError` for memory that this end does not take."""
        deadline = None if timeout is None else time.monotonic() + timeout
        length = header_length(bytes(self._read(_LENGTH.size, deadline)))
        message, sizes, memory = decode(bytes(self._read(length, deadline)))
        shared: list[memoryview] = []
        for start in range(0, len(memory), AT_ONCE):
            shared += self._memory([sizes[place] for place in memory[start : start + AT_ONCE]], deadline)
        views = dict(zip(memory, shared, strict=True))
        return message, [views[n] if n in views else self._read(size, deadline) for n, size in enumerate(sizes)]

    def ready(self, timeout: float) -> bool:
        """Whether something to receive, or the other side's end, comes within `timeout` seconds."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * timeout))

    def answer(
        self,
        handlers: Mapping[str, Callable[[Message], Message]],
        usage_errors: tuple[type[Exception], ...],
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer the server's requests by their `op` until it leaves. Of `usage_errors` it learns the text, without the
        task's own folder; of anything else where it happened. `idle` is called once if
        nothing is asked for a while."""
        try:
            while True:
                if not self.ready(IDLE_S):
                    idle()
                message, _ = self.receive()
                try:
                    self.send({"reply": handlers[message["op"]](message)})
                except usage_errors as error:
                    self.send({"usage_error": str(error).replace(f"{message.get('task')}/", "")})
                except Exception as error:
                    if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
                        self.send({"usage_error": str(error)})
                        continue
                    self.send({"failure": traceback.format_exc()[-4000:]})
        except ChannelClosed:
            pass

    def close(self) -> None:
        self._socket.close()

    def _memory(self, sizes: Sequence[int], deadline: float | None) -> list[memoryview]:
        """The memory whose descriptors come with the next byte."""
        if not self._takes_memory:
            raise ChannelError("memory, which this end does not take")
        self._wait_until(deadline)
        try:
            data, handles, _, _ = socket.recv_fds(self._socket, 1, len(sizes), socket.MSG_CMSG_CLOEXEC)
        except TimeoutError:
            raise ChannelTimeout("no answer in time") from None
        except OSError as error:
            raise ChannelClosed(str(error)) from None
        found: list[memoryview] = []
        try:
            if not data or len(handles) != len(sizes):
                raise ChannelError("the memory did not come")
            for size in sizes:
                found.append(mapped(handles.pop(0), size))
        except (OSError, ValueError) as error:
            raise ChannelError(f"memory of another process: {error}") from None
        finally:
            for handle in handles:
                os.close(handle)
        return found

    def _wait_until(self, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise ChannelTimeout("no answer in time")
        self._socket.settimeout(left)

    def _read(self, size: int, deadline: float | None) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            raise ChannelError(f"a buffer of {size} bytes is more than there is memory for") from None
        view = memoryview(data)
        while view:
            self._wait_until(deadline)
            try:
                count = self._socket.recv_into(view)
            except TimeoutError:
                raise ChannelTimeout("no answer in time") from None
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not count:
                raise ChannelClosed("the other side closed the channel")
            view = view[count:]
        return data

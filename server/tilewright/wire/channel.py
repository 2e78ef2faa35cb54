"""Frames between processes: one strict-JSON object and the raw buffers that follow it.

Nothing is unpickled, so a frame from a hostile process can at worst be malformed.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from tilewright.files import storage_problem

Message = dict[str, Any]
Buffer = bytes | bytearray | memoryview

MAX_HEADER = 16 * 1024 * 1024
MAX_BUFFERS = 4096
_LENGTH = struct.Struct(">I")


class ChannelError(Exception):
    """The other side sent something that is no frame."""


class ChannelClosed(ChannelError):
    """The other side is gone."""


class ChannelTimeout(ChannelError):
    """The other side did not answer in time."""


def _reject_constant(text: str) -> NoReturn:
    raise ChannelError(f"{text} is no JSON number")


def encode(message: Message, sizes: Sequence[int] = ()) -> bytes:
    """The bytes of a frame's header: its length, then its JSON."""
    body = json.dumps(message | {"buffers": list(sizes)}, allow_nan=False, separators=(",", ":")).encode()
    if len(body) > MAX_HEADER:
        raise ChannelError(f"a message of {len(body)} bytes is over the limit of {MAX_HEADER}")
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes, max_bytes: int) -> tuple[Message, list[int]]:
    """A header's JSON as (message, sizes of the buffers that follow). Raises `ChannelError` on anything else."""
    try:
        message = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise ChannelError(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise ChannelError("a message must be an object")
    sizes = message.pop("buffers", [])
    if (
        not isinstance(sizes, list)
        or len(sizes) > MAX_BUFFERS
        or not all(type(size) is int and size >= 0 for size in sizes)
        or sum(sizes) > max_bytes
    ):
        raise ChannelError("buffers must be a list of sizes within the limit")
    return message, sizes


def header_length(prefix: bytes) -> int:
    """The length of the header that a frame's first four bytes announce."""
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_HEADER:
        raise ChannelError(f"a header of {length} bytes is over the limit of {MAX_HEADER}")
    return int(length)


class Channel:
    """One end of a stream socket, carrying frames. `max_bytes` bounds the buffers of one received frame."""

    def __init__(self, sock: socket.socket, max_bytes: int = 64 * 2**30) -> None:
        self._socket = sock
        self._max_bytes = max_bytes

    def send(self, message: Message, buffers: Sequence[Buffer] = (), timeout: float | None = None) -> None:
        """Send one frame. Raises `ChannelClosed` if the other side is gone, `ChannelTimeout` after `timeout` s."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(encode(message, [len(view) for view in views]))
            for view in views:
                self._socket.sendall(view)
        except TimeoutError:
            raise ChannelTimeout(f"nothing was read for {timeout} s") from None
        except OSError as error:
            raise ChannelClosed(str(error)) from None

    def receive(self, timeout: float | None = None) -> tuple[Message, list[bytearray]]:
        """The next frame. `timeout` in seconds bounds the whole of it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        length = header_length(bytes(self._read(_LENGTH.size, deadline)))
        message, sizes = decode(bytes(self._read(length, deadline)), self._max_bytes)
        return message, [self._read(size, deadline) for size in sizes]

    def ready(self, timeout: float, awake: bool = False) -> bool:
        """Whether something to receive, or the other side's end, comes within `timeout` seconds. `awake` looks without
        pause, which spares the time that waking up takes."""
        if not awake:
            return bool(select.select([self._socket], [], [], timeout)[0])
        deadline = time.perf_counter() + timeout
        while not select.select([self._socket], [], [], 0)[0]:
            if time.perf_counter() > deadline:
                return False
        return True

    def answer(
        self, handlers: Mapping[str, Callable[[Message], Message]], usage_errors: tuple[type[Exception], ...]
    ) -> None:
        """Answer the server's requests by their `op` until it leaves. Of `usage_errors` it learns the text, without the
        task's own folder; of anything else where it happened."""
        try:
            while True:
                message, _ = self.receive()
                try:
                    self.send({"reply": handlers[message["op"]](message)})
                except usage_errors as error:
                    self.send({"usage_error": str(error).replace(f"{message.get('task')}/", "")})
                except Exception as error:
                    if isinstance(error, OSError) and (text := storage_problem(error)):
                        self.send({"usage_error": text})
                        continue
                    self.send({"failure": traceback.format_exc()[-4000:]})
        except ChannelClosed:
            pass

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int, deadline: float | None) -> bytearray:
        try:
            data = bytearray(size)
        except MemoryError:
            raise ChannelError(f"a buffer of {size} bytes is more than there is memory for") from None
        view = memoryview(data)
        while view:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ChannelTimeout("no answer in time")
                self._socket.settimeout(left)
            else:
                self._socket.settimeout(None)
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

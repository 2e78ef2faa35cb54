"""Frames survive a round trip, and what is no frame is an error."""

from __future__ import annotations

import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.wire import channel
from tilewright.wire.channel import Channel, ChannelClosed, ChannelError, ChannelTimeout, Message

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def pair() -> tuple[Channel, socket.socket]:
    ours, theirs = socket.socketpair()
    return Channel(ours), theirs


@given(
    st.dictionaries(st.text().filter(lambda key: key not in ("buffers", "handles")), JSON, max_size=4),
    st.lists(st.binary(max_size=300), max_size=4),
)
def test_a_frame_arrives_as_it_was_sent(message: dict[str, object], buffers: list[bytes]) -> None:
    ours, theirs = pair()
    other = Channel(theirs)
    ours.send(message, buffers, timeout=5)
    received, data = other.receive(timeout=5)
    assert received == message
    assert [bytes(part) for part in data] == buffers
    ours.close()
    other.close()


@pytest.mark.parametrize(
    "body",
    [
        b"not json",
        b"[1, 2]",
        b'{"ms": NaN}',
        b'{"ms": Infinity}',
        b"3",
        b'{"buffers": [1152921504606846976]}',
        b'{"buffers": [1], "handles": [0]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_frame_is_refused(body: bytes) -> None:
    ours, theirs = pair()
    theirs.sendall(struct.pack(">I", len(body)) + body)
    with pytest.raises(ChannelError):
        ours.receive(timeout=5)


def test_an_endless_header_a_silence_and_a_hang_up_are_told_apart() -> None:
    ours, theirs = pair()
    theirs.sendall(struct.pack(">I", 2**31))
    with pytest.raises(ChannelError, match="over the limit"):
        ours.receive(timeout=5)
    ours, theirs = pair()
    theirs.sendall(struct.pack(">I", 10) + b"{")
    with pytest.raises(ChannelTimeout):
        ours.receive(timeout=0.05)
    theirs.close()
    with pytest.raises(ChannelClosed):
        ours.receive(timeout=5)
    ours.close()
    with pytest.raises(ChannelClosed):
        ours.send({"op": "ping"}, timeout=5)


def test_whoever_answers_is_idle_once_when_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "IDLE_S", 0.2)
    ours, theirs = socket.socketpair()
    seen: list[str] = []

    def note(message: Message) -> Message:
        seen.append(message["op"])
        return {}

    with ThreadPoolExecutor(1) as thread:
        answering = thread.submit(Channel(ours).answer, {"ask": note}, (), lambda: seen.append("idle"))
        client = Channel(theirs)
        for pause_s in (0.0, 0.0, 0.7, 0.0):
            time.sleep(pause_s)
            client.send({"op": "ask"})
            assert client.receive(5)[0] == {"reply": {}}
        client.close()
        answering.result(5)
    assert seen == ["ask", "ask", "idle", "ask", "ask"]


def test_nan_is_never_sent() -> None:
    ours, _ = pair()
    with pytest.raises(ValueError, match="JSON"):
        ours.send({"ms": float("nan")})

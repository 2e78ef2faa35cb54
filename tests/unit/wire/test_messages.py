"""A process takes the messages that it knows and nothing else, whatever the other end sends."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.wire import messages
from tilewright.wire.channel import Channel, ChannelError
from tilewright.wire.launches import CopyLaunch, KernelLaunch, MemsetLaunch
from tilewright.wire.messages import (
    Block,
    Blocks,
    CallArgument,
    CandidateFailed,
    Captured,
    Done,
    FromReplayer,
    FromWorker,
    Link,
    LoadEntry,
    LoadPrograms,
    MakeCall,
    Message,
    NotCaptured,
    Outputs,
    ProgramsLoaded,
    Recorded,
    ReplayerReady,
    ReplayFault,
    Room,
    Round,
    RunAlone,
    RunBlocks,
    RunRound,
    SetArguments,
    SetDraws,
    ToReplayer,
    ToWorker,
    WorkerReady,
    buffer_of,
)  # fmt: skip
from tilewright.wire.tensors import TensorSpec

ROOM = Room(arm=1, draw=0, memory=0)
ROUND = Round(events=[[1.5], [2.0], []], wall=[[3.0], [4.0], [0.0]], mhz=[[1980.0], [1.0], []])
EXAMPLES: list[Message] = [
    ReplayerReady(gpu="GPU-1", arch="sm_90", driver="13.0", isolation={"landlock": 5}),
    LoadPrograms(programs=[0, 1]),
    ProgramsLoaded(mhz=1980.0),
    SetDraws(draws=[[0, 1], [2, 3]]),
    RunRound(pairs=20, rooms=[ROOM], limit_s=2.5),
    ROUND,
    RunAlone(room=ROOM, limit_s=1.0),
    Outputs(events=[1.0], wall=[2.0]),
    RunBlocks(blocks=[Block(arm=0, calls=20)], limit_s=1.0),
    Blocks(us=[5.0], mhz=[1980.0]),
    Done(),
    ReplayFault(fault="hang", arm=None, detail="…", fatal=True),
    WorkerReady(),
    LoadEntry(folder="/f", import_paths=["/p"], module="m", function="f", outputs=[], frontend="cutile"),
    SetArguments(
        zone=1,
        arguments=[
            CallArgument(name="x", tensor=TensorSpec(dtype="int8", shape=[3], stride=[1]), data=0),
            CallArgument(name="eps", value=1e-6),
            CallArgument(name="cap", special="-inf"),
        ],
    ),
    MakeCall(),
    Recorded(
        launches=[
            KernelLaunch(symbol="_Z4fillPf", grid=(3, 1, 1)),
            MemsetLaunch(size=64),
            CopyLaunch(size=8, way="to the host"),
        ],
        us=[12.5],
        host_us=[8.0],
    ),
    Captured(program=0, peak_bytes=5),
    NotCaptured(reason="it copies between the host and the GPU"),
    CandidateFailed(status="raised", message="ValueError: no"),
]
UNIONS = (ToReplayer, FromReplayer, ToWorker, FromWorker)


def known_by(message: Message) -> list[Any]:
    """The ends that take a message."""
    return [union for union in UNIONS if type(message) in get_args(union)]


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = socket.socketpair()
    with one, other:
        yield Channel(one), Channel(other)


def taken(kinds: Any, sent: Any, buffers: list[bytes]) -> Message:
    one, other = socket.socketpair()
    with one, other:
        Channel(one).send(sent, buffers, 5)
        link: Link[Any] = Link(Channel(other), kinds)
        found: Message = link.receive(5)[0]
        return found


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: message.kind)
def test_a_message_arrives_as_it_was_sent_where_it_is_known(message: Message, ends: tuple[Channel, Channel]) -> None:
    known = known_by(message)
    assert known
    link: Link[Any] = Link(ends[1], known[0])
    Link[Any](ends[0], known[0]).send(message, [b"abc"], 5)
    assert link.receive(5) == (message, [bytearray(b"abc")])
    for other in UNIONS:
        if other not in known:
            with pytest.raises(ChannelError, match="no message that is known here"):
                taken(other, message.model_dump(mode="json"), [])


def test_every_message_is_tried() -> None:
    classes = {one for one in vars(messages).values() if isinstance(one, type) and issubclass(one, Message)}
    assert {type(message) for message in EXAMPLES} == {one for one in classes if "kind" in one.model_fields}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.sampled_from(EXAMPLES), st.data())
def test_a_message_with_anything_else_in_it_is_refused(message: Message, data: st.DataObject) -> None:
    sent = message.model_dump(mode="json")
    name = data.draw(st.sampled_from([*sent, "more"]))
    sent[name] = data.draw(JSON)
    for known in UNIONS:
        try:
            found = taken(known, sent, [])
        except ChannelError:
            continue
        assert json.loads(found.model_dump_json()) == {**json.loads(found.model_dump_json()), **sent}


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=4))
def test_what_is_no_message_is_refused(sent: dict[str, Any]) -> None:
    for known in UNIONS:
        with pytest.raises(ChannelError):
            taken(known, sent, [])


@given(st.integers(0, 2**32))
def test_bytes_that_are_no_frame_are_refused(seed: int) -> None:
    one, other = socket.socketpair()
    with other:
        one.sendall(random.Random(seed).randbytes(200))
        one.close()
        with pytest.raises(ChannelError):
            Link[Any](Channel(other), ToReplayer).receive(5)


def test_a_buffer_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ChannelError, match="names buffer 1 of 1"):
        buffer_of([bytearray(3)], 1)

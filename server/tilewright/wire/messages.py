"""What processes say to each other, as types. A frame is one message, as JSON, and raw buffers.

Every message has a `kind`. Each end knows which kinds it may be sent, and takes nothing else: the other process may run
code that nobody trusts. House rules for a message: its fields are strict, its numbers are finite, and a buffer is named
by its place in the frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from tilewright.wire.channel import Channel, ChannelError, Received, Sent
from tilewright.wire.launches import MAX_LAUNCHES, MAX_SYMBOL, Launch
from tilewright.wire.record import Record, misfit
from tilewright.wire.tensors import TensorSpec

MAX_PAIRS, MAX_DRAWS, MAX_ARMS = 4096, 16, 64
Us = Annotated[float, Field(ge=0, description="microseconds")]
Blob = Annotated[int, Field(ge=0, lt=4096, description="a buffer's place in the frame")]
Symbol = Annotated[str, Field(max_length=MAX_SYMBOL, description="of a kernel, mangled")]
Word = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$", description="64 bits")]
Scalar = int | float | str | bool | None
ArmNumber = Annotated[int, Field(ge=0, lt=MAX_ARMS)]


class Message(Record):
    model_config = ConfigDict(strict=True)


class ReplayerReady(Message):
    """The replayer's first word: its GPU, the CUDA version of its driver, and how it is confined."""

    kind: Literal["replayer-ready"] = "replayer-ready"
    gpu: str = Field(max_length=100)
    arch: str = Field(max_length=20)
    driver: str = Field(max_length=20)
    isolation: dict[str, Any]


class LoadPrograms(Message):
    """Take these programs, one an arm, in place of those before: files, each a buffer."""

    kind: Literal["load-programs"] = "load-programs"
    programs: list[Blob] = Field(min_length=1, max_length=MAX_ARMS)


class ProgramsLoaded(Message):
    """The programs are there. The SM clock of the GPU when it had nothing else to do."""

    kind: Literal["programs-loaded"] = "programs-loaded"
    mhz: float = Field(ge=0)


class SetDraws(Message):
    """Take these contents of the inputs in place of those before: for each draw and each input in the order of arm 0's
    program, a buffer."""

    kind: Literal["set-draws"] = "set-draws"
    draws: list[list[Blob]] = Field(min_length=1, max_length=MAX_DRAWS)


class Room(Message):
    """Memory for an arm's outputs on a draw, a buffer: the whole words of 8 bytes of each, one after the other."""

    arm: ArmNumber
    draw: int = Field(ge=0, lt=MAX_DRAWS)
    memory: Blob


class RunRound(Message):
    """All arms in turns on new pages, `pairs` calls of each, with a pause before each. For each room, the outputs of
    one call of its arm on its draw are written there; which one is drawn after it has ended."""

    kind: Literal["run-round"] = "run-round"
    pairs: int = Field(ge=1, le=MAX_PAIRS)
    rooms: list[Room] = Field([], max_length=MAX_ARMS * MAX_DRAWS)
    pause_s: float = Field(0.0, ge=0, le=1)
    limit_s: float = Field(gt=0, le=3600, description="for one call")


class Digest(Message):
    """Of the outputs of calls of an arm on a draw, under a key that is the same as long as the draws are: equal for
    equal outputs."""

    arm: ArmNumber
    draw: int = Field(ge=0, lt=MAX_DRAWS)
    digest: Word


class Round(Message):
    """One round's calls, in the order in which they ran: by the events around the program, and by the wall clock from
    the writing of the inputs to the digest's arrival; and the SM clock behind each. Lists of each arm and, last, of the
    empty program. `digests`: each that a call of an arm on a draw gave, once."""

    kind: Literal["round"] = "round"
    events: list[list[Us]] = Field(min_length=2, max_length=MAX_ARMS + 1)
    wall: list[list[Us]] = Field(min_length=2, max_length=MAX_ARMS + 1)
    mhz: list[list[float]] = Field(min_length=2, max_length=MAX_ARMS + 1)
    digests: list[Digest] = Field([], max_length=MAX_ARMS * MAX_PAIRS)


class RunAlone(Message):
    """The arm of a room on its draw, a few calls: what the last one gives, or whether it is the one that fails."""

    kind: Literal["run-alone"] = "run-alone"
    room: Room
    calls: int = Field(3, ge=1, le=MAX_PAIRS)
    limit_s: float = Field(gt=0, le=3600)
    pause_s: float = Field(0.0, ge=0, le=1)


class Block(Message):
    arm: ArmNumber
    calls: int = Field(ge=1, le=10**6)


class RunBlocks(Message):
    """Blocks of calls, one directly after the other, on draw 0. Nothing is put back between calls, and the L2 stays as
    it is."""

    kind: Literal["run-blocks"] = "run-blocks"
    blocks: list[Block] = Field(min_length=1, max_length=64)
    limit_s: float = Field(gt=0, le=3600, description="for one block")


class Blocks(Message):
    """By block: microseconds for a call, and the SM clock behind the last one."""

    kind: Literal["blocks"] = "blocks"
    us: list[Us]
    mhz: list[float]


class Outputs(Message):
    """The calls, in their order. A replayer that records adds what a call launched, in the order in which it began, and
    for each call what each of these launches took; or `not_recorded` says why it is not known."""

    kind: Literal["outputs"] = "outputs"
    events: list[Us]
    wall: list[Us]
    launches: list[Launch] = Field([], max_length=MAX_LAUNCHES)
    us: list[list[Us]] = Field([], max_length=MAX_PAIRS)
    not_recorded: str = Field("", max_length=1000)


class Done(Message):
    kind: Literal["done"] = "done"


FaultKind = Literal["out-of-memory", "illegal-access", "launch-failed", "hang", "refused", "tampered", "crashed"]


class ReplayFault(Message):
    """In place of any reply: what went wrong, in which arm (none where no program ran), and whether the replayer has
    to be started again."""

    kind: Literal["replay-fault"] = "replay-fault"
    fault: FaultKind
    arm: ArmNumber | None
    detail: str = Field(max_length=1000)
    fatal: bool


class WorkerReady(Message):
    """A worker's first word."""

    kind: Literal["worker-ready"] = "worker-ready"


class LoadEntry(Message):
    """Import `module` from `folder`, with `import_paths` before it, and take its `function`. `outputs` names arguments
    that it fills. If there is a `root`, all paths lie below it, and every worker imports them by the same path."""

    kind: Literal["load-entry"] = "load-entry"
    folder: str = Field(max_length=4096)
    import_paths: list[str] = Field(max_length=100)
    module: str = Field(max_length=1000)
    function: str = Field(max_length=1000)
    outputs: list[str] = Field(max_length=256)
    frontend: str = Field(max_length=100)
    root: str = Field("", max_length=4096)


class CallArgument(Message):
    """An argument: a tensor, whose bytes are a buffer, or a plain value. JSON has no infinities and no NaN: `special`
    says them."""

    name: str = Field(max_length=1000)
    tensor: TensorSpec | None = None
    data: Blob = 0
    value: Scalar = None
    special: Literal["", "inf", "-inf", "nan"] = ""

    @classmethod
    def plain(cls, name: str, value: Scalar) -> Self:
        """An argument that is no tensor."""
        if isinstance(value, float) and not math.isfinite(value):
            return cls.model_validate({"name": name, "special": str(value)})
        return cls(name=name, value=value)

    @property
    def said(self) -> Scalar:
        """The value of one that is no tensor."""
        return float(self.special) if self.special else self.value


class SetArguments(Message):
    """Take these arguments, at the addresses of a zone: one after those of the arguments before."""

    kind: Literal["set-arguments"] = "set-arguments"
    zone: int = Field(ge=1)
    arguments: list[CallArgument] = Field(max_length=1000)


class MakeCall(Message):
    """Call the entry point until it is warm; then capture a call, or record what further calls launch and how long they
    take: a worker does the one or the other."""

    kind: Literal["make-call"] = "make-call"


class Captured(Message):
    """The program's file, the most bytes of the GPU's memory that a call took beyond its arguments, how many images
    languages loaded for the call beside those of the program (a tuner's, say), and the kernels of the program that are
    a library's, by their symbols: fills, and copies that keep the dtype, are left out."""

    kind: Literal["captured"] = "captured"
    program: Blob
    peak_bytes: int = Field(ge=0)
    spare_images: int = Field(0, ge=0)
    libraries: list[Symbol] = Field(default_factory=list, max_length=MAX_LAUNCHES)


class Recorded(Message):
    """What an ordinary call launched, in no order; for each of some calls from a cold cache, what its launches took on
    the GPU together; and for each of some others, how long the host took to launch it."""

    kind: Literal["recorded"] = "recorded"
    launches: list[Launch] = Field(max_length=MAX_LAUNCHES)
    us: list[Us] = Field(min_length=1, max_length=MAX_PAIRS)
    host_us: list[Us] = Field(min_length=1, max_length=MAX_PAIRS)


class NotCaptured(Message):
    """The call ran, and cannot be a program, or what it launched cannot be recorded."""

    kind: Literal["not-captured"] = "not-captured"
    reason: str = Field(max_length=1000)


class CandidateFailed(Message):
    """In place of any reply: the candidate failed, with which status."""

    kind: Literal["candidate-failed"] = "candidate-failed"
    status: str = Field(max_length=50)
    message: str = Field(max_length=4000)


ToWorker = LoadEntry | SetArguments | MakeCall
FromWorker = WorkerReady | Done | Captured | Recorded | NotCaptured | CandidateFailed
ToReplayer = LoadPrograms | SetDraws | RunRound | RunAlone | RunBlocks
FromReplayer = ReplayerReady | ProgramsLoaded | Round | Outputs | Blocks | Done | ReplayFault
Kind = TypeVar("Kind", bound=Message)


class Link(Generic[Kind]):
    """One end of a channel that receives messages of the types `Kind`."""

    def __init__(self, channel: Channel, kinds: Any) -> None:
        """`kinds`: `Kind` once more, as a value."""
        self.channel = channel
        self._known: TypeAdapter[Kind] = TypeAdapter(Annotated[kinds, Field(discriminator="kind")])

    def send(self, message: Message, buffers: Sequence[Sent] = (), timeout: float | None = None) -> None:
        """Raises as `Channel.send` does."""
        self.channel.send(message.model_dump(mode="json"), buffers, timeout)

    def receive(self, timeout: float | None = None) -> tuple[Kind, list[Received]]:
        """The next message, within `timeout` seconds. Raises `ChannelError` for one that is not of these kinds, and as
        `Channel.receive` does."""
        found, buffers = self.channel.receive(timeout)
        try:
            return self._known.validate_python(found), buffers
        except (ValidationError, RecursionError) as error:
            raise ChannelError(f"no message that is known here: {misfit(error)}") from None


def buffer_of(buffers: Sequence[Received], place: int) -> Received:
    """The buffer that a message names. Raises `ChannelError` where the frame has none at this place."""
    if place >= len(buffers):
        raise ChannelError(f"a message names buffer {place} of {len(buffers)}")
    return buffers[place]

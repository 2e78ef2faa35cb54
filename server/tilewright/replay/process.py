"""The replayer: a confined process with a driver, which answers the referee's requests.

`tilewright.isolation.confined` runs it. A device program can break what is in this process's context, so that an error
after which CUDA goes on no more ends the process, once it is reported.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from collections.abc import Sequence

from tilewright.gpu.cupti import NotRecorded, Recorder
from tilewright.gpu.driver import DriverError
from tilewright.isolation.confinement import Isolation
from tilewright.programs.digests import room_bytes
from tilewright.programs.format import decoded
from tilewright.programs.model import Program, ProgramError
from tilewright.replay.calls import Tampered
from tilewright.replay.device import Device, Hang
from tilewright.replay.launches import Recording
from tilewright.replay.rounds import Blamed, OutOfMemory, Place, run_alone, run_blocks, run_round
from tilewright.wire.channel import Channel, ChannelClosed, ChannelError, Received
from tilewright.wire.messages import (
    Blocks,
    Digest,
    Done,
    FaultKind,
    Link,
    LoadPrograms,
    Message,
    Outputs,
    ProgramsLoaded,
    ReplayerReady,
    ReplayFault,
    Room,
    Round,
    RunAlone,
    RunBlocks,
    RunRound,
    SetDraws,
    ToReplayer,
    buffer_of,
)


class Replayer:
    """The requests: one method for each."""

    def __init__(self, device: Device, recorder: Recorder | NotRecorded | None = None) -> None:
        """`recorder` takes down what calls launch; why there is none, or None where nothing is to be recorded."""
        self._device = device
        self._recorder = recorder
        self._programs: list[Program] = []
        self._draws: list[list[int]] = []
        self._key = 0
        self._mhz: float | None = None

    def answer(self, message: ToReplayer, buffers: Sequence[Received]) -> Message:
        """Raises `ProgramError`, `OutOfMemory`, `Blamed`, `DriverError`, `ChannelError`."""
        match message:
            case LoadPrograms():
                return self._load(message, buffers)
            case SetDraws():
                return self._set_draws(message, buffers)
            case RunRound():
                return self._run_round(message, buffers)
            case RunAlone():
                return self._run_alone(message, buffers)
            case RunBlocks():
                return self._run_blocks(message)

    def _load(self, message: LoadPrograms, buffers: Sequence[Received]) -> Message:
        self._programs = []
        self._drop_draws()
        programs = [decoded(bytes(buffer_of(buffers, place))) for place in message.programs]
        for program in programs:
            if program.layout.arch.rstrip("af") != self._device.context.arch:
                raise ProgramError(f"it is for {program.layout.arch}, and the GPU is {self._device.context.arch}")
        inputs = [[(one.name, one.spec) for one in program.layout.inputs] for program in programs]
        if any(one != inputs[0] for one in inputs):
            raise ProgramError("the programs have other inputs")
        outputs = [[(one.spec.dtype, one.spec.shape) for one in program.layout.outputs] for program in programs]
        if any(one != outputs[0] for one in outputs):
            raise ProgramError("the programs have other outputs")
        self._programs = programs
        if self._mhz is None:
            self._mhz = self._device.idle_mhz()
        return ProgramsLoaded(mhz=self._mhz)

    def _set_draws(self, message: SetDraws, buffers: Sequence[Received]) -> Message:
        if not self._programs:
            raise ChannelError("draws for no program")
        sizes = [tensor.size for tensor in self._programs[0].layout.inputs]
        draws = [[buffer_of(buffers, place) for place in draw] for draw in message.draws]
        if any([*map(len, draw)] != sizes for draw in draws):
            raise ChannelError("a draw has other sizes than the inputs")
        self._drop_draws()
        self._key = secrets.randbits(64)
        for draw in draws:
            self._draws.append([])
            for data in draw:
                self._draws[-1].append(self._device.allocate(len(data)))
                self._device.write(self._draws[-1][-1], data)
        return Done()

    def _drop_draws(self) -> None:
        while self._draws:
            for at in self._draws.pop():
                self._device.free(at)

    def _run_round(self, message: RunRound, buffers: Sequence[Received]) -> Message:
        if not self._draws or (message.rooms and message.pairs < len(self._draws)):
            raise ChannelError("a round needs draws, and as many pairs to fill rooms")
        rooms: dict[Place, memoryview] = {(room.arm, room.draw): self._room(room, buffers) for room in message.rooms}
        measured = run_round(
            self._device,
            self._programs,
            self._draws,
            message.pairs,
            rooms,
            message.limit_s,
            self._key,
            message.pause_s,
        )
        return Round(
            events=[[one.events for one in calls] for calls in measured.calls],
            wall=[[one.wall for one in calls] for calls in measured.calls],
            mhz=[[one.mhz for one in calls] for calls in measured.calls],
            digests=[
                Digest(arm=arm, draw=draw, digest=f"{digest:016x}")
                for (arm, draw), seen in measured.digests.items()
                for digest in seen
            ],
        )

    def _run_alone(self, message: RunAlone, buffers: Sequence[Received]) -> Message:
        arm, draw = message.room.arm, message.room.draw
        memory = self._room(message.room, buffers)
        program, recording = self._programs[arm], Recording(self._recorder)
        many, limit_s, rest_s = message.calls, message.limit_s, message.pause_s
        try:
            calls = run_alone(self._device, program, self._draws, draw, many, limit_s, memory, recording.watch, rest_s)
        except Blamed as blamed:
            raise Blamed(arm, blamed.cause) from None
        return Outputs(
            events=[one.events for one in calls],
            wall=[one.wall for one in calls],
            launches=recording.launches,
            us=recording.us,
            not_recorded=recording.not_recorded,
        )

    def _run_blocks(self, message: RunBlocks) -> Message:
        if not self._draws or any(one.arm >= len(self._programs) for one in message.blocks):
            raise ChannelError("a block needs draws, and an arm that is loaded")
        made = run_blocks(
            self._device,
            self._programs,
            self._draws,
            [(one.arm, one.calls) for one in message.blocks],
            message.limit_s,
        )
        return Blocks(us=[us for us, _ in made], mhz=[mhz for _, mhz in made])

    def _room(self, room: Room, buffers: Sequence[Received]) -> memoryview:
        """The memory of a room, which is as large as the outputs. Raises `ChannelError`."""
        if room.arm >= len(self._programs) or room.draw >= len(self._draws):
            raise ChannelError("no such arm, or no such draw")
        memory = memoryview(buffer_of(buffers, room.memory))
        if len(memory) < room_bytes(self._programs[room.arm]):
            raise ChannelError("a room is smaller than the outputs")
        return memory


_KINDS: dict[str, FaultKind] = {
    "CUDA_ERROR_OUT_OF_MEMORY": "out-of-memory",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "illegal-access",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "illegal-access",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "illegal-access",
}


def fault_of(error: Exception) -> ReplayFault:
    """What the referee is told of an error. Raises it again where it is none of a program's."""
    arm, cause = (error.arm, error.cause) if isinstance(error, Blamed) else (None, error)
    match cause:
        case DriverError():
            kind: FaultKind = _KINDS.get(cause.name, "launch-failed" if cause.fatal else "refused")
            return ReplayFault(fault=kind, arm=arm, detail=str(cause)[:1000], fatal=cause.fatal)
        case Hang():
            return ReplayFault(fault="hang", arm=arm, detail=str(cause), fatal=True)
        case Tampered():
            return ReplayFault(fault="tampered", arm=arm, detail=str(cause), fatal=True)
        case OutOfMemory():
            return ReplayFault(fault="out-of-memory", arm=arm, detail=str(cause), fatal=False)
        case ProgramError():
            return ReplayFault(fault="refused", arm=arm, detail=str(cause)[:1000], fatal=False)
    raise error


def serve(link: Link[ToReplayer], replayer: Replayer) -> None:
    """Answer until the referee closes the channel, or an error is fatal."""
    while True:
        message, buffers = link.receive()
        try:
            answer = replayer.answer(message, buffers)
        except (Blamed, DriverError, OutOfMemory, ProgramError) as error:
            fault = fault_of(error)
            link.send(fault)
            if fault.fatal:
                return
            continue
        link.send(answer)


def main(channel: socket.socket, isolation: Isolation, recorder: Recorder | NotRecorded | None = None) -> None:
    """Open the GPU in this process, which is confined, and answer. `recorder`: see `Replayer`."""
    link: Link[ToReplayer] = Link(Channel(channel, takes_memory=True), ToReplayer)
    try:
        device = Device()
    except (DriverError, RuntimeError) as error:
        raise SystemExit(f"no GPU can be used here: {error}") from None
    context = device.context
    link.send(
        ReplayerReady(
            gpu=context.uuid,
            arch=context.arch,
            driver=context.driver,
            isolation=isolation.model_dump(),
        )
    )
    with contextlib.suppress(ChannelClosed):
        serve(link, Replayer(device, recorder))
    os._exit(0)  # a context that hangs does not end in order

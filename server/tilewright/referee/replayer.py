"""The replayer from the referee's side: started when it is needed, and again when a program broke it."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeVar

from tilewright.gpu.lease import lease
from tilewright.gpu.telemetry import find_gpu
from tilewright.isolation.process import ChildProcess, kept_environment, spawned
from tilewright.programs.digests import in_room, room_bytes
from tilewright.programs.format import encoded
from tilewright.programs.model import Program
from tilewright.wire.channel import ChannelClosed, ChannelError, ChannelTimeout, Sent
from tilewright.wire.memory import Memory, Reused
from tilewright.wire.messages import (
    Block,
    Blocks,
    Done,
    FaultKind,
    FromReplayer,
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
)

START_S = 60.0
LEASE_WAIT_S = 60.0
SLACK_S = 30.0
"""Beyond what its calls may take, for a reply to come."""
WARM = 5
"""Calls of each arm in a round that do not count, at most."""
BYTES_A_SECOND = 50e6
"""Of what is sent to it, at least."""
Reply = TypeVar("Reply", bound=Message)
Draws = Sequence[Sequence[Sent]]


class Fault(Exception):
    """A program could not be replayed. `arm` is the one that fails when it is run alone; None where neither does."""

    def __init__(self, kind: FaultKind, arm: int | None, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.arm = arm


class Copy(NamedTuple):
    """The outputs of one call of an arm on a draw, whole words each."""

    arm: int
    draw: int
    outputs: list[memoryview]


class ReplayerGone(Exception):
    """The replayer could not start, or said something that is no answer."""


class Replayer:
    """A replayer process. A context manager: it ends with the block."""

    def __init__(self, folder: Path | None = None, records: bool = False) -> None:
        """`folder` is where its scratch folder is made; default: the temporary folder. One that `records` says what
        the calls of `alone` launch, and its times are no verdict."""
        self._folder = folder
        self._module = "tilewright.replay.recording" if records else "tilewright.replay.process"
        self._process: ChildProcess | None = None
        self._scratch: Path | None = None
        self._link: Link[FromReplayer] | None = None
        self._programs: list[Program] = []
        self._draws: Draws = []
        self.ready: ReplayerReady | None = None
        self.memory = Reused()
        """For contents of inputs, and for outputs."""
        self.starts = 0
        self.idle_mhz = 0.0
        """The SM clock that the GPU had with nothing to do, when the process was given its first programs."""

    def __enter__(self) -> Replayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Start the process, if it does not run, and do not wait for it."""
        if self._process is not None:
            return
        self._scratch = Path(tempfile.mkdtemp(prefix="tilewright-replayer-", dir=self._folder))
        environment = kept_environment() | {"HOME": str(self._scratch), "TMPDIR": str(self._scratch)}
        environment |= {"CUDA_CACHE_PATH": str(self._scratch)}
        self._process = spawned("tilewright.isolation.confined", [self._module], environment, self._scratch)
        self._link = Link(self._process.channel, FromReplayer)
        self.starts += 1

    def start(self) -> ReplayerReady:
        """Start the process, if it does not run, and wait until it is ready. Raises `ReplayerGone`."""
        if self.ready is not None:
            return self.ready
        self.begin()
        assert self._link is not None
        try:
            ready, _ = self._link.receive(START_S)
        except ChannelError as error:
            raise self._gone(f"the replayer could not start: {error}") from None
        if not isinstance(ready, ReplayerReady):
            raise self._gone("the replayer did not say that it is ready")
        self.ready = ready
        return ready

    def load(self, programs: Sequence[Program], draws: Draws) -> None:
        """Take programs, one an arm, and contents of their inputs by draw. Raises `Fault`, `ReplayerGone`."""
        self._programs, self._draws = [*programs], draws
        files = [encoded(program) for program in programs]
        flat = [data for draw in draws for data in draw]
        limit_s = SLACK_S + sum(map(len, (*files, *flat))) / BYTES_A_SECOND
        loaded = self._ask(LoadPrograms(programs=[*range(len(files))]), ProgramsLoaded, files, limit_s)
        self.idle_mhz = loaded.mhz
        width = len(programs[0].layout.inputs)
        places = [[*range(number * width, (number + 1) * width)] for number in range(len(draws))]
        self._ask(SetDraws(draws=places), Done, flat, limit_s)

    def round(self, pairs: int, limit_s: float, pause_s: float = 0.0) -> Round:
        """Run one round of all arms: `pairs` calls of each, of at most `limit_s` seconds, each after a pause. Raises
        `Fault`, whose arm was found by running each alone, and `ReplayerGone`."""
        return self.copied_round(pairs, limit_s, pause_s, arms=())[0]

    def copied_round(
        self, pairs: int, limit_s: float, pause_s: float = 0.0, arms: Sequence[int] = (0, 1)
    ) -> tuple[Round, list[Copy]]:
        """The same, with the outputs of one call of each of these arms on each draw, drawn after it. They hold until
        this is called again."""
        places = [(arm, draw) for arm in arms for draw in range(len(self._draws))]
        memory = [self.memory.of(place, self._room(place[0])) for place in places]
        rooms = [Room(arm=arm, draw=draw, memory=number) for number, (arm, draw) in enumerate(places)]
        ask = RunRound(pairs=pairs, rooms=rooms, limit_s=limit_s, pause_s=pause_s)
        calls = (len(self._programs) + 1) * (pairs + WARM)
        try:
            answer = self._ask(ask, Round, memory, SLACK_S + calls * (limit_s + pause_s))
        except Fault as fault:
            raise self._blamed(fault, limit_s) from None
        return answer, [self._copy(*place, held) for place, held in zip(places, memory, strict=True)]

    def alone(self, arm: int, draw: int, calls: int, limit_s: float, pause_s: float = 0.0) -> tuple[Outputs, Copy]:
        """Run one arm on one draw; the GPU rests for `pause_s` before each call. The outputs hold until the replayer
        runs anything else. Raises `Fault`, `ReplayerGone`."""
        memory = self.memory.of((arm, draw), self._room(arm))
        ask = RunAlone(room=Room(arm=arm, draw=draw, memory=0), calls=calls, limit_s=limit_s, pause_s=pause_s)
        answer = self._ask(ask, Outputs, [memory], SLACK_S + calls * (limit_s + pause_s))
        return answer, self._copy(arm, draw, memory)

    def blocks(self, blocks: Sequence[tuple[int, int]], limit_s: float) -> Blocks:
        """Run blocks of calls of an arm, one directly after the other: the arm, and how many. Raises `Fault`,
        `ReplayerGone`."""
        return self._ask(
            RunBlocks(blocks=[Block(arm=arm, calls=calls) for arm, calls in blocks], limit_s=limit_s),
            Blocks,
            (),
            SLACK_S + len(blocks) * limit_s,
        )

    def _room(self, arm: int) -> int:
        """Bytes that the outputs of an arm take."""
        return max(room_bytes(self._programs[arm]), 1)

    def _copy(self, arm: int, draw: int, memory: Memory) -> Copy:
        return Copy(arm, draw, in_room(self._programs[arm], memory.view))

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        self._process = self._scratch = self._link = self.ready = None

    def _blamed(self, fault: Fault, limit_s: float) -> Fault:
        """The same fault, of the arm that shows one alone, in a fresh context."""
        whose = fault.kind in ("out-of-memory", "refused", "tampered") and fault.arm is not None
        if whose or fault.kind == "out-of-memory" or len(self._programs) < 2:
            return fault
        programs, draws, found = self._programs, self._draws, None
        for arm, program in enumerate(programs):
            self.close()
            try:
                self.load([program], draws)
                for draw in range(len(draws)):
                    self.alone(0, draw, 3, limit_s)
            except Fault as alone:
                found = Fault(alone.kind, arm, str(alone))
                break
        self.close()  # what is loaded is no longer all of them
        return found or Fault(fault.kind, None, f"{fault}; no version does this when it runs alone")

    def _ask(self, message: Message, kind: type[Reply], buffers: Sequence[Sent], limit_s: float) -> Reply:
        self.start()
        assert self._link is not None
        began = time.monotonic()
        try:
            self._link.send(message, buffers, limit_s)
            answer, _ = self._link.receive(max(limit_s - (time.monotonic() - began), 1.0))
        except ChannelTimeout:
            self.close()
            raise Fault("hang", None, f"the replayer did not answer within {limit_s:.0f} s") from None
        except ChannelClosed:
            gone = self._gone("the replayer ended")
            if isinstance(message, RunRound | RunAlone | RunBlocks):  # a program can break the driver in its process
                raise Fault("crashed", 0 if isinstance(message, RunAlone) else None, str(gone)) from None
            raise gone from None
        except ChannelError as error:
            raise self._gone(f"the replayer: {error}") from None
        if isinstance(answer, ReplayFault):
            if answer.fatal:
                self.close()
            raise Fault(answer.fault, answer.arm, answer.detail)
        if not isinstance(answer, kind):
            raise self._gone(f"the replayer answered with {answer.kind}")
        return answer

    def _gone(self, text: str) -> ReplayerGone:
        process = self._process
        reason = process.exit_reason() if process else None
        said = process.output().strip().splitlines()[-1:] if process else []
        self.close()
        return ReplayerGone(": ".join(filter(None, [text, reason, *said])))


def exclusive_gpu(wait_s: float = LEASE_WAIT_S) -> contextlib.AbstractContextManager[None]:
    """Hold the GPU, if there is one: two measurements at once disturb each other. Raises `GpuBusy` after `wait_s`."""
    gpu = find_gpu()
    return lease(gpu.uuid, wait_s, lambda _: None) if gpu else contextlib.nullcontext()

"""What the referee makes of what two workers claim; and what the Python interface asks of them."""

from __future__ import annotations

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import pytest
import torch

import tilewright
from tests.unit.programs.made import OUT, VECTOR, copied, fill, program
from tilewright import api
from tilewright.errors import UsageError
from tilewright.isolation.fork_server import capture_server
from tilewright.programs.agreement import agreed
from tilewright.programs.format import encoded
from tilewright.programs.launches import launches_of
from tilewright.programs.model import Kernel, Program
from tilewright.referee import capture_worker
from tilewright.referee.capture_worker import Entry, EntryFailed, InProcess
from tilewright.referee.captures import (
    Arguments,
    CallCaptured,
    OrdinaryCalls,
    OtherLaunches,
    capture_calls,
    capture_twice,
    confirm_launches,
)
from tilewright.wire.channel import Channel, ChannelClosed
from tilewright.wire.launches import KernelLaunch
from tilewright.wire.messages import (
    CallArgument,
    CandidateFailed,
    Captured,
    Done,
    Link,
    LoadEntry,
    MakeCall,
    Message,
    NotCaptured,
    Recorded,
    SetArguments,
    ToWorker,
    WorkerReady,
)
from tilewright.wire.tensors import TensorSpec

Claim = Callable[[int, LoadEntry], tuple[Message, list[bytes]] | None]
"""What the worker of this number says of its call; None: it ends."""
ONE = program([copied(), fill(OUT, 20)])


class Child:
    """Stands for a worker process: a thread that says what a test has it claim."""

    def __init__(self, number: int, claim: Claim, asked: list[Message]) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self._thread = threading.Thread(target=self._run, args=(theirs, number, claim, asked), daemon=True)
        self._thread.start()

    def _run(self, sock: socket.socket, number: int, claim: Claim, asked: list[Message]) -> None:
        with sock, contextlib.suppress(ChannelClosed):  # nobody may wait for it any more
            link: Link[ToWorker] = Link(Channel(sock, takes_memory=True), ToWorker)
            link.send(WorkerReady())
            load: Any = None
            while True:
                message, _ = link.receive()
                asked.append(message)
                if isinstance(message, LoadEntry):
                    load = message
                answer: tuple[Message, list[bytes]] | None = Done(), []
                if isinstance(message, MakeCall):
                    answer = claim(number, load)
                if answer is None:
                    return
                link.send(*answer)

    def await_answer(self, timeout_s: float, stop: threading.Event | None = None) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.channel.ready(0.05):
            if time.monotonic() > deadline or (stop is not None and stop.is_set()):
                return False
        return True

    def kill(self) -> None:
        self.channel.close()
        self._thread.join(1)

    def exit_reason(self) -> str:
        return "killed by SIGSEGV"

    def output(self) -> str:
        return ""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Claim], list[Message]]]:
    """Have workers claim something; gives what they are asked."""
    asked: list[Message] = []

    def make(claim: Claim) -> list[Message]:
        started: list[Child] = []

        def process(*_: Any) -> Child:
            started.append(Child(len(started), claim, asked))
            return started[-1]

        monkeypatch.setattr(capture_worker, "ChildProcess", process)
        return asked

    yield make


SERVER: Any = None  # nothing is forked
NEVER_S = 3600.0
"""Longer than a test may take: what waits for this has hung."""
ENTRY = Entry(Path("/nowhere"), "kernel", "scale", "cutile", label="kernel:scale")
X = CallArgument(name="x", tensor=VECTOR)
DRAWS = Arguments((X,), (bytes(1024),)), Arguments((X,), (bytes(1024),))


def claimed(*programs: Program) -> Claim:
    """By the number of the worker; more of them claim the last."""
    return lambda number, _: (Captured(program=0, peak_bytes=0), [encoded(programs[: number + 1][-1])])


def with_struct(beginning: bytes, left: int) -> Program:
    """A program whose kernel takes a struct of 16 bytes, the last 8 of which are what was left on the stack."""
    node = fill(OUT, 20)
    struct = beginning.ljust(8, b"\0") + bytes([left] * 8)
    return program([copied(), node.model_copy(update={"parameters": (*node.parameters, struct)})])


def test_one_program_from_two_draws_is_taken(worker: Callable[[Claim], list[Message]]) -> None:
    other = program([copied(), fill(OUT, 20)], held=b"\x02" * 64)
    worker(claimed(ONE, other))
    found = capture_twice(SERVER, ENTRY, DRAWS, 5.0, {"x": bytes(1024)})
    assert (found.layout, found.held, found.label) == (ONE.layout, ONE.held, "kernel:scale")
    assert found.examples == {"x": bytes(1024)}


def test_a_capture_that_is_given_up_waits_for_no_answer(worker: Callable[[Claim], list[Message]]) -> None:
    stop = Event()

    def claim(*_: Any) -> None:
        stop.set()
        time.sleep(0.5)

    worker(claim)
    with pytest.raises(EntryFailed):
        capture_calls(SERVER, ENTRY, [DRAWS], NEVER_S, stop=stop)


@pytest.mark.parametrize("spare", [0, 2])
def test_a_call_for_which_more_was_loaded_may_have_tuned(worker: Callable[[Claim], list[Message]], spare: int) -> None:
    worker(lambda *_: (Captured(program=0, peak_bytes=0, spare_images=spare), [encoded(ONE)]))
    (found,) = capture_calls(SERVER, ENTRY, [DRAWS], 5.0)
    assert (found.tuned, found.fixed) == (bool(spare), not spare)


@pytest.mark.parametrize("tuned", [False, True])
def test_beside_other_work_the_first_call_that_is_not_fixed_ends_it(
    worker: Callable[[Claim], list[Message]], tmp_path: Path, tuned: bool
) -> None:
    """And nothing that was compiled, or chosen, is kept."""
    answer: Message = Captured(program=0, peak_bytes=0, spare_images=1) if tuned else NotCaptured(reason="it waits")
    asked = worker(lambda *_: (answer, [encoded(ONE)] if tuned else []))
    with pytest.raises(InProcess, match="it may have tuned while other work went on" if tuned else "it waits"):
        capture_calls(SERVER, ENTRY, [DRAWS] * 3, 5.0, tmp_path / "cache", stop=Event())
    assert {one.zone for one in asked if isinstance(one, SetArguments)} == {1}
    assert not (tmp_path / "cache").exists()


OTHER = program([copied(), fill(OUT + 256, 20)])
"""Its kernel writes to another planned address."""


def test_two_programs_that_differ_are_both_kept_as_a_tuners(worker: Callable[[Claim], list[Message]]) -> None:
    worker(claimed(ONE, OTHER))
    (found,) = capture_calls(SERVER, ENTRY, [DRAWS], 5.0)
    assert ([one.layout for one in found.programs], found.fixed) == ([ONE.layout, OTHER.layout], False)
    worker(claimed(ONE, OTHER, ONE, OTHER))
    with pytest.raises(InProcess, match="two captures of it differ: node 1: parameter 0: 00004000"):
        capture_twice(SERVER, ENTRY, DRAWS, 5.0)


def test_further_captures_add_what_they_chose() -> None:
    one, other = (CallCaptured((each,), peak_bytes=size) for each, size in ((ONE, 3), (OTHER, 7)))
    assert one.joined(one) == one
    assert one.joined(other) == CallCaptured((ONE, OTHER), peak_bytes=7)
    assert one.joined(other).joined(one).programs == (ONE, OTHER)
    first, more = (with_struct(b"set", left) for left in (1, 2))
    (joined,) = CallCaptured((first,)).joined(CallCaptured((more,))).programs
    assert joined == agreed(first, more) != first, "what differs now is zero"
    waits = CallCaptured(reason="it waits for the host")
    assert one.joined(waits) == waits.joined(one) == waits


def test_bytes_of_a_struct_that_nobody_sets_are_zero(worker: Callable[[Claim], list[Message]]) -> None:
    asked = worker(claimed(with_struct(b"set", 1), with_struct(b"set", 2)))
    found = capture_twice(SERVER, ENTRY, DRAWS, 5.0)
    (node,) = [node for node in found.layout.nodes if isinstance(node, Kernel)]
    assert node.parameters[-1] == b"set" + bytes(13)
    assert [message.kind for message in asked].count("make-call") == 2


def test_what_a_tuner_wrote_down_is_not_there_for_the_next_worker(
    worker: Callable[[Claim], list[Message]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But what was compiled is."""
    seen: list[list[str]] = []
    homes: list[str] = []

    def environment(home: Path, caches: dict[str, str]) -> dict[str, str]:
        homes.append(str(home))
        folders.append(Path(caches["TRITON_CACHE_DIR"]))
        return {}

    def claim(*_: Any) -> tuple[Message, list[bytes]]:
        folders[0].mkdir(parents=True, exist_ok=True)
        seen.append(sorted(path.name for path in folders[0].iterdir()))
        for name in ("kernel.cubin", "kernel.autotune.json"):
            (folders[0] / name).write_text("?")
        return Captured(program=0, peak_bytes=0), [encoded(ONE)]

    folders: list[Path] = []
    monkeypatch.setattr(capture_worker, "worker_environment", environment)
    worker(claim)
    assert capture_calls(SERVER, ENTRY, [DRAWS], 5.0)[0].fixed
    assert seen == [[], ["kernel.cubin"]]
    assert len({*homes}) == 2 == len(folders)
    assert folders[0] == folders[1]


def test_a_call_that_no_check_goes_on_beside_is_captured_by_one_worker_at_a_time(
    worker: Callable[[Claim], list[Message]],
) -> None:
    calls: list[str] = []

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        calls.append(f"{number} begins")
        time.sleep(0.1)
        calls.append(f"{number} ends")
        return Captured(program=0, peak_bytes=0), [encoded(ONE)]

    worker(claim)
    (found,) = capture_calls(SERVER, ENTRY, [DRAWS], 20.0)
    assert (found.fixed, calls) == (True, ["0 begins", "0 ends", "1 begins", "1 ends"])


def test_a_first_capture_that_also_compiled_is_replaced(worker: Callable[[Claim], list[Message]]) -> None:
    worker(claimed(OTHER, ONE))
    assert capture_twice(SERVER, ENTRY, DRAWS, 5.0).layout == ONE.layout


def test_where_memory_is_short_one_worker_captures_at_a_time(
    worker: Callable[[Claim], list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, most = [0], []
    enter, close = capture_worker.CaptureWorker.__init__, capture_worker.CaptureWorker.close

    def started(self: Any, *given: Any, **more: Any) -> None:
        alive[0] += 1
        enter(self, *given, **more)

    def closed(self: Any) -> None:
        alive[0] -= 1
        close(self)

    def claim(number: int, message: Message) -> tuple[Message, list[bytes]]:
        most.append(alive[0])
        if alive[0] > 1:
            return CandidateFailed(status="raised", message="out of GPU memory: 60 GiB"), []
        return Captured(program=0, peak_bytes=7), [encoded(ONE)]

    monkeypatch.setattr(capture_worker.CaptureWorker, "__init__", started)
    monkeypatch.setattr(capture_worker.CaptureWorker, "close", closed)
    worker(claim)
    assert capture_twice(SERVER, ENTRY, DRAWS, 5.0).layout == ONE.layout
    assert most == [2, 1, 1]
    worker(lambda *_: (CandidateFailed(status="raised", message="out of GPU memory: 60 GiB"), []))
    with pytest.raises(InProcess, match="at addresses of its own it does not fit on the GPU"):
        capture_twice(SERVER, ENTRY, DRAWS, 5.0)


def lying(raw: bytes) -> Claim:
    return lambda number, _: (Captured(program=0, peak_bytes=0), [raw])


@pytest.mark.parametrize(
    ("claim", "error", "why"),
    [
        (lambda *_: (NotCaptured(reason="it copies between the host and the GPU"), []), InProcess, "between the host"),
        (lambda *_: (NotCaptured(reason=""), []), InProcess, "its worker gave no reason"),
        (lambda *_: (CandidateFailed(status="raised", message="ValueError: no"), []), EntryFailed, "ValueError: no"),
        (
            lambda *_: (Captured(program=3, peak_bytes=0), []),
            InProcess,
            "wrongly: a message names buffer 3 of 0",
        ),
        (lying(b"no program"), InProcess, "wrongly: it is no device program"),
        (lying(encoded(ONE)[:-1]), InProcess, "wrongly: it is longer or shorter"),
        (lambda *_: (Done(), []), EntryFailed, "answered with done"),
    ],
)
def test_what_a_worker_says_is_only_a_claim(
    worker: Callable[[Claim], list[Message]], claim: Claim, error: type[Exception], why: str
) -> None:
    worker(claim)
    with pytest.raises(error, match=why):
        capture_twice(SERVER, ENTRY, DRAWS, 5.0)


def test_a_program_of_other_arguments_is_a_lie(worker: Callable[[Claim], list[Message]]) -> None:
    worker(claimed(ONE, ONE))
    other = Arguments((X.model_copy(update={"name": "y"}),), (bytes(1024),))
    with pytest.raises(InProcess, match="its inputs are not the arguments"):
        capture_twice(SERVER, ENTRY, (other, other), 5.0)


def test_a_kernel_that_its_image_does_not_hold_is_a_lie(worker: Callable[[Claim], list[Message]]) -> None:
    nodes = tuple(
        node.model_copy(update={"symbol": "other"}) if node.kind == "kernel" else node for node in ONE.layout.nodes
    )
    liar = Program(ONE.layout.model_copy(update={"nodes": nodes}), ONE.images, ONE.held)
    worker(claimed(liar, liar))
    with pytest.raises(InProcess, match="no image holds kernel other"):
        capture_twice(SERVER, ENTRY, DRAWS, 5.0)


def test_a_worker_that_ends_or_does_not_answer_is_the_candidates_fault(
    worker: Callable[[Claim], list[Message]],
) -> None:
    def silent(*_: Any) -> None:
        threading.Event().wait(1.0)

    worker(silent)
    with pytest.raises(EntryFailed, match="no answer within") as failed:
        capture_twice(SERVER, ENTRY, DRAWS, 0.2)
    assert failed.value.status == "timeout"


TWICE = program([copied(), fill(OUT, 20), fill(OUT, 21)])


def ordinary_calls(*of: Any) -> list[Recorded]:
    with OrdinaryCalls(*of) as calls:
        return calls.make()


def told(*launches: Any) -> Claim:
    return lambda *_: (Recorded(launches=[*launches], us=[5.0], host_us=[9.0]), [])


def test_an_ordinary_call_is_made_by_a_worker_of_its_own(
    worker: Callable[[Claim], list[Message]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = worker(told(*launches_of(ONE)))
    kinds: list[str] = []

    class Server:
        def start(self, end: Any, arguments: list[str], *_: Any) -> None:
            kinds.append(arguments[0])

    stand_in = capture_worker.ChildProcess

    def process(start: Callable[[Any], None], folder: Path) -> Any:
        start(None)
        return stand_in(start, folder)  # type: ignore[arg-type]

    monkeypatch.setattr(capture_worker, "ChildProcess", process)
    server: Any = Server()
    assert [one.launches for one in ordinary_calls(server, ENTRY, DRAWS, 5.0)] == [launches_of(ONE)] * 2
    assert [message.kind for message in asked] == ["load-entry", *["set-arguments", "make-call"] * 2]
    assert kinds == ["ordinary"]
    monkeypatch.setattr(capture_worker, "ChildProcess", lambda start, folder: start(None) or stand_in(start, folder))
    with pytest.raises(EntryFailed, match="answered with recorded"):
        capture_twice(server, ENTRY, DRAWS, 5.0)
    assert kinds == ["ordinary", "capture", "capture"]


def test_a_program_is_confirmed_by_what_an_ordinary_call_launches(worker: Callable[[Claim], list[Message]]) -> None:
    worker(told(*launches_of(ONE)[::-1]))
    confirmed = confirm_launches(ordinary_calls(SERVER, ENTRY, DRAWS, 5.0), [[ONE], [TWICE, ONE, ONE]])
    assert [[*map(id, each)] for each in confirmed] == [[id(ONE)], [id(ONE)] * 2]
    twice = Recorded(launches=launches_of(TWICE), us=[5.0], host_us=[9.0])
    assert confirm_launches([twice], [[ONE, TWICE]])[0][0] is TWICE
    other = KernelLaunch(symbol="other\x1b[2J", grid=(128, 1, 1))
    worker(told(*launches_of(ONE), other))
    with pytest.raises(OtherLaunches) as refused:
        confirm_launches(ordinary_calls(SERVER, ENTRY, DRAWS[:1], 5.0), [[ONE]])
    assert str(refused.value) == (
        "launches other kernels outside capture; write the tuned config down: kernel other?[2J with grid "
        "128x1x1: 0 in the program, 1 in an ordinary call"
    )


@pytest.mark.parametrize(
    ("claim", "error", "why"),
    [
        (lambda *_: (NotCaptured(reason="CUPTI cannot be loaded"), []), InProcess, "CUPTI cannot be loaded"),
        (lambda *_: (CandidateFailed(status="raised", message="ValueError: no"), []), EntryFailed, "ValueError: no"),
        (lambda *_: (Captured(program=0, peak_bytes=0), [encoded(ONE)]), EntryFailed, "answered with captured"),
        (lambda *_: None, EntryFailed, "the process ended: killed by SIGSEGV"),
    ],
)
def test_an_ordinary_call_that_tells_nothing_confirms_nothing(
    worker: Callable[[Claim], list[Message]], claim: Claim, error: type[Exception], why: str
) -> None:
    worker(claim)
    with pytest.raises(error, match=why):
        ordinary_calls(SERVER, ENTRY, DRAWS[:1], 5.0)


def scale(x: Any, factor: float = 2.0, limit: float = math.inf) -> Any:
    return x * factor


def test_arguments_are_drawn_twice(worker: Callable[[Claim], list[Message]], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec(dtype="float32", shape=[16, 16], stride=[1, 16])
    inputs = (ONE.layout.inputs[0].model_copy(update={"spec": spec}),)
    one = Program(ONE.layout.model_copy(update={"inputs": inputs}), ONE.images, ONE.held)
    asked = worker(claimed(one, one))
    monkeypatch.setattr(api, "_capture_server", lambda: SERVER)
    x = torch.arange(256, dtype=torch.float32).reshape(16, 16)
    found = tilewright.capture(scale, x.t(), factor=3.0)
    load = next(one for one in asked if isinstance(one, LoadEntry))
    assert (Path(load.folder) / load.module.replace(".", "/")).with_suffix(".py") == Path(__file__)
    assert (load.function, load.frontend) == ("scale", "torch")
    sets = [one for one in asked if isinstance(one, SetArguments)]
    assert [[(one.name, one.value, one.special) for one in found.arguments] for found in sets] == [
        [("x", None, ""), ("factor", 3.0, ""), ("limit", None, "inf")]
    ] * 2
    assert sets[0].arguments[0].tensor == spec
    assert found.label.endswith("test_captures:scale")


def test_the_second_draw_has_the_same_elements_but_constants_stay() -> None:
    x, w = torch.arange(60, dtype=torch.int32).reshape(6, 10)[:, ::2], torch.arange(9)
    first, second = (api._draw({"x": x, "w": w}, constant) for constant in (("x", "w"), ("w",)))
    assert first.tensors[1] == second.tensors[1]
    assert first.tensors[0] != second.tensors[0]
    kept = [torch.frombuffer(bytearray(one.tensors[0]), dtype=torch.int32).tolist() for one in (first, second)]
    assert set(x.reshape(-1).tolist()) <= set(kept[1])
    assert len(kept[0]) == len(kept[1])


@pytest.mark.parametrize("what", [lambda x: x, torch.sin, ModuleType, "no function"])
def test_what_is_no_function_of_a_module_is_refused(what: Any) -> None:
    with pytest.raises(UsageError, match="is no function of a module"):
        tilewright.capture(what, torch.zeros(3))


def test_arguments_that_cannot_be_sent_are_named() -> None:
    with pytest.raises(UsageError, match="argument factor is a list"):
        tilewright.capture(scale, torch.zeros(3), factor=[1, 2])
    with pytest.raises(UsageError, match="no argument 'y', which `constant` names"):
        tilewright.capture(scale, torch.zeros(3), constant=["y"])
    with pytest.raises(AttributeError, match="no attribute 'captures'"):
        _ = tilewright.captures


def test_calls_are_captured_by_one_pair_of_workers(worker: Callable[[Claim], list[Message]]) -> None:
    """Each case has a zone of its own; after a call that is no program there are new workers."""
    refused = {3}  # the second case's first call, by the count of all

    def claim(number: int, load: LoadEntry) -> tuple[Message, list[bytes]]:
        calls.append(number)
        if len(calls) in refused:
            return NotCaptured(reason="it waits for the host"), []
        return Captured(program=0, peak_bytes=7 + number), [encoded(ONE)]

    calls: list[int] = []
    asked = worker(claim)
    found = capture_calls(SERVER, ENTRY, [DRAWS] * 3, 5.0)
    assert [(bool(one.programs), one.reason) for one in found] == [
        (True, ""), (False, "it waits for the host"), (True, ""),
    ]  # fmt: skip
    assert calls == [0, 1, 0, 2, 3]
    assert [found[0].peak_bytes, found[2].peak_bytes] == [8, 10]
    assert [one.zone for one in asked if isinstance(one, SetArguments)] == [1, 1, 2, 2, 3, 3]
    assert len([one for one in asked if isinstance(one, LoadEntry)]) == 4


def test_zones_are_used_again_by_new_workers(worker: Callable[[Claim], list[Message]]) -> None:
    asked = worker(lambda *_: (Captured(program=0, peak_bytes=0), [encoded(ONE)]))
    assert len(capture_calls(SERVER, ENTRY, [DRAWS] * 17, 5.0)) == 17
    zones = [one.zone for one in asked if isinstance(one, SetArguments)]
    assert zones == [zone for zone in [*range(1, 16), 1, 2] for _ in (0, 1)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = capture_server()
    try:
        with pytest.raises(RuntimeError, match=r"a worker could not start: .*: exited with status 1: "):
            capture_twice(server, Entry(tmp_path, "kernel", "scale", "cutile"), DRAWS, 5.0)
    finally:
        server.close()

"""Calls as device programs: the same from two draws, and bit-equal on inputs that the capture never saw."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu.replaying.conftest import CONSTANT, differing, function, inputs
from tilewright.api import capture
from tilewright.frontends.protocol import FRONTENDS
from tilewright.isolation.fork_server import capture_server
from tilewright.programs.identity import identity
from tilewright.programs.model import Copy, Kernel, Memset, Program
from tilewright.programs.text import shown
from tilewright.referee.capture_worker import CaptureWorker, Entry, EntryFailed, InProcess
from tilewright.referee.replayer import Replayer

pytestmark = pytest.mark.gpu
_PROGRAMS: dict[str, Program] = {}

CASES = (
    "rmsnorm", "matmul", "softmax", "cublas", "attention", "backward", "packed", "compiled", "streams", "own_graph",
    "tuned", "many_nodes", "two_outputs", "transposed",
)  # fmt: skip


def program_of(name: str) -> Program:
    if name not in _PROGRAMS:
        entry = function(name)
        _PROGRAMS[name] = capture(entry, *inputs(name), constant=CONSTANT.get(name, ()))
        print(*shown(_PROGRAMS[name]).splitlines()[:30], sep="\n")
    return _PROGRAMS[name]


def test_what_workers_are_forked_from_never_opens_the_gpu(tmp_path: Path) -> None:
    """A process that had opened CUDA could not be forked."""
    server = capture_server()
    try:
        for frontend in filter(lambda one: one.ahead, FRONTENDS):
            server.get_ready(frontend.ahead)
        with CaptureWorker(server, Entry(tmp_path, "none", "none", "torch"), tmp_path) as worker:
            with pytest.raises(EntryFailed):  # there is no such module; by then it has opened the GPU
                worker.load(60.0)
            assert server._process is not None
            assert device_files(worker._process.pid)
            assert not device_files(server._process.pid)
    finally:
        server.close()


def device_files(pid: int) -> list[str]:
    """Files of the NVIDIA driver that a process has open."""
    links = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if link.startswith("/dev/nvidia")]


@pytest.mark.parametrize("name", CASES)
def test_a_replay_is_bit_equal_on_fresh_inputs(replayer: Replayer, name: str) -> None:
    assert differing(replayer, program_of(name), name) == []


@pytest.mark.parametrize("name", ["rmsnorm", "attention", "softmax"])
def test_another_capture_gives_the_same_program(name: str) -> None:
    entry = function(name)
    assert identity(capture(entry, *inputs(name))) == identity(program_of(name))


def test_what_a_program_is_made_of() -> None:
    assert [type(node) for node in program_of("many_nodes").layout.nodes] == [Kernel] * 400
    assert any(isinstance(node, Memset | Kernel) for node in program_of("streams").layout.nodes)
    assert any(isinstance(node, Copy | Kernel) for node in program_of("own_graph").layout.nodes)
    assert len(program_of("streams").layout.edges) >= len(program_of("streams").layout.nodes) - 1
    assert len(program_of("two_outputs").layout.outputs) == 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("decides_on_values", "cannot be captured"),
        ("from_the_host", "between the host and the GPU|cannot be captured"),
        ("random_numbers", "random numbers from the state of the host"),
        ("host_function", "cannot be captured"),
        ("out_of_memory", "at addresses of its own it does not fit on the GPU"),
    ],
)
def test_what_cannot_be_a_program_is_named(name: str, why: str) -> None:
    with pytest.raises(InProcess, match=why):
        program_of(name)


def test_a_call_that_fails_is_the_entry_points_fault() -> None:
    with pytest.raises(EntryFailed, match="no such size") as failed:
        program_of("raises")
    assert failed.value.status == "raised"


def test_what_is_kept_of_an_input_is_wrong_on_the_next_one(replayer: Replayer) -> None:
    """Two captures on different weights are one program: what is held is not compared. On other values it is wrong."""
    entry = function("packed")
    program = capture(entry, *inputs("packed"))
    x, w = program.examples["x"], program.examples["w"]
    replayer.load([program], [[x, w], [x, bytes(len(w))]])
    first, second = (replayer.alone(0, number, 1, 20.0)[1] for number in (0, 1))
    assert bytes(first.outputs[0]) == bytes(second.outputs[0])


def test_what_is_never_written_is_poison(replayer: Replayer) -> None:
    program = program_of("uninitialised")
    replayer.load([program], [[bytes(program.layout.inputs[0].size)]])
    _, copy = replayer.alone(0, 0, 2, 20.0)
    output = bytes(copy.outputs[0])
    half = len(output) // 2
    assert output[:half] == bytes(half)
    assert output[half:] == b"\xff" * half

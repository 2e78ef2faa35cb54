"""An ordinary call launches what its program does; an entry point that does something else when captured is refused."""

from __future__ import annotations

import inspect

import pytest

from tests.gpu.replaying.conftest import function, inputs
from tests.gpu.replaying.test_capture import program_of
from tilewright import api
from tilewright.programs.launches import launch_differences, launches_of
from tilewright.programs.model import Copy, Kernel, Memset
from tilewright.referee.capture_worker import Entry, EntryFailed
from tilewright.referee.captures import Arguments, OrdinaryCalls, OtherLaunches, confirm_launches
from tilewright.referee.replayer import exclusive_gpu
from tilewright.wire.launches import KernelLaunch, Launch
from tilewright.wire.messages import Recorded

pytestmark = pytest.mark.gpu
LIMIT_S = 300.0

CASES = (
    "rmsnorm", "matmul", "softmax", "cublas", "attention", "backward", "packed", "compiled", "streams", "own_graph",
    "tuned", "many_nodes", "memsets", "memset_in_own_graph",
)  # fmt: skip


def asked(name: str) -> tuple[Entry, Arguments]:
    """What a worker loads for an entry point, and a draw of its arguments."""
    entry = function(name)
    folder, module = api._place(entry)
    bound = inspect.signature(entry).bind(*inputs(name)).arguments
    return Entry(folder, module, entry.__qualname__, "torch"), api._draw(bound, bound)


def ordinary_calls(entry: Entry, draw: Arguments) -> list[Recorded]:
    with OrdinaryCalls(api._capture_server(), entry, [draw], LIMIT_S) as calls:
        return calls.make()


def recorded(name: str) -> list[Launch]:
    with exclusive_gpu():
        return ordinary_calls(*asked(name))[0].launches


@pytest.mark.parametrize("name", CASES)
def test_an_ordinary_call_launches_what_its_program_does(name: str) -> None:
    program, found = program_of(name), recorded(name)
    print(*found, "", *launches_of(program), sep="\n")  # both, for the failure's report
    assert found
    assert launch_differences(program, found) == []


def test_graphs_memsets_and_copies_are_recorded() -> None:
    kinds = {type(node) for node in program_of("memsets").layout.nodes}
    assert kinds == {Kernel, Memset, Copy}
    assert {one.kind for one in recorded("memsets")} == {"kernel", "memset", "copy"}
    assert sum(isinstance(one, KernelLaunch) for one in recorded("own_graph")) >= 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("another_kernel_when_captured", r"kernel _Z.*: 0 in the program, \d in an ordinary call"),
        ("another_grid_when_captured", r"with grid .*: 0 in the program, \d in an ordinary call"),
        ("another_copy_when_captured", r"a copy of 524288 bytes on the GPU: 0 in the program, \d in an ordinary call"),
        ("own_graph_of_another_kernel", r"kernel _Z.*: 0 in the program, \d in an ordinary call"),
    ],
)
def test_what_does_something_else_when_captured_is_refused(name: str, why: str) -> None:
    program, (entry, draw) = program_of(name), asked(name)
    told = "launches other kernels outside capture; write the tuned config down: "
    with exclusive_gpu(), pytest.raises(OtherLaunches, match=f"^{told}.*{why}"):
        confirm_launches(ordinary_calls(entry, draw), [[program]])


def test_an_ordinary_call_that_fails_is_the_entry_points_fault() -> None:
    with pytest.raises(EntryFailed, match="no such size"):
        recorded("raises")

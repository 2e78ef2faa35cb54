"""The replayer on a GPU: two versions told apart, faults blamed on the right arm, and the process back in a second."""

from __future__ import annotations

import time

import pytest

from tests.gpu.replaying.conftest import function, inputs
from tests.gpu.replaying.test_capture import program_of
from tilewright.api import capture
from tilewright.programs.draws import draws_of
from tilewright.programs.model import Kernel, Program
from tilewright.referee.compare import compare
from tilewright.referee.replayer import Fault, Replayer
from tilewright.rules import DEFAULT

pytestmark = pytest.mark.gpu


def changed(program: Program, **fields: object) -> Program:
    """The program with its first kernel launched otherwise."""
    nodes = list(program.layout.nodes)
    place = next(number for number, node in enumerate(nodes) if isinstance(node, Kernel))
    nodes[place] = nodes[place].model_copy(update=fields)
    layout = program.layout.model_copy(update={"nodes": tuple(nodes)})
    return Program(layout, program.images, program.held, program.examples)


def test_a_program_against_itself(replayer: Replayer) -> None:
    program = program_of("rmsnorm")
    found = compare(replayer, program, program, measure_same=True)
    print(found)
    assert found.measured is not None
    assert found.equal_outputs
    assert found.verdict == "inconclusive" or abs(found.measured.speedup - 1) < 2 * DEFAULT.floor


def test_two_kernels_for_one_work_are_told_apart(replayer: Replayer) -> None:
    one = program_of("matmul")
    entry = function("cublas")
    other = capture(entry, *inputs("cublas"))
    renamed = other.layout.model_copy(
        update={
            "inputs": tuple(
                tensor.model_copy(update={"name": name.name})
                for tensor, name in zip(other.layout.inputs, one.layout.inputs, strict=True)
            )
        }
    )
    found = compare(replayer, one, Program(renamed, other.images, other.held))
    print(found)
    assert found.measured is not None
    assert found.verdict == ("faster" if found.measured.speedup > 1 else "slower")
    assert not found.measured.bounded


def test_a_kernel_that_reads_outside_is_blamed_and_the_replayer_is_back(replayer: Replayer) -> None:
    program = program_of("rmsnorm")
    (kernel,) = [node for node in program.layout.nodes if isinstance(node, Kernel)]
    broken = changed(program, parameters=((1 << 44).to_bytes(8, "little"), *kernel.parameters[1:]))
    for arm, pair in enumerate(([broken, program], [program, broken])):
        replayer.load(pair, draws_of(program, 1))
        with pytest.raises(Fault) as fault:
            replayer.round(4, 5.0)
        assert (fault.value.kind, fault.value.arm) == ("illegal-access", arm)
        began = time.monotonic()
        replayer.start()
        print(f"back in {time.monotonic() - began:.2f} s")
        assert time.monotonic() - began < 3
    replayer.load([program], draws_of(program, 1))
    assert replayer.alone(0, 0, 2, 5.0)


@pytest.mark.parametrize(
    "fields", [{"symbol": "gone"}, {"shared": 1 << 20}, {"parameters": ()}, {"block": (1024, 1, 1)}]
)
def test_a_launch_that_the_driver_refuses_is_a_fault(replayer: Replayer, fields: dict[str, object]) -> None:
    program = program_of("rmsnorm")
    replayer.load([changed(program, **fields)], draws_of(program, 1))
    with pytest.raises(Fault) as fault:
        replayer.alone(0, 0, 1, 5.0)
    assert fault.value.kind in ("refused", "launch-failed")
    print(fault.value)


def test_two_programs_that_do_not_fit_are_said_not_to(replayer: Replayer) -> None:
    program = program_of("rmsnorm")
    blocks = [
        block.model_copy(update={"size": 200 << 30}) if block.role == "fresh" else block
        for block in program.layout.blocks
    ]
    layout = program.layout.model_copy(update={"blocks": tuple(blocks)})
    replayer.load([Program(layout, program.images, program.held)], draws_of(program, 1))
    with pytest.raises(Fault, match="are free") as fault:
        replayer.alone(0, 0, 1, 5.0)
    assert fault.value.kind == "out-of-memory"

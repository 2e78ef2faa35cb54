"""What a program launches is compared with what was recorded, in no order, by what both have."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.programs.made import OUT, clear, copied, fill, program
from tilewright.programs import launches
from tilewright.programs.format import decoded
from tilewright.programs.launches import launch_differences, launches_of
from tilewright.programs.model import Kernel, Memset, Program
from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch

FILL = KernelLaunch(symbol="fill", grid=(1, 1, 1))
PROGRAM = program([copied(), fill(OUT, 20), clear(), fill(OUT, 21)])
"""A copy of 1024 bytes, two kernels, and a memset of 1024 bytes."""
COPY, ZEROS = CopyLaunch(size=1024), MemsetLaunch(size=1024)
RECORDED: list[Launch] = [FILL, FILL, COPY, ZEROS]


def changed(launch: Launch, **fields: object) -> Launch:
    return launch.model_copy(update=fields)


def test_a_program_launches_what_its_nodes_are() -> None:
    assert sorted(map(repr, launches_of(PROGRAM))) == sorted(map(repr, RECORDED))
    rows = Memset(at=OUT, value=7, element=2, width=10, height=3, pitch=64)
    assert launches_of(program([rows])) == [MemsetLaunch(size=60)]
    box = copied(width=8).model_copy(update={"height": 3, "depth": 2})
    assert launches_of(Program(PROGRAM.layout.model_copy(update={"nodes": (box,)}), {})) == [CopyLaunch(size=48)]


@pytest.mark.parametrize(
    ("recorded", "lines"),
    [
        (RECORDED[::-1], []),
        ([*RECORDED, MemsetLaunch(size=0), CopyLaunch(size=0, way="to the host")], []),
        ([*RECORDED, FILL], ["kernel fill with grid 1x1x1: 2 in the program, 3 in an ordinary call"]),
        (
            [changed(FILL, grid=(128, 1, 1)), FILL, COPY, ZEROS],
            [
                "kernel fill with grid 1x1x1: 2 in the program, 1 in an ordinary call",
                "kernel fill with grid 128x1x1: 0 in the program, 1 in an ordinary call",
            ],
        ),
        (
            [*RECORDED, changed(FILL, symbol="other")],
            ["kernel other with grid 1x1x1: 0 in the program, 1 in an ordinary call"],
        ),
        ([FILL, FILL, COPY], ["a memset of 1024 bytes: 1 in the program, 0 in an ordinary call"]),
        (
            [FILL, FILL, ZEROS, changed(COPY, way="to the GPU")],
            [
                "a copy of 1024 bytes on the GPU: 1 in the program, 0 in an ordinary call",
                "a copy of 1024 bytes to the GPU: 0 in the program, 1 in an ordinary call",
            ],
        ),
        (
            [*RECORDED, changed(FILL, symbol="x" * 8192)],
            [f"kernel {'x' * 118} … with grid 1x1x1: 0 in the program, 1 in an ordinary call"],
        ),
    ],
)
def test_differences_are_in_words(recorded: list[Launch], lines: list[str]) -> None:
    assert launch_differences(PROGRAM, recorded) == lines


def test_few_differences_are_written_out() -> None:
    found = launch_differences(PROGRAM, [changed(FILL, symbol=f"other{number}") for number in range(20)])
    assert len(found) == 5
    assert found[-1] == "and 19 more differences"


FIXTURES = Path(__file__).parents[2] / "fixtures" / "programs"


def recorded_program(name: str) -> Program:
    return decoded(gzip.decompress((FIXTURES / f"{name}.program.gz").read_bytes()))


@pytest.mark.parametrize("name", ["matmul", "rmsnorm", "softmax"])
def test_a_recorded_program_launches_its_kernel(name: str) -> None:
    made = recorded_program(name)
    (launch,) = launches_of(made)
    assert launch_differences(made, [launch]) == []
    assert launch_differences(made, [changed(launch, grid=(1, 1, 7))])
    assert launch_differences(made, [changed(launch, symbol="other")])


def test_a_tile_kernel_with_clusters_is_launched_with_a_grid_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And recorded with a grid of their blocks."""
    made = recorded_program("matmul")
    (node,) = made.layout.nodes
    assert isinstance(node, Kernel)
    monkeypatch.setattr(launches, "clusters", lambda image: {node.symbol: (2, 1, 1)})
    (launch,) = launches_of(made)
    x, y, z = node.grid
    assert isinstance(launch, KernelLaunch) and launch.grid == (2 * x, y, z)
    assert launch_differences(made, [launch]) == []
    assert launch_differences(made, [changed(launch, grid=node.grid)])
    threads = node.model_copy(update={"block": (256, 1, 1)})  # another kernel's grid is one of blocks
    other = Program(made.layout.model_copy(update={"nodes": (threads,)}), made.images, made.held)
    assert launch_differences(other, [changed(launch, grid=node.grid)]) == []


sizes = st.tuples(*[st.integers(1, 2)] * 3)
nodes = st.one_of(
    st.builds(
        lambda grid: fill(OUT).model_copy(update={"grid": grid}),
        sizes,
    ),
    st.builds(
        lambda value, width: Memset(at=OUT, value=value, element=1, width=width), st.integers(0, 3), st.integers(0, 3)
    ),
    st.builds(lambda width: copied(width=width), st.integers(0, 3)),
)  # fmt: skip


def weight(launches: list[Launch]) -> list[str]:
    return sorted(map(repr, (one for one in launches if not (one.kind != "kernel" and not one.size))))


@given(st.lists(nodes, max_size=8), st.lists(nodes, max_size=8), st.randoms(use_true_random=False))
def test_programs_differ_by_their_launches_alone(
    one: list[Kernel | Memset], other: list[Kernel | Memset], source: random.Random
) -> None:
    a, b = (program([*made], edges=[]) for made in (one, other))
    shuffled = launches_of(a)
    source.shuffle(shuffled)
    assert launch_differences(a, shuffled) == []
    assert bool(launch_differences(a, launches_of(b))) == (weight(launches_of(a)) != weight(launches_of(b)))
    assert bool(launch_differences(b, launches_of(a))) == bool(launch_differences(a, launches_of(b)))

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
from tilewright.programs.images import LaunchSizes
from tilewright.programs.launches import launch_differences, launches_of, tile_kernels
from tilewright.programs.model import Kernel, Memset, Program
from tilewright.wire.launches import CopyLaunch, KernelLaunch, Launch, MemsetLaunch

FILL = KernelLaunch(symbol="fill", grid=(1, 1, 1), block=(32, 1, 1), shared=0)
PROGRAM = program([copied(), fill(OUT, 20), clear(), fill(OUT, 21)])
"""A copy of 1024 bytes, two kernels, and a memset of 1024 bytes to zero."""
COPY, ZEROS = CopyLaunch(size=1024), MemsetLaunch(value=0, size=1024)
RECORDED: list[Launch] = [FILL, FILL, COPY, ZEROS]


def changed(launch: Launch, **fields: object) -> Launch:
    return launch.model_copy(update=fields)


def test_a_program_launches_what_its_nodes_are() -> None:
    assert sorted(map(repr, launches_of(PROGRAM))) == sorted(map(repr, RECORDED))
    rows = Memset(at=OUT, value=7, element=2, width=10, height=3, pitch=64)
    assert launches_of(program([rows])) == [MemsetLaunch(value=7, size=60)]
    box = copied(width=8).model_copy(update={"height": 3, "depth": 2})
    assert launches_of(Program(PROGRAM.layout.model_copy(update={"nodes": (box,)}), {})) == [CopyLaunch(size=48)]


@pytest.mark.parametrize(
    ("recorded", "lines"),
    [
        (RECORDED[::-1], []),
        ([*RECORDED, MemsetLaunch(value=9, size=0), CopyLaunch(size=0, way="to the host")], []),
        ([*RECORDED, FILL], ["kernel fill: 2 in the program, 3 in an ordinary call"]),
        (
            [changed(FILL, grid=(128, 1, 1)), FILL, COPY, ZEROS],
            [
                "kernel fill: 2 in the program, 1 in an ordinary call",
                "an ordinary call launches kernel fill (128x1x1 blocks of 32 threads), the program does not",
            ],
        ),
        (
            [changed(FILL, grid=(128, 1, 1), shared=64)] * 2 + [COPY, ZEROS],
            [
                "kernel fill: grid 1x1x1 in the program, 128x1x1 in an ordinary call; shared 0 in the program, 64 in "
                "an ordinary call (2 times)"
            ],
        ),
        (
            [changed(FILL, block=(64, 1, 1))] * 2 + [COPY, ZEROS],
            ["kernel fill: block 32x1x1 in the program, 64x1x1 in an ordinary call (2 times)"],
        ),
        (
            [FILL, changed(FILL, symbol="other"), COPY, ZEROS],
            [
                "kernel fill: 2 in the program, 1 in an ordinary call",
                "an ordinary call launches kernel other (1x1x1 blocks of 32 threads), the program does not",
            ],
        ),
        (
            [FILL, FILL, COPY],
            ["the program launches a memset of 1024 bytes to 0x0, an ordinary call does not"],
        ),
        (
            [FILL, FILL, COPY, changed(ZEROS, value=255)],
            ["a memset of 1024 bytes to 0x0 in the program, a memset of 1024 bytes to 0xff in an ordinary call"],
        ),
        (
            [*RECORDED, CopyLaunch(size=4, way="to the host")],
            ["an ordinary call launches a copy of 4 bytes to the host, the program does not"],
        ),
        (
            [FILL, FILL, ZEROS, changed(COPY, way="to the GPU")],
            ["a copy of 1024 bytes on the GPU in the program, a copy of 1024 bytes to the GPU in an ordinary call"],
        ),
    ],
)
def test_differences_are_in_words(recorded: list[Launch], lines: list[str]) -> None:
    assert launch_differences(PROGRAM, recorded) == lines


def test_few_differences_are_written_out() -> None:
    found = launch_differences(PROGRAM, [changed(FILL, symbol=f"other{number}") for number in range(20)])
    assert len(found) == 5
    assert found[-1] == "and 19 more differences"


@pytest.mark.parametrize(("given", "seen"), [(0x3F800000, 0), (0x1234, 0x3434), (0xFF, 0xFFFFFFFF), (7, 0x07070707)])
def test_a_memset_is_compared_by_its_first_byte(given: int, seen: int) -> None:
    element = 4 if given > 0xFFFF else 2 if given > 0xFF else 1
    made = program([Memset(at=OUT, value=given, element=element, width=8)])  # type: ignore[arg-type]
    size = 8 * element
    assert launch_differences(made, [MemsetLaunch(value=seen, size=size)]) == []
    assert launch_differences(made, [MemsetLaunch(value=seen ^ 1, size=size)])


def test_a_memset_of_a_graph_may_have_run_as_a_kernel() -> None:
    drivers = KernelLaunch(symbol="memset_d32", grid=(1, 1, 1), block=(128, 1, 1), shared=0, in_graph=True)
    assert launch_differences(PROGRAM, [FILL, FILL, COPY, drivers]) == []
    outside = changed(drivers, in_graph=False)
    assert len(launch_differences(PROGRAM, [FILL, FILL, COPY, outside])) == 2
    assert len(launch_differences(PROGRAM, [FILL, FILL, COPY, drivers, drivers])) == 1  # one memset, one kernel
    assert len(launch_differences(PROGRAM, [FILL, FILL, ZEROS, drivers])) == 2  # no copy
    own = changed(FILL, in_graph=True, grid=(2, 1, 1))
    assert len(launch_differences(PROGRAM, [FILL, FILL, COPY, own])) == 2  # a kernel that the program has
    assert launch_differences(PROGRAM, [changed(FILL, in_graph=True)] * 2 + [COPY, ZEROS]) == []


FIXTURES = Path(__file__).parents[2] / "fixtures" / "programs"


def recorded_program(name: str) -> Program:
    return decoded(gzip.decompress((FIXTURES / f"{name}.program.gz").read_bytes()))


@pytest.mark.parametrize("name", ["matmul", "rmsnorm"])
def test_a_tile_kernel_runs_with_the_threads_of_its_image(name: str) -> None:
    made = recorded_program(name)
    (launch,) = launches_of(made)
    assert isinstance(launch, KernelLaunch)
    assert tile_kernels(made) == {launch.symbol: {(1, 1, 1), (256, 1, 1)}}
    assert launch_differences(made, [launch]) == []
    assert launch_differences(made, [changed(launch, block=(256, 1, 1), shared=1024)]) == []
    assert launch_differences(made, [changed(launch, block=(128, 1, 1))])
    assert launch_differences(made, [changed(launch, grid=(1, 1, 7))])
    assert launch_differences(made, [changed(launch, symbol="other")])


def test_a_tile_kernel_with_clusters_is_launched_with_a_grid_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And recorded with a grid of their blocks."""
    made = recorded_program("matmul")
    (node,) = made.layout.nodes
    assert isinstance(node, Kernel)
    paired = {node.symbol: LaunchSizes((256, 1, 1), (2, 1, 1))}
    monkeypatch.setattr(launches, "required_sizes", lambda image: paired)
    (launch,) = launches_of(made)
    x, y, z = node.grid
    assert isinstance(launch, KernelLaunch) and launch.grid == (2 * x, y, z)
    for block in ((1, 1, 1), (256, 1, 1)):
        assert launch_differences(made, [changed(launch, block=block, shared=1024)]) == []
        assert launch_differences(made, [changed(launch, block=block, grid=node.grid)])


def test_another_kernel_is_launched_with_its_threads() -> None:
    made = recorded_program("softmax")  # Triton's: its image asks for the threads that it is launched with
    (launch,) = launches_of(made)
    assert tile_kernels(made) == {}
    assert launch_differences(made, [changed(launch, block=(1, 1, 1))])
    one = fill(OUT).model_copy(update={"block": (1, 1, 1)})  # and this image asks for none
    assert tile_kernels(program([one])) == {}


sizes = st.tuples(*[st.integers(1, 2)] * 3)
nodes = st.one_of(
    st.builds(
        lambda grid, block, shared: fill(OUT).model_copy(update={"grid": grid, "block": block, "shared": shared}),
        sizes, sizes, st.integers(0, 1),
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

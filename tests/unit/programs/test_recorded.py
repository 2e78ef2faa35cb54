"""Programs that were recorded on an H200, from entry points of the examples, read where no GPU is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tilewright.programs.format import decoded, encoded
from tilewright.programs.identity import differences, identity
from tilewright.programs.images import architecture, missing_kernels
from tilewright.programs.model import Kernel, Program
from tilewright.programs.order import Graph, canonical
from tilewright.programs.text import shown

FOLDER = Path(__file__).parents[2] / "fixtures" / "programs"
NAMES = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.program.gz"))


def recorded(name: str) -> bytes:
    return gzip.decompress((FOLDER / f"{name}.program.gz").read_bytes())


def test_there_are_programs_of_both_languages() -> None:
    assert NAMES == ["matmul", "rmsnorm", "softmax"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_program_is_read_and_written_again(name: str) -> None:
    data = recorded(name)
    program = decoded(data)
    assert encoded(program) == data
    assert canonical(Graph(program.layout.nodes, program.layout.edges)) == (program.layout.nodes, program.layout.edges)
    assert missing_kernels(program) == []
    assert {architecture(image) for image in program.images.values()} == {"sm_90"}
    assert f"captured from fixed_launch:{name}" in shown(program)


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_of_a_recorded_program_is_seen(name: str) -> None:
    program = decoded(recorded(name))
    (kernel,) = program.layout.nodes
    assert isinstance(kernel, Kernel)
    edited = kernel.model_copy(update={"grid": (kernel.grid[0] + 1, *kernel.grid[1:])})
    other = Program(program.layout.model_copy(update={"nodes": (edited,)}), program.images, program.held)
    assert identity(other) != identity(program)
    assert [line.split(":")[1].split()[0] for line in differences(program, other)] == ["grid"]

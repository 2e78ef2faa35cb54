"""Contents of a program's inputs where no task draws them."""

from __future__ import annotations

import numpy as np

from tests.unit.programs.test_recorded import recorded
from tilewright.programs.draws import draws_of
from tilewright.programs.format import decoded
from tilewright.programs.model import Program


def test_an_example_is_rotated_by_another_distance_in_each_draw() -> None:
    program = decoded(recorded("softmax"))
    (tensor,) = program.layout.inputs
    assert tensor.spec.item_bytes == 2
    example = np.arange(tensor.size // 2, dtype=np.uint16)
    given = Program(program.layout, program.images, program.held, {tensor.name: example.tobytes()})
    draws = [np.frombuffer(draw[0], np.uint16) for draw in draws_of(given, 3)]
    starts = {int(draw[0]) for draw in draws}
    assert len(starts) == 3
    assert 0 not in starts
    for draw in draws:
        assert np.array_equal(np.roll(draw, int(draw[0])), example)


def test_a_constant_input_stays_as_it_is() -> None:
    program = decoded(recorded("softmax"))
    (tensor,) = program.layout.inputs
    example = bytes(range(256)) * (tensor.size // 256)
    given = Program(program.layout, program.images, program.held, {tensor.name: example}, (tensor.name,))
    assert draws_of(given, 2) == [[example], [example]]

"""What ran on a GPU, by what the languages compiled and what Python called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import Bench
from tests.conftest import SCALE_KERNEL, SCALE_TOML
from tests.integration.test_left_out import AUTOTUNED
from tests.integration.test_triton_frontend import KERNEL, TOML
from tests.integration.test_uncovered import BACKWARD, TRITON_BACKWARD, USED
from tilewright.task import Backend

pytestmark = pytest.mark.gpu
IN_TRITON = KERNEL.replace("tl.load(x + places, mask=inside)", "half(tl.load(x + places, mask=inside)) * 2.0")


@pytest.mark.parametrize(
    ("toml", "source", "ran"),
    [
        (SCALE_TOML, SCALE_KERNEL + BACKWARD, {"scale", "scale_kernel"}),
        (SCALE_TOML, USED + BACKWARD, {"scale", "scale_kernel", "half"}),
        (TOML, KERNEL + TRITON_BACKWARD, {"scale", "scale.<lambda>", "scale_kernel"}),
        (TOML, IN_TRITON + TRITON_BACKWARD, {"scale", "scale.<lambda>", "scale_kernel", "half"}),
        (TOML, AUTOTUNED, {"scale", "scale.<lambda>", "scale_kernel"}),
    ],
)
def test_kernels_that_were_launched_ran(tmp_path: Path, toml: str, source: str, ran: set[str]) -> None:
    pytest.importorskip("triton")
    made = Bench(tmp_path / "repo", Backend.CUDA, toml, kernel=source)
    try:
        found = made.check(source)
    finally:
        made.close()
    assert found.passed, found.message
    assert found.ran is not None
    assert {name.rpartition(":")[2] for name in found.ran} == ran

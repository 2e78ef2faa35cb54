"""8-bit floats as inputs and outputs on a GPU: checked on all classes of values, replayed and judged."""

from __future__ import annotations

import pytest

from tests.bench import Bench
from tests.conftest import SCALE_KERNEL, SCALE_TASK, SCALE_TOML
from tilewright.evaluation.results import Level, Status
from tilewright.task import Backend

pytestmark = pytest.mark.gpu
TASK = SCALE_TASK.replace("device=generator.device, dtype=dtype)", "device=generator.device).to(dtype)").replace(
    "return x * factor", "wide = x if x.dtype == torch.float64 else x.float()\n    return (wide * factor).to(x.dtype)"
)
KERNEL = SCALE_KERNEL.replace("tile=values * factor", "tile=(values.astype(ct.float32) * factor).astype(out.dtype)")


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_kernel_in_8_bit_floats_is_checked_and_replayed(dtype: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    toml, task = SCALE_TOML.replace("float32", dtype), TASK
    bench = Bench(tmp_path_factory.mktemp("float8") / "repo", Backend.CUDA, toml, kernel=KERNEL, task=task)
    try:
        result = bench.check(KERNEL)
        assert result.passed, result.message
        bench.assert_fails(KERNEL.replace("* factor)", "* (factor + 4.0))"), Status.WRONG_VALUES, "elements are wrong")
        timing = bench.measure(KERNEL, None)
        assert timing.passed, timing.message
        assert [case.level for case in timing.cases] == [Level.REPLAYED]
        assert not timing.unjudged
    finally:
        bench.close()

"""The interpreter computes what the kernels mean, and refuses what no GPU would define."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tilewright.gpu.specs import spec_by_arch
from tilewright.interpreter import flow, host
from tilewright.interpreter.host import SAMPLED_BLOCKS, sample
from tilewright.interpreter.machine import KernelFault

RANDOM = torch.Generator().manual_seed(7)


@pytest.fixture(autouse=True, scope="module")
def _stand_in() -> Iterator[None]:
    saved = {name: getattr(torch.cuda, name) for name in dir(torch.cuda) if not name.startswith("__")}
    launch = ct.launch
    host.install(spec_by_arch("sm_90"))
    yield
    for name, value in saved.items():
        setattr(torch.cuda, name, value)
    ct.launch = launch


def run(kernel: Any, grid: tuple[int, ...], *arguments: Any) -> host.Launch:
    with host.running(host.Mode.RUN) as launches:
        ct.launch(torch.cuda.current_stream(), grid, kernel, arguments)
    return launches[0]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=RANDOM).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_matrix_products_with_ragged_edges(dtype: torch.dtype) -> None:
    a, b = randn(50, 40, dtype=dtype), randn(40, 30, dtype=dtype)
    out = torch.empty(50, 30)
    launch = run(kernels.matmul, (4, 2), a, b, out, 16, 16, 16)
    torch.testing.assert_close(out, a.float() @ b.float(), atol=1e-4, rtol=1e-4)
    assert launch.counts.matrix_flops.total() == 8 * 3 * 2 * 16**3
    assert launch.counts.loaded.total() == 2 * a.numel() * a.element_size() + 4 * b.numel() * b.element_size()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.bfloat16),
        (torch.float32, torch.float16),
        (torch.float32, torch.int32),
        (torch.int32, torch.float32),
        (torch.int32, torch.int8),
        (torch.float32, torch.float8_e5m2),
        (torch.float16, torch.float64),
        (torch.int64, torch.uint8),
    ],
)
def test_casts_are_those_of_torch(source: torch.dtype, target: torch.dtype) -> None:
    x = (randn(64) * 50).to(source)
    out = torch.empty(64, dtype=target)
    run(kernels.casts, (2,), x, out, 32)
    assert torch.equal(out.view(torch.uint8), x.to(target).view(torch.uint8))


def test_faults_name_the_line_and_the_block() -> None:
    with pytest.raises(
        KernelFault, match=r"kernels\.py.*out of bounds: element 1000 of a tensor of 64.*block \(0, 0, 0\)"
    ):
        run(kernels.scatter_out_of_bounds, (1,), randn(32), torch.empty(64), 32)
    with pytest.raises(KernelFault, match="assertion failed: all positive"):
        run(kernels.asserts, (1,), -torch.ones(16), 16)


def test_host_code_sees_a_cuda_device() -> None:
    with host.running(host.Mode.RUN):
        made = torch.zeros(3, device="cuda")
        assert made.is_cuda
        assert made.device.type == "cuda"
        assert made.to("cuda", torch.float16).dtype == torch.float16
        assert torch.empty_like(made, device="cuda:0").is_cuda
        assert torch.cuda.get_device_properties(made.device).multi_processor_count == 132
        assert torch.cuda.get_device_capability() == (9, 0)
    assert not made.is_cuda


def test_sampling_runs_a_few_blocks_and_capture_none() -> None:
    x, out = randn(8192), torch.zeros(8192)
    with host.running(host.Mode.SAMPLE) as launches:
        ct.launch(0, (256,), kernels.casts, (x, out, 32))
    assert (launches[0].blocks, launches[0].counts.blocks) == (256, SAMPLED_BLOCKS)
    assert launches[0].dram_bytes() == pytest.approx(2 * 8192 * 4)
    with host.running(host.Mode.CAPTURE) as launches:
        ct.launch(0, (128,), kernels.casts, (x, torch.zeros(4096), 32))
    assert launches[0].counts.blocks == 0


def test_blocks_of_different_work_are_sampled_alike() -> None:
    x, out = randn(64 * 64, 4), torch.zeros(64 * 6)
    with host.running(host.Mode.SAMPLE) as launches:
        ct.launch(0, (64, 3, 2), kernels.triangle, (x, out))
    assert launches[0].counts.blocks == SAMPLED_BLOCKS
    assert launches[0].counts.loop_trips / SAMPLED_BLOCKS == pytest.approx((1 + 64) / 2, rel=0.06)


def test_a_sample_with_many_blocks_at_an_edge_leaves_nothing_out() -> None:
    for rows, columns in ((20 * 4, 33), (4 * 4, 3 * 32 + 1), (2 * 4 + 1, 30 * 32), (40 * 4, 33)):
        x, out = randn(rows, columns), torch.zeros(rows, columns)
        with host.running(host.Mode.SAMPLE) as launches:
            ct.launch(0, (-(-rows // 4), -(-columns // 32)), kernels.rectangle, (x, out, 4, 32))
        whole = 2 * rows * columns * 4
        assert 0.93 * whole < launches[0].dram_bytes() <= whole


def test_a_sample_covers_every_axis_and_what_axes_have_together() -> None:
    numbers = sample((68, 34, 3)).tolist()
    assert len(numbers) == SAMPLED_BLOCKS
    assert {number % 68 // 2 for number in numbers} == set(range(34))
    assert {number // 68 % 34 for number in numbers} >= set(range(34))
    assert {number // (68 * 34) for number in numbers} == set(range(3))
    triangle = sample((64, 64, 1)).tolist()
    assert 0.45 < sum(number % 64 >= number // 64 for number in triangle) / len(triangle) < 0.56
    assert sample((6, 2, 1)).tolist() == [*range(12)]


@pytest.mark.parametrize("limit_s", [None, 1.0])
def test_a_search_without_a_clock_takes_the_first_config(limit_s: float | None) -> None:
    from cuda.tile.tune import exhaustive_search

    found = exhaustive_search(
        [5, 6], None, lambda _: (1,), kernels.casts, lambda _: (), quiet=True, single_run_timeout_sec=limit_s
    )
    assert found.best.config == 5


def _calls(trips: int) -> int:
    """How often Python calls a function while a loop in one block makes so many trips."""
    x, out, calls = randn(256), torch.empty(16), 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with host.running(host.Mode.RUN):
        ct.launch(0, (1,), kernels.multiples, (x, out, trips, 16))
        sys.setprofile(note)
        try:
            ct.launch(0, (1,), kernels.multiples, (x, out, trips, 16))
        finally:
            sys.setprofile(None)
    return calls


def test_an_iteration_in_one_block_does_little_but_its_nine_operations() -> None:
    assert (_calls(60) - _calls(10)) / 50 < 130


def test_printf_formats_each_element_as_c_does(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = torch.tensor([[1.5, -2.0], [torch.inf, 0.25]]), torch.tensor([-3, 7], dtype=torch.int64)
    run(kernels.printing, (2,), x, y)
    tile = "[[1.50e+00, -2.00e+00], [     inf, 2.50e-01]]|%"
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"block 0:{tile}[-3] -1 -1 [   -3,     7]|"
    assert second == f"block 1:{tile}[7] 0 0 [   -3,     7]|"


def test_print_of_a_formatted_string_adds_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    run(kernels.printed, (2,), torch.tensor([1.0, 0.5]).half())
    assert capsys.readouterr().out == "tile 0: [1.000, 0.500];tile 1: [1.000, 0.500];"


def test_an_assertion_that_fails_is_printed_as_on_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KernelFault, match="all positive"):
        run(kernels.asserts, (1,), torch.tensor([1, -1, 2, 3], dtype=torch.int32), 4)
    (line,) = capsys.readouterr().out.splitlines()
    assert "assertion failed: all positive (block (0, 0, 0))" in line


def test_copies_keep_every_value_of_an_8_bit_float() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    for dtype in (torch.float8_e5m2, torch.float8_e4m3fn):
        out = torch.zeros(256, dtype=torch.uint8).view(dtype)
        run(kernels.permuted_copy, (2,), codes.view(dtype).reshape(4, 8, 8), out.reshape(8, 8, 4), 4, 8, 8)
        values = out.float().reshape(8, 8, 4).permute(2, 1, 0).reshape(-1)
        torch.testing.assert_close(values, codes.view(dtype).float(), atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_roots_are_correctly_rounded(dtype: torch.dtype) -> None:
    x = (torch.rand(4096, generator=RANDOM) * 4).to(dtype)
    root, reciprocal, above = torch.empty_like(x), torch.empty_like(x), torch.empty(4096, dtype=torch.int32)
    run(kernels.roots, (16,), x, root, reciprocal, above, 256)
    assert torch.equal(root, x.double().sqrt().to(dtype))
    assert torch.equal(reciprocal, x.double().rsqrt().to(dtype))
    assert torch.equal(above.bool(), x > 1)


class _Pair(tuple[int, ...]):
    """A tuple, but not a plain one."""


def test_an_empty_grid_is_one_block() -> None:
    assert run(kernels.nothing, (), (1, 2), 3).grid == (1, 1, 1)


@pytest.mark.parametrize("grid", [(1 << 24,), (1, 65536), (1, 1, 65536), (1, 1, 1, 1), (-1,), (1.0,), [1]])
def test_a_grid_that_no_gpu_takes_raises(grid: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="Grid must"):
        run(kernels.nothing, grid, (1, 2), 3)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((_Pair((1, 2)), 3), TypeError, "no argument of type '_Pair'"),
        (((1, None), 3), TypeError, "no argument of type 'NoneType'"),
        (((1, 2), 1 << 31), OverflowError, "too large"),
        (((1, 2), []), TypeError, "A list as kernel argument holds one or more arrays"),
        (((1, 2), [3]), TypeError, "A list as kernel argument holds one or more arrays"),
        (((1, 2),), TypeError, "Kernel expects 2 arguments but 1 were given"),
        (((1, 2), torch.zeros(2, dtype=torch.complex64)), TypeError, "Unsupported array dtype"),
    ],
)
def test_an_argument_that_no_kernel_takes_raises(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        run(kernels.nothing, (1,), *arguments)


@pytest.mark.parametrize(("pair", "fixed"), [((1, 2, 3), (4,)), ((1, 2), (None,)), ((1, 2), _Pair((1, 2)))])
def test_a_tuple_that_its_annotation_forbids_raises(pair: Any, fixed: Any) -> None:
    assert run(kernels.annotated, (1,), (1, 2), (4,)).blocks == 1
    with pytest.raises(TypeError, match="a kernel takes"):
        run(kernels.annotated, (1,), pair, fixed)


@pytest.mark.parametrize(
    "launch",
    [
        (None, (1,), kernels.nothing, ((1, 2), 3)),
        ("0", (1,), kernels.nothing, ((1, 2), 3)),
        (0, (1,), kernels.nothing._pyfunc, ((1, 2), 3)),
        (0, (1,), kernels.nothing, [(1, 2), 3]),
    ],
)
def test_a_launch_without_its_stream_kernel_or_arguments_raises(launch: tuple[Any, ...]) -> None:
    with host.running(host.Mode.RUN), pytest.raises(TypeError, match=r"Unsupported stream type|launch expects"):
        ct.launch(*launch)


def test_a_block_is_not_run_before_all_of_it_is_prepared() -> None:
    """Host code may launch from several threads."""
    token = SimpleNamespace(op="make_token", result_vars=())
    seen: list[int] = []

    class Body:
        @property
        def operations(self) -> Iterator[SimpleNamespace]:
            yield token
            if not seen:  # another thread comes by now
                seen.append(0)
                seen.append(len(flow._prepared(body)))
            yield token

    body = Body()
    assert len(flow._prepared(body)) == 2
    assert seen[1] == 2

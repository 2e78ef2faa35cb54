"""What the compiler makes of kernels, on any machine: resources, spills, tensor cores, TMA, timeouts."""

from __future__ import annotations

import dataclasses

import cuda.tile as ct
import pytest
import torch

from tests.unit import kernels
from tilewright.compiler import tools
from tilewright.compiler.assembling import assemble
from tilewright.compiler.compilation import Compilation
from tilewright.compiler.cutile import lower
from tilewright.compiler.findings import Treatment, findings
from tilewright.compiler.resources import Resources
from tilewright.compiler.signature import array_constraint, signature_of
from tilewright.compiler.tools import MissingTool, known_archs, need_compiler

ARCHS = ["sm_80", "sm_90", "sm_100", "sm_120"]
Size = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def bytes_matmul(a, b, out, T: Size, TURNED: ct.Constant[bool]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((T, T), ct.int32)
    for k in range(ct.num_tiles(a, axis=1, shape=(T, T))):
        left = ct.load(a, (i, k), (T, T), padding_mode=ZERO)
        if TURNED:
            right = ct.load(b, (j, k), (T, T), padding_mode=ZERO).transpose()
        else:
            right = ct.load(b, (k, j), (T, T), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(out, (i, j), total)


def matmul(tile: tuple[int, int, int], arch: str, **hints: int) -> Compilation:
    a = torch.empty(1024, 1024, dtype=torch.bfloat16)
    kernel = kernels.matmul.replace_hints(**hints)
    return kernels.compiled(kernel, signature_of(kernel, (a, a, a, *tile)), arch, timeout_s=30)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_compiles_without_a_gpu(arch: str) -> None:
    made = matmul((64, 64, 64), arch)
    assert made.error == ""
    assert isinstance(made.resources, Resources)
    assert made.resources.tensor_core
    assert 16 <= made.resources.registers <= 255
    assert made.resources.threads % 32 == 0
    assert (made.resources.ctas_per_sm or 0) >= 1
    assert bool(made.resources.tma) == (arch != "sm_80")
    assert "tile_mma" in made.cutile_ir
    assert "mma" in made.tile_ir


def test_a_kernel_that_does_not_compile_is_named() -> None:
    a = torch.empty(1024, 1024, dtype=torch.bfloat16)
    source = lower(kernels.matmul, signature_of(kernels.matmul, (a, a, a, 64, 64, 64)), "sm_90")
    late = assemble(source, timeout_s=0.001)
    assert (late.timed_out, late.resources) == (True, None)
    assert "COMPILE TIMEOUT" in late.error
    wrong = assemble(dataclasses.replace(source, error="no such thing"), timeout_s=60)
    assert (wrong.timed_out, wrong.resources, wrong.error) == (False, None, "no such thing")


@pytest.mark.parametrize("tile", [64, 128])
def test_bytes_that_a_product_transposes_in_registers_are_a_finding(tile: int) -> None:
    a, out = torch.empty(1024, 1024, dtype=torch.int8), torch.empty(1024, 1024, dtype=torch.int32)
    named = {
        turned: {
            one.treatment
            for one in findings(
                kernels.compiled(bytes_matmul, signature_of(bytes_matmul, (a, a, out, tile, turned)), "sm_90")
            )
        }
        for turned in (False, True)
    }
    assert Treatment.EIGHT_BIT_OPERANDS in named[False]
    assert Treatment.EIGHT_BIT_OPERANDS not in named[True]


def test_a_compiler_that_takes_too_long_is_stopped() -> None:
    made = kernels.compiled(
        kernels.matmul,
        signature_of(kernels.matmul, (torch.empty(1024, 1024, dtype=torch.bfloat16),) * 3 + (512, 512, 64)),
        "sm_90",
        timeout_s=1,
    )
    assert made.timed_out
    assert "did not finish within 1 s" in made.error


def test_what_does_not_compile_is_an_error_in_words() -> None:
    x = torch.empty(64)
    made = kernels.compiled(kernels.casts, signature_of(kernels.casts, (x, x, 48)), "sm_90")
    assert made.resources is None
    assert "power of two" in made.error


def test_the_signature_assumes_what_the_tensors_show() -> None:
    whole = array_constraint(torch.empty(64, 32, dtype=torch.bfloat16))
    assert whole.stride_constant == (None, 1)
    assert whole.stride_divisible_by == (8, 1)
    assert whole.shape_divisible_by == (16, 16)
    assert whole.base_addr_divisible_by == 16
    odd = array_constraint(torch.empty(65, 33, dtype=torch.bfloat16)[1:, 1:])
    assert odd.stride_divisible_by == (1, 1)
    assert odd.shape_divisible_by == (16, 16)
    assert odd.base_addr_divisible_by == 1
    assert array_constraint(torch.empty(1).expand(8)).may_alias_internally


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="Kernel expects 3 arguments but 2 were given"):
        signature_of(kernels.casts, (torch.empty(4), torch.empty(4)))
    with pytest.raises(TypeError, match="no argument of type 'dict'"):
        signature_of(kernels.casts, (torch.empty(4), {}, 32))


def test_the_compiler_found_here_knows_the_architectures_of_today() -> None:
    assert {"sm_80", "sm_90", "sm_100", "sm_120"} <= known_archs()


def test_a_compiler_that_cannot_work_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    need_compiler()
    real = tools.metadata.version
    monkeypatch.setattr(tools, "compiler_version", lambda: "")
    with pytest.raises(MissingTool, match=r"tileiras cannot compile a kernel here: .*tileiras does not run; .*pip"):
        need_compiler()
    other = {"nvidia-cuda-tileiras": "13.2.86"}
    monkeypatch.setattr(tools.metadata, "version", lambda name: other.get(name) or real(name))
    with pytest.raises(MissingTool, match=r"wheels of different releases: nvidia-cuda-tileiras 13\.2\.86, .*pip"):
        need_compiler()
    monkeypatch.setattr(tools, "find_tool", lambda name: None if name == "nvdisasm" else name)
    with pytest.raises(MissingTool, match=r"nvdisasm is not there.*pip install nvidia-cuda-nvdisasm"):
        need_compiler()

"""What counts as a library call: operations of torch that compute, and kernels that are not the candidate's own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, cast

import pytest
import torch

from tilewright.frontends.images import LoadedImages, installed
from tilewright.interpreter.hostops import computing, paused
from tilewright.programs.model import digest_of
from tilewright.worker.images import Images, LoadedModules, moves_memory

x, y = torch.rand(32, 32), torch.rand(32, 32)


class Hidden(torch.Tensor):
    """A tensor whose addition is a product."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [value.as_subclass(torch.Tensor) for value in args]
        return torch.mm(*plain) if func is torch.Tensor.add else super().__torch_function__(func, types, args, kwargs)


class Copied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0].clone()


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return torch.mm(gradients[0], y)


@torch.jit.script
def scripted(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)


@torch.library.custom_op("tilewright_test::own", mutates_args=())
def own(a: torch.Tensor) -> torch.Tensor:
    return a.clone()


def in_a_backward_pass() -> None:
    value = x.clone().requires_grad_()
    Product.apply(value).backward(torch.empty_like(x))


COMPUTES: dict[str, tuple[Callable[[], Any], str]] = {
    "a product": (lambda: torch.mm(x, y), "aten::mm"),
    "a product into an output": (lambda: torch.matmul(x, y, out=torch.empty_like(x)), "aten::mm"),
    "a product through a layer": (lambda: torch.nn.functional.linear(x, y.t()), "aten::mm"),
    "a product named otherwise": (lambda: torch.einsum("ij,jk->ik", x, y), "aten::bmm"),
    "a product in TorchScript": (lambda: scripted(x, y), "aten::mm"),
    "a product behind __torch_function__": (lambda: x.as_subclass(Hidden).add(y.as_subclass(Hidden)), "aten::mm"),
    "a product in a backward pass": (in_a_backward_pass, "aten::mm"),
    "a product by its overload": (lambda: torch.ops.aten.mm.default(x, y), "aten::mm"),
    "pointwise": (lambda: x * 2.0, "aten::mul"),
    "in place": (lambda: torch.zeros(3).add_(1.0), "aten::add_"),
    "a reduction": (lambda: x.amax(dim=1), "aten::amax"),
    "another dtype": (lambda: x.half(), "aten::_to_copy"),
    "another dtype in place": (lambda: torch.empty(32, 32, dtype=torch.float16).copy_(x), "aten::copy_"),
    "a table": (lambda: torch.arange(8), "aten::arange"),
    "random numbers": (lambda: torch.randn(8), "aten::randn"),
    "joined": (lambda: torch.cat([x, y]), "aten::cat"),
    "gathered": (lambda: x[torch.zeros(2, dtype=torch.int64)], "aten::index"),
    "sorted": (lambda: x.sort(), "aten::sort"),
}


@pytest.mark.parametrize("what", list(COMPUTES))
def test_what_computes_is_counted(what: str) -> None:
    call, name = COMPUTES[what]
    with computing() as calls:
        call()
        call()
    assert calls == {name: 2}


def test_making_naming_filling_and_copying_memory_is_not_counted() -> None:
    with computing() as calls:
        out = torch.empty_like(x)
        assert out.copy_(x.t()).shape == x.t().contiguous().shape == x.clone().shape
        assert float(x[0, 0]) == x[0, 0].item() == x.tolist()[0][0]
        views = x.view(-1), x.reshape(8, -1), x[3:, ::2], x[:, None], x.T, x.unbind(), x.split(8), x.expand(2, 32, 32)
        assert all(view is not None for view in (*views, x.to("cpu"), x.to(torch.float32), x.detach()))
        x.clone().t_().unsqueeze_(0).squeeze_(0).resize_as_(y)
        x.t().reshape(-1)
        torch.zeros(4).fill_(2.0).zero_()
        assert torch.full((2,), 3.0).shape == torch.tensor([1.0, 2.0]).shape == x.new_zeros(2).shape
        assert torch.tensor(3.0, dtype=torch.float16).shape == ()
        out[0] = 3.0
        own(x)
        Copied.apply(x.clone().requires_grad_()).backward(torch.empty_like(x))
        with paused():
            torch.mm(x, y)  # as the interpreter does
    assert calls == {}


@pytest.mark.parametrize(
    ("file", "is_installed"),
    [
        (torch.__file__, True),
        ("/usr/lib/python3/dist-packages/liger_kernel/ops/rms_norm.py", True),
        ("/scratch/cache/inductor/ab/kernel.py", True),
        (__file__, False),
        ("/repository/inductor_like/kernel.py", False),
    ],
)
def test_a_kernel_of_an_installed_package_is_a_librarys(file: str, is_installed: bool) -> None:
    assert installed(file) is is_installed
    images = LoadedImages()
    images.compiled("kernel", file)
    assert list(images.own()) == ([] if is_installed else ["kernel"])


FILL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
COPY = "ZZZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_"
STRIDED_COPY = (
    f"_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastI{COPY}EEvS4_RKT_EUliE_EEviT1_"
)
CAST_COPY = f"_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_15gpu_kernel_implI{COPY}EEvS4_RKT_EUliE_EEviT1_"
MOVES = {
    "a fill": (FILL, True),
    "a copy in other strides": (STRIDED_COPY, True),
    "a copy to another dtype": (CAST_COPY, False),
    "the same, unrolled": (
        f"_ZN2at6native27unrolled_elementwise_kernelI{COPY}St5arrayIPcLm2EELi4E23TrivialOffsetCalculatorILi1EjES8_"
        "NS0_6memory12LoadWithCastILi1EEENS9_13StoreWithCastILi1EEEEEviT_T0_T2_T3_T4_T5_",
        False,
    ),
    "to bfloat16": (
        "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_25bfloat16_copy_kernel_cudaERNS_18TensorIteratorBase"
        "EENKUlvE_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
        False,
    ),
    "pointwise": (
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13AUnaryFunctorIfffNS0_15binary_internal10MulFunctorIfEEEE"
        "St5arrayIPcLm2EEEEviT0_T1_",
        False,
    ),
    "cuBLAS": ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopB_NNT", False),
}  # fmt: skip


@pytest.mark.parametrize("what", list(MOVES))
def test_torchs_fills_and_copies_are_known_by_name(what: str) -> None:
    symbol, moves = MOVES[what]
    assert moves_memory(symbol) is moves


class Modules:
    """Stands for what CUPTI tells of the modules that libraries load."""

    def __init__(self, *symbols: str) -> None:
        self.images = {digest_of(symbol.encode()): symbol.encode() for symbol in symbols}

    def of_symbol(self, symbol: str) -> Collection[str]:
        return [key for key, image in self.images.items() if image.decode() == symbol]


def test_a_kernel_is_a_librarys_unless_it_was_compiled_from_the_candidates_source() -> None:
    source = LoadedImages()
    for handle, (symbol, file) in enumerate((("ours", __file__), ("triton_poi", "/cache/inductor/a.py")), 1):
        source.loaded(handle, symbol.encode())
        source.compiled(symbol, file)
    images = Images([source], cast(LoadedModules, Modules("sgemm", FILL)))
    assert images.of([1], "ours") == digest_of(b"ours")
    images.of([7], FILL)
    assert not images.libraries
    images.of([2], "triton_poi")
    images.of([8], "sgemm")
    assert list(images.libraries) == ["triton_poi", "sgemm"]
    assert len(images.used) == 4

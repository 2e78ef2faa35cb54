"""What counts as a library call, however it is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import cuda.tile as ct
import pytest
import torch
from cuda.tile import tune
from cuda.tile._cext import default_tile_context
from torch.utils._python_dispatch import _disable_current_modes

from tests.unit.kernels import softmax
from tilewright.compiler.signature import signature_of
from tilewright.evaluation.candidate import CandidateFailure
from tilewright.evaluation.librarycalls import Recorder, installed, library_call, watch_compilers, withhold_launches
from tilewright.evaluation.results import Status
from tilewright.interpreter.hostops import paused

x, y = torch.rand(32, 32), torch.rand(32, 32)
ROW, WIDE_ROW = (signature_of(softmax, (x, torch.empty_like(x), size)) for size in (32, 64))
start, done = threading.Event(), threading.Event()


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder(on_device=False)


@pytest.fixture(scope="module", autouse=True)
def early_thread() -> Iterator[None]:
    """A thread that is there before anything is recorded."""

    def wait() -> None:
        start.wait()
        torch.mm(x, y)
        done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    start.set()
    thread.join()


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


@torch.library.custom_op("tilewright_test::product", mutates_args=())
def custom(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)


@torch.library.custom_op("tilewright_test::copied", mutates_args=())
def copied(a: torch.Tensor) -> torch.Tensor:
    return a.clone()


library = torch.library.Library("tilewright_own", "DEF")
library.define("product(Tensor a, Tensor b) -> Tensor")
library.impl("product", lambda a, b: a.clone() if a is b else torch.mm(a, b), "CompositeExplicitAutograd")


def in_a_thread() -> None:
    thread = threading.Thread(target=lambda: torch.mm(x, y))
    thread.start()
    thread.join()


def in_an_early_thread() -> None:
    start.set()
    done.wait()


def without_modes() -> None:
    with _disable_current_modes(), torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        torch.mm(x, y)


def in_a_backward_pass() -> None:
    value = x.clone().requires_grad_()
    Product.apply(value).backward(torch.empty_like(x))


PRODUCTS: dict[str, Callable[[], Any]] = {
    "plain": lambda: torch.mm(x, y),
    "into an output": lambda: torch.matmul(x, y, out=torch.empty_like(x)),
    "through a layer": lambda: torch.nn.functional.linear(x, y.t()),
    "named otherwise": lambda: torch.einsum("ij,jk->ik", x, y),
    "in TorchScript": lambda: scripted(x, y),
    "in a thread": in_a_thread,
    "in a thread that was there before": in_an_early_thread,
    "without dispatch modes": without_modes,
    "behind __torch_function__": lambda: x.as_subclass(Hidden).add(y.as_subclass(Hidden)),
    "in a backward pass": in_a_backward_pass,
    "in a custom operation": lambda: custom(x, y),
    "in an operation of a library": lambda: torch.ops.tilewright_own.product(x, y),
    "by its overload": lambda: torch.ops.aten.mm.default(x, y),
}


@pytest.mark.parametrize("what", list(PRODUCTS))
def test_a_product_is_seen_wherever_it_is_made(recorder: Recorder, what: str) -> None:
    with pytest.raises(CandidateFailure, match=r"library calls ran: .*aten::(mm|bmm|addmm)") as failure, \
            recorder.forbidding():  # fmt: skip
        PRODUCTS[what]()
    assert failure.value.status is Status.LIBRARY_CALLS
    assert 'library_calls = "forbid": do this in' in str(failure.value)


OTHER: dict[str, tuple[Callable[[], Any], str]] = {
    "pointwise": (lambda: x * 2.0, "aten::mul"),
    "in place": (lambda: torch.zeros(3).add_(1.0), "aten::add_"),
    "a reduction": (lambda: x.amax(dim=1), "aten::amax"),
    "another dtype": (lambda: x.half(), "aten::copy_ (float to c10::Half)"),
    "a table": (lambda: torch.arange(8), "aten::arange"),
    "random numbers": (lambda: torch.randn(8), "aten::randn"),
    "joined": (lambda: torch.cat([x, y]), "aten::cat"),
    "gathered": (lambda: x[torch.zeros(2, dtype=torch.int64)], "aten::index"),
    "sorted": (lambda: x.sort(), "aten::sort"),
    "several": (lambda: [x * 2.0 for _ in range(3)], "aten::mul (3 times)"),
}


@pytest.mark.parametrize("what", list(OTHER))
def test_what_computes_is_a_library_call(recorder: Recorder, what: str) -> None:
    call, name = OTHER[what]
    with pytest.raises(CandidateFailure) as failure, recorder.forbidding():
        call()
    assert name in str(failure.value)


def test_making_naming_filling_and_copying_memory_is_none(recorder: Recorder) -> None:
    with recorder.forbidding():
        out = torch.empty_like(x)
        assert out.copy_(x.t()).shape == x.t().contiguous().shape == x.clone().shape
        assert float(x[0, 0]) == x[0, 0].item() == x.tolist()[0][0]
        views = x.view(-1), x.reshape(8, -1), x[3:, ::2], x[:, None], x.T, x.unbind(), x.split(8), x.expand(2, 32, 32)
        assert all(view is not None for view in (*views, x.to("cpu"), x.to(torch.float32), x.detach()))
        torch.zeros(4).fill_(2.0).zero_()
        assert torch.full((2,), 3.0).shape == torch.tensor([1.0, 2.0]).shape == x.new_zeros(2).shape
        assert torch.tensor(3.0, dtype=torch.float16).shape == ()
        copied(x)
        torch.ops.tilewright_own.product(x, x)
        Copied.apply(x.clone().requires_grad_()).backward(torch.empty_like(x))
        with paused():
            torch.mm(x, y)  # as the interpreter does


@pytest.mark.parametrize(
    "switch",
    [
        lambda: torch._C._autograd._disable_profiler(),
        lambda: torch._C._autograd._enable_record_function(False),
    ],
)
def test_a_record_that_is_switched_off_is_tampered(recorder: Recorder, switch: Callable[[], Any]) -> None:
    with pytest.raises(CandidateFailure) as failure, recorder.forbidding():
        switch()
        torch.mm(x, y)
    assert failure.value.status is Status.TAMPERED
    with recorder.forbidding():
        pass


def test_a_failure_within_is_passed_on(recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError), recorder.forbidding():
        torch.mm(x, y)
        raise ZeroDivisionError


def test_a_kernel_of_an_installed_package_is_a_librarys() -> None:
    assert installed(torch.__file__)
    assert installed("/scratch/cache/inductor/ab/kernel.py")
    assert not installed(__file__)


def kernel_event(name: str) -> Any:
    """What Kineto gives for a kernel that a GPU ran."""
    return SimpleNamespace(
        name=lambda: name, device_type=lambda: torch.autograd.DeviceType.CUDA, is_user_annotation=lambda: False
    )


COPY = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}"
STRIDED = "void at::native::elementwise_kernel"
ON_A_GPU = {
    "the candidate's own": ("scale_kernel_K1_Af32", True),
    "a kernel named like it": ("scale_kernel_K1_Af64", False),
    "a copy by the copy engine": ("Memcpy DtoD (Device -> Device)", True),
    "memory set": ("Memset (Device)", True),
    "a fill": ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
               "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)", True),
    "a copy in other strides": (f"{STRIDED}<128, 2, at::native::gpu_kernel_impl_nocast<{COPY}", True),
    "a copy to another dtype": (f"void at::native::unrolled_elementwise_kernel<{COPY}, std::array<char*, 2ul>, 4, "
                                "at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >", False),
    "the same in other strides": (f"{STRIDED}<128, 4, at::native::gpu_kernel_impl<{COPY}", False),
    "to bfloat16": ("void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda", False),
    "pointwise": ("void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, "
                  "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >", False),
    "cuBLAS": ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopB_NNT", False),
    "CUTLASS": ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align8>(Params)", False),
    "torch.compile": ("triton_poi_fused_mul_0", False),
}  # fmt: skip


@pytest.mark.parametrize("what", list(ON_A_GPU))
def test_kernels_are_told_apart_by_name(what: str) -> None:
    name, allowed = ON_A_GPU[what]
    assert library_call(kernel_event(name), {"scale_kernel_K1_Af32"}) == ("" if allowed else f"kernel {name[:120]}")


def test_the_compiler_says_which_kernels_are_the_candidates_own(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, own = type(softmax), set[str]()
    monkeypatch.setattr(kind, "_compile", kind._compile)
    watch_compilers(own)
    made = [softmax._compile(signature, default_tile_context, (9, 0))[1] for signature in (ROW, WIDE_ROW)]
    assert own == set(made)
    assert len(own) == 2
    assert all(name.startswith("softmax_K") for name in own)
    monkeypatch.setattr("tilewright.evaluation.librarycalls.installed", lambda file: True)
    own.clear()
    softmax._compile(ROW, default_tile_context, (9, 0))
    assert own == set()


def test_withheld_launches_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ct, "launch", ct.launch)
    for module, name in ((tune, "exhaustive_search"), (tune._tune, "exhaustive_search"), (tune._tune, "_benchmark")):
        monkeypatch.setattr(module, name, getattr(module, name))
    withhold_launches()
    out = torch.full((2, 64), 7.0)
    ct.launch(0, (2,), softmax, (torch.rand(2, 64), out, 64))
    assert (out == 7.0).all()
    found = tune.exhaustive_search([3, 4], 0, lambda config: (1,), softmax, lambda config: (x, out, 64), quiet=True)
    assert found.best.config == 3
    assert (out == 7.0).all()

"""What counts as a library call, however it is made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

from tilewright.evaluation.candidate import CandidateFailure
from tilewright.evaluation.librarycalls import Recorder, installed
from tilewright.evaluation.results import Status
from tilewright.interpreter.hostops import paused

x, y = torch.rand(32, 32), torch.rand(32, 32)
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
